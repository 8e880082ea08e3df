"""TensorFlow operators in ONNX operators: the rules by TensorFlow's own names, one file for each idea."""

from onnxbridge.rules import Rules

rule = Rules("frontends.tensorflow", package=__name__, writer=True)
