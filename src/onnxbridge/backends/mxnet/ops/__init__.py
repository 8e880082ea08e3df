"""Rules: ONNX operators as MXNet operators, written by the `sym` writer.

Operators of MXNet's NumPy family (`_npi_...`) are used where their meaning is ONNX's: full broadcasting, true bools.
"""

from onnxbridge.rules import Rules

rule = Rules("backends.mxnet", package=__name__, writer=True)
