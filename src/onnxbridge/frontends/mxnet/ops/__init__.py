"""Rules: MXNet operators, by MXNet's names, as ONNX operators."""

from onnxbridge.rules import Rules

rule = Rules("frontends.mxnet", package=__name__, writer=True)
