"""MXNet operators in ONNX operators: the rules by MXNet's own names, one file for each idea."""

from onnxbridge.rules import Rules

rule = Rules("frontends.mxnet", package=__name__, writer=True)
