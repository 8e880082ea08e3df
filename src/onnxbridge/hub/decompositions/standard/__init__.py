"""Expansions: one ONNX operator in simpler operators of the same opset, for backends, opset down-conversion and the executor.

A rule here has the shape of every rule: the `op` builder first, then the operator's own inputs and attributes.
"""

from __future__ import annotations

from onnxbridge.hub.ir.schemas import name_of, schema_of
from onnxbridge.rules import Rules

expand = Rules("hub.expand", package=__name__, writer=True)


def covers(op_type: str, domain: str = "") -> bool:
    """Whether there is an expansion of the operator, ours or the standard's."""
    if name_of(op_type, domain) in expand:
        return True
    try:
        schema = schema_of(op_type, domain)
    except ValueError:  # not ONNX's own
        return False
    return schema.has_function or schema.has_context_dependent_function
