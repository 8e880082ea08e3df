"""Operators of libraries' own that are kept as functions."""

import onnx_ir as ir

from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.hub.ir import model_functions


@rule("library::function")
def function(op, *operands, domain, name, body, form, labels):
    """One call of an ONNX function; written out where something goes in or comes out that no function of ONNX takes."""
    if not operands or not all(isinstance(x, ir.Value) for x in operands):
        return body(*operands)
    return model_functions.call(op, domain, name, body, operands, form, labels)
