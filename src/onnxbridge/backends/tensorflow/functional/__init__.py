"""Builds functional Keras models: which operators are Keras layers, what the others become, and the model itself."""
