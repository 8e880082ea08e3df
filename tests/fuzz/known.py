"""Where ONNX Runtime, or an expansion, and our executor part, and why: the table in docs/disagreements.md, as predicates.

So a run reports what is new by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from graphs import Graph
from judge import Disagreement
from onnx import helper

Reads = Callable[[dict[str, Any], list[Any], list[Any]], bool]  # attributes, inputs, our results


def _not_a_number(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    return any(_floating(x) and np.isnan(x).any() for x in inputs)


def _floating(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype.kind == "f"


def _extreme(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    """A number so large that its products, powers or sums leave the type."""
    def beyond(x: Any) -> bool:
        return bool((~np.isfinite(x) | (np.abs(x.astype(float)) > np.sqrt(float(np.finfo(x.dtype).max)))).any())

    return any(_floating(x) and beyond(x) for x in inputs)


def _empty(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    return not inputs[0].size


def _same_pads(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    return attrs.get("auto_pad", b"").startswith(b"SAME")


def _align_corners(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    return attrs["coordinate_transformation_mode"] == b"align_corners"


def _nearest(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    return attrs["mode"] == b"nearest"


def _of_bool(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    return inputs[0].dtype == np.bool_


def _large_whole(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    """Whole numbers whose sum or product may leave the type, or that float64 does not hold."""
    return inputs[0].dtype.kind in "iu" and float(np.prod(np.abs(inputs[0].astype(float)) + 1)) > 2**31


def _overflowing(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    """A product that leaves the type on the way, in one order or another."""
    return _floating(inputs[0]) and float(np.abs(np.log2(np.abs(inputs[0].astype(float)) + 1e-300)).sum()) > 120


def _subnormal(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    """A number below the least that has all its digits."""
    return any(_floating(x) and ((x != 0) & (np.abs(x) < np.finfo(x.dtype).tiny)).any() for x in inputs)


def _floors(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    """A step inside, which what was computed before it may stand next to."""
    return any(n.op_type == "Floor" for g in attrs.values() if hasattr(g, "node") for n in _every_node(g))


def _every_node(graph: Any) -> Any:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            yield from _every_node(attribute.g)


def _always(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    return True


REDUCTIONS = {f"Reduce{n}" for n in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp")}

# (with whom, operators, when, the number of the table's row)
ROWS: list[tuple[str, set[str], Reads, str]] = [
    ("ort", {"Resize"}, _align_corners, "Resize: a fraction of a length"),
    ("ort", {"Resize"}, _nearest, "Resize: a point between two"),
    ("expansion", {"Resize"}, _nearest, "Resize: a point between two"),
    ("ort", {"LogSoftmax", "Softmax", *REDUCTIONS}, _not_a_number, "Reductions of NaN"),
    ("ort", {"ScatterElements", "ScatterND", "Clip", "Unique"}, _not_a_number, "The order of NaN"),
    ("ort", {"Hardmax", "ArgMax", "ArgMin", "TopK"}, _not_a_number, "The order of NaN"),
    ("ort", {"LogSoftmax", "Softmax"}, _extreme, "Reductions of NaN"),
    ("expansion", {"Sign", "Hardmax", "Unique"}, _not_a_number, "The order of NaN"),
    ("expansion", {"Hardmax"}, _empty, "Reductions of nothing"),
    ("ort", {"DynamicQuantizeLinear", "QuantizeLinear"}, _extreme, "Whole numbers of NaN"),
    ("ort", {"Clip"}, _extreme, "Clip: an end that is not given"),
    ("ort", {"StringSplit"}, _always, "StringSplit: the empty text"),
    ("ort", {"Cast"}, _of_bool, "Cast: truth as text"),
    ("ort", {"Mod"}, _large_whole, "Whole numbers out of range"),
    ("ort", REDUCTIONS, _large_whole, "Whole numbers out of range"),
    ("ort", REDUCTIONS, _empty, "Reductions of nothing"),
    ("ort", {"ReduceProd", "ReduceL2", "ReduceSumSquare"}, _extreme, "Squares and products out of range"),
    ("ort", {"Normalizer", "LpNormalization"}, _extreme, "Squares and products out of range"),
    ("ort", {"ReduceProd"}, _overflowing, "Squares and products out of range"),
    ("ort", {"MatMul", "Gemm"}, _empty, "Products of nothing"),
    ("ort", {"MaxPool", "LpPool", "AveragePool", "ConvTranspose"}, _same_pads, "Auto pads: the size of the result"),
    ("ort", {"GridSample"}, _nearest, "GridSample: rounding and folding"),
    ("ort", {"Elu", "Celu", "Selu"}, _subnormal, "Subnormal numbers"),
    ("float64", {"Loop", "Scan", "If"}, _floors, "A step behind a rounding"),
    ("expansion", {"Loop", "Scan", "If"}, _floors, "A step behind a rounding"),
    ("ort", {"Loop", "Scan", "If"}, _floors, "A step behind a rounding"),
    ("expansion", {"Gemm"}, _extreme, "Gemm: nothing times infinity"),
    ("expansion", {"Acosh", "Asinh", "Cosh", "Sinh", "Celu", "Softplus"}, _extreme, "Squares and products out of range"),
]


def reason(found: Disagreement, graph: Graph) -> str:
    """The row that explains a disagreement, "" where none does."""
    attrs = {a.name: helper.get_attribute_value(a) for a in found.node.attribute}
    inputs = [graph.values[i] for i in found.node.input if i]
    outputs = [graph.values[o] for o in found.node.output if o in graph.values]
    for whom, operators, when, row in ROWS:
        if whom == found.whom and found.node.op_type in operators and when(attrs, inputs, outputs):
            return row
    return ""
