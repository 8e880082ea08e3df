"""Operators whose results a rounding error changes abruptly: those that quantize, choose or compare; and those whose error does
not shrink with the result."""

from __future__ import annotations

import onnx_ir as ir

_QUANTIZING = frozenset({"DynamicQuantizeLinear", "QuantizeLinear", "Round"})
QUANTIZING_INSIDE = frozenset({"com.microsoft::DynamicQuantizeLSTM", "QLinearConv", "QLinearMatMul"})
"""Operators that quantize internally; they are decomposed so that noise is added inside."""
_CHOOSING = frozenset({"Ceil", "Floor", "Hardmax", "Sign"})
"""Operators with floating-point results that jump."""
_OF_SIZES = frozenset({"Shape", "Size"})
# Libraries compute Sigmoid as 1/2 plus a polynomial, and windows are sums of cosines: near 0 the error is that of 1, however
# small the result. The gates of LSTM and GRU are Sigmoids, and their states products with these.
_ERRORS_OF_ONE = frozenset({"Sigmoid", "BlackmanWindow", "HammingWindow", "HannWindow", "LSTM", "GRU"})
_ERROR_PRESERVING = frozenset({
    "Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Concat", "Split", "Gather", "Expand",
    "ReduceMean", "ReduceMax", "ReduceMin", "AveragePool", "GlobalAveragePool", "MaxPool", "GlobalMaxPool",
})  # fmt: skip
"""Operators that pass on their inputs without increasing the error."""


def depends_on_ties(model: ir.Model) -> bool:
    """Whether the model quantizes or chooses, so that its tolerance is measured anew where two models differ."""
    return any(is_quantizing(node) or is_choice(node) for node in model.graph.all_nodes())


def is_quantizing(node: ir.Node) -> bool:
    """Whether a node quantizes or rounds to integers."""
    kind = node.op_type
    return kind in _QUANTIZING or kind.startswith(("QLinear", "QGemm", "QAttention", "DynamicQuantize"))


def is_choice(node: ir.Node) -> bool:
    """Whether a node compares numbers or rounds them to integers, so that a small error can change the result entirely."""
    if node.op_type in _CHOOSING or node.op_type in _QUANTIZING:
        return True
    floating = any(v is not None and v.dtype is not None and v.dtype.is_floating_point() for v in node.inputs)
    others = [v for v in node.outputs if v.dtype is not None and not v.dtype.is_floating_point()]
    return floating and bool(others) and node.op_type not in _OF_SIZES


def has_errors_of_one(value: ir.Value) -> bool:
    """Whether the value is the result of such an operator, or their mean or selection: its error does not shrink with it."""
    return _is_from(value, _ERRORS_OF_ONE)


def is_quantized(value: ir.Value) -> bool:
    """Whether the value holds integers to which numbers were quantized, so that rounding moves them by whole steps."""
    return _is_from(value, frozenset({"QuantizeLinear"}))


def _is_from(value: ir.Value, operators: frozenset[str]) -> bool:
    todo, seen = [value], {value}
    while todo:
        found = todo.pop()
        node = found.producer()
        if node is None:
            continue
        if node.op_type in operators:
            return True
        before: list[ir.Value | None] = []
        if node.op_type in _ERROR_PRESERVING:
            before = list(node.inputs)
        elif node.op_type == "If":
            before = [a.as_graph().outputs[found.index()] for a in node.attributes.values()]  # type: ignore[index]
        todo += [v for v in dict.fromkeys(before) if v is not None and v not in seen]
        seen.update(todo)
    return False
