"""Registers the Keras layers of onnxbridge, so that `keras.models.load_model` finds them: `import onnxbridge.keras_layers`."""

from onnxbridge.backends.tensorflow.functional.custom_layers import Operators, Parameter

__all__ = ["Operators", "Parameter"]
