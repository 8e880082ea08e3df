"""TensorFlow graphs as calls for the walker."""
