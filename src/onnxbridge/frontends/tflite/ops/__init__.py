"""Rules: TensorFlow Lite operators, by the schema's names, as ONNX operators.

Their parameters have the schema's names. Quantization and fused activations are not theirs: rules get floats and return floats.
"""

from onnxbridge.rules import Rules

rule = Rules("frontends.tflite", package=__name__, writer=True)
