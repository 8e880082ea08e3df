"""Decompositions of standard ONNX operators into simpler ones of the same opset.

Used by backends, opset down-conversion and the executor. The first parameter of a rule is the builder `op`; the others are the
operator's own inputs and attributes.
"""

from __future__ import annotations

from onnxbridge.hub.ir.schemas import name_of, schema_of
from onnxbridge.rules import Rules

decompose = Rules("hub.decompositions", package=__name__, writer=True)


def has_decomposition(op_type: str, domain: str = "") -> bool:
    """Whether the operator has a decomposition, onnxbridge's own or a function body of the ONNX standard."""
    if name_of(op_type, domain) in decompose:
        return True
    try:
        schema = schema_of(op_type, domain)
    except ValueError:  # not an operator of ONNX
        return False
    return schema.has_function or schema.has_context_dependent_function
