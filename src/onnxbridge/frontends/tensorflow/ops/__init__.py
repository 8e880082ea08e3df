"""Rules: TensorFlow operators, by TensorFlow's names, as ONNX operators."""

from onnxbridge.rules import Rules

rule = Rules("frontends.tensorflow", package=__name__, writer=True)
