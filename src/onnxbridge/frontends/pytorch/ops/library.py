"""Third-party operators that are emitted as ONNX functions."""

import onnx_ir as ir

from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.hub.ir import model_functions


@rule("library::function")
def function(op, *operands, domain, name, body, form, labels):
    """Call an ONNX function; inlined if an argument is not a value, which ONNX functions cannot take."""
    if not operands or not all(isinstance(x, ir.Value) for x in operands):
        return body(*operands)
    return model_functions.call(op, domain, name, body, operands, form, labels)
