"""Lowering rules: neural network layers to MIL operators, by the names of layers and parameters in the specification.

Parameters that are missing in the file have the specification's defaults. If `mil.exact`, blobs have arbitrary ranks, else the
axes (sequence, channels, height, width).
"""

from onnxbridge.rules import Rules

rule = Rules("runtime.mil.network", package=__name__, writer=True)
