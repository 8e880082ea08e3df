"""Writes a built Keras model as readable Python source with a file of weights."""
