"""Reads TensorFlow Lite files without TensorFlow."""
