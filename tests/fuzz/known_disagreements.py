"""Where ONNX Runtime, or an expansion, and our executor part, and why: the table in docs/disagreements.md, as predicates.

So a run reports what is new by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from onnx import helper

from tests.fuzz.compare import Disagreement
from tests.fuzz.graphs import Graph

Reads = Callable[[dict[str, Any], list[Any], list[Any]], bool]  # attributes, inputs, our results


def _not_a_number(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    return any(_floating(x) and np.isnan(x).any() for x in inputs)


def _floating(x: Any) -> bool:
    return isinstance(x, np.ndarray) and (x.dtype.kind == "f" or x.dtype == ml_dtypes.bfloat16)


def _extreme(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    """A number so large that its products, powers or sums leave the type."""
    def beyond(x: Any) -> bool:
        return bool((~np.isfinite(x) | (np.abs(x.astype(float)) > np.sqrt(float(ml_dtypes.finfo(x.dtype).max)))).any())

    return any(_floating(x) and beyond(x) for x in inputs)


def _empty(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    return not inputs[0].size


def _same_pads(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    return attrs.get("auto_pad", b"").startswith(b"SAME")


def _align_corners(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    return attrs.get("coordinate_transformation_mode") == b"align_corners"


def _nearest(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    return attrs.get("mode", b"nearest" if "nearest_mode" in attrs or "axes" in attrs else b"linear") == b"nearest"


def _of_bool(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    return inputs[0].dtype == np.bool_


def _large_whole(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    """Whole numbers whose sum or product may leave the type, or that float64 does not hold."""
    return inputs[0].dtype.kind in "iu" and float(np.prod(np.abs(inputs[0].astype(float)) + 1)) >= 2**31


def _overflowing(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    """A product that leaves the type on the way, in one order or another."""
    return _floating(inputs[0]) and float(np.abs(np.log2(np.abs(inputs[0].astype(float)) + 1e-300)).sum()) > 120


def _subnormal(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    """A number below the least that has all its digits."""
    return any(_floating(x) and ((x != 0) & (np.abs(x) < ml_dtypes.finfo(x.dtype).tiny)).any() for x in inputs)


def _at_the_end(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    """Whole numbers of which float32 holds not every digit."""
    return inputs[0].dtype.kind in "iu" and bool((np.abs(inputs[0].astype(float)) > 2**24).any())


def _sums_of_texts(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    return inputs[0].dtype == object and attrs.get("reduction", b"none") != b"none"


def _floors(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    """A step inside, which what was computed before it may stand next to."""
    return any(n.op_type == "Floor" for g in attrs.values() if hasattr(g, "node") for n in _every_node(g))


def _every_node(graph: Any) -> Any:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            yield from _every_node(attribute.g)


def _of_whole_numbers(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    return isinstance(inputs[0], np.ndarray) and inputs[0].dtype.kind in "iu"


def _of_texts(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    return bool(inputs[0].dtype == object and inputs[0].ndim > 1)


def _policy_from_the_end(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    return "keep_aspect_ratio_policy" in attrs and any(a < 0 for a in attrs.get("axes", ()))


def _same_size(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    return attrs.get("coordinate_transformation_mode") == b"tf_crop_and_resize" and inputs[0].shape == outputs[0].shape


def _one_place(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    return attrs.get("align_corners") == 1 and 1 in inputs[1][2:]


def _clipped(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    return "clip" in attrs


def _unbounded(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    grown = any(isinstance(o, np.ndarray) and not np.isfinite(o.astype(float)).all() for o in outputs)
    return grown or b"Softplus" in attrs.get("activations", ())


def _in_few_digits(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    """States that are rounded after each step of each turn."""
    return inputs[0].dtype.itemsize == 2


def _one_causal_query(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    return attrs.get("is_causal") == 1 and inputs[0].shape[-2] == 1 < inputs[1].shape[-2]


def _cancelling(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    """Terms that leave nothing or nearly nothing of each other."""
    return bool(np.abs(inputs[0].astype(float)).max(initial=0) > 0 and any((o < -8).any() for o in outputs))


def _far_below_zero(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    return bool((inputs[0].astype(float) < -4).any())


def _on_the_border(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    """A region that has a point on the first or the last element, to within float32's rounding."""
    if attrs.get("coordinate_transformation_mode") != b"tf_crop_and_resize" or not outputs:
        return False
    roi = next(np.asarray(v, np.float64) for v in inputs[1:] if v is not None and v.size == 2 * inputs[0].ndim)
    for length, n, begin, end in zip(inputs[0].shape, outputs[0].shape, roi, roi[len(roi) // 2 :], strict=False):
        points = begin * (length - 1) + np.arange(n) * (end - begin) * (length - 1) / max(1, n - 1)
        if (begin, end) != (0, 1) and (np.minimum(np.abs(points), np.abs(points - length + 1)) < 1e-5 * length).any():
            return True
    return False


def _always(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    return True


REDUCTIONS = {f"Reduce{n}" for n in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp")}

# (with whom, operators, when, the number of the table's row)
ROWS: list[tuple[str, set[str], Reads, str]] = [
    ("ort", {"Resize"}, _policy_from_the_end, "Resize: a policy and axes from the end"),
    ("ort", {"Resize"}, _align_corners, "Resize: a fraction of a length"),
    ("ort", {"Resize"}, _nearest, "Resize: a point between two"),
    ("ort", {"Resize", "GridSample"}, _of_whole_numbers, "Resize, GridSample: whole numbers"),
    ("expansion", {"Resize", "GridSample"}, _of_whole_numbers, "Resize, GridSample: whole numbers"),
    ("ort", {"Resize"}, _same_size, "Resize: a region of the same size"),
    ("ort", {"Resize"}, _on_the_border, "Resize: a point on the border"),
    ("ort", {"AffineGrid"}, _one_place, "AffineGrid: an axis of one place"),
    ("expansion", {"Resize"}, _nearest, "Resize: a point between two"),
    ("ort", {"LogSoftmax", "Softmax", *REDUCTIONS}, _not_a_number, "Reductions of NaN"),
    ("ort", {"ScatterElements", "ScatterND", "Clip", "Unique"}, _not_a_number, "The order of NaN"),
    ("ort", {"MaxPool", "GlobalMaxPool"}, _not_a_number, "The largest of a window with NaN"),
    ("ort", {"Hardmax", "ArgMax", "ArgMin", "TopK", "Sign"}, _not_a_number, "The order of NaN"),
    ("ort", {"LogSoftmax", "Softmax"}, _extreme, "Reductions of NaN"),
    ("expansion", {"Sign", "Hardmax", "Unique"}, _not_a_number, "The order of NaN"),
    ("expansion", {"Hardmax"}, _empty, "Reductions of nothing"),
    ("ort", {"DynamicQuantizeLinear", "QuantizeLinear"}, _extreme, "Whole numbers of NaN"),
    ("ort", {"DynamicQuantizeLinear"}, _subnormal, "Subnormal numbers"),
    ("ort", {"Clip"}, _extreme, "Clip: an end that is not given"),
    ("ort", {"StringSplit"}, _always, "StringSplit: the empty text"),
    ("ort", {"Cast"}, _of_bool, "Cast: truth as text"),
    ("ort", {"Mod"}, _large_whole, "Whole numbers out of range"),
    ("ort", REDUCTIONS, _large_whole, "Whole numbers out of range"),
    ("ort", REDUCTIONS, _empty, "Reductions of nothing"),
    ("ort", {"ReduceProd", "ReduceL2", "ReduceSumSquare"}, _extreme, "Squares and products out of range"),
    ("ort", {"Normalizer", "LpNormalization"}, _extreme, "Squares and products out of range"),
    ("ort", {"ReduceLogSum", "ReduceLogSumExp", "Normalizer"}, _of_whole_numbers, "Whole numbers out of range"),
    ("ort", {"Gather"}, _of_texts, "Gather: rows of texts"),
    ("expansion", {"CumProd"}, _extreme, "Squares and products out of range"),
    ("ort", {"ReduceProd"}, _overflowing, "Squares and products out of range"),
    ("ort", {"MatMul", "Gemm"}, _empty, "Products of nothing"),
    ("ort", {"MaxPool", "LpPool", "AveragePool", "ConvTranspose"}, _same_pads, "Auto pads: the size of the result"),
    ("ort", {"GridSample"}, _nearest, "GridSample: rounding and folding"),
    ("ort", {"Elu", "Celu", "Selu"}, _subnormal, "Subnormal numbers"),
    ("ort", {"LSTM"}, _clipped, "LSTM: a clip of the cell"),
    ("ort", {"Shrink"}, _at_the_end, "Whole numbers out of range"),
    ("ort", {"ScatterElements", "ScatterND"}, _sums_of_texts, "Sums of texts"),
    ("float64", {"LSTM", "GRU", "RNN"}, _unbounded, "Squares and products out of range"),
    ("ort", {"LSTM", "GRU", "RNN"}, _unbounded, "Squares and products out of range"),
    ("expansion", {"LSTM", "GRU", "RNN"}, _in_few_digits, "A step behind a rounding"),
    ("ort", {"ReduceL2"}, _subnormal, "Subnormal numbers"),
    ("ort", {"Attention"}, _one_causal_query, "Attention: one query"),
    ("ort", {"Dropout"}, _always, "Dropout: the mask"),
    *((whom, {"ReduceLogSum"}, _cancelling, "A step behind a rounding") for whom in ("ort", "float64", "expansion")),
    *((whom, {"Gelu"}, _far_below_zero, "A step behind a rounding") for whom in ("ort", "float64", "expansion")),
    ("expansion", REDUCTIONS, _large_whole, "Whole numbers out of range"),
    ("float64", {"Loop", "Scan", "If"}, _floors, "A step behind a rounding"),
    ("expansion", {"Loop", "Scan", "If"}, _floors, "A step behind a rounding"),
    ("ort", {"Loop", "Scan", "If"}, _floors, "A step behind a rounding"),
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
