"""TensorFlow graphs as calls to lower."""
