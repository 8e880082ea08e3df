"""The known disagreements of docs/disagreements.md as predicates, so that a run of the fuzzer reports only new ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from onnx import TensorProto, helper

from tests.fuzz.compare import Disagreement, differs, session
from tests.fuzz.graphs import Graph

Predicate = Callable[[dict[str, Any], list[Any], list[Any]], bool]  # attributes, inputs, our results


def _nan(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    return _has_nan(inputs[0])


def _several_nan(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    """The decomposition of Unique compares neighbours, and NaN is not equal to NaN; in the executor it is one value."""
    return _floating(inputs[0]) and np.count_nonzero(np.isnan(inputs[0])) > 1


def _has_nan(x: Any) -> bool:
    return bool(_floating(x) and np.isnan(x).any())


def _nan_in_a_maximum_or_minimum(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    """Only these reductions of ScatterElements and ScatterND compare; sums and products propagate NaN."""
    return attrs.get("reduction") in (b"max", b"min") and any(map(_has_nan, inputs))


def _nan_bound(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    """ONNX Runtime propagates NaN of the clipped tensor, but ignores a bound that is NaN, with which comparisons are false."""
    return any(map(_has_nan, inputs[1:]))


def _16_bit_nan(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    """ONNX Runtime computes the sign of float16 and bfloat16 by comparisons, and propagates NaN of float32 and float64."""
    return inputs[0].dtype.itemsize == 2 and _has_nan(inputs[0])


def _nan_and_infinity(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    """ReduceLogSumExp subtracts the largest element, which ONNX Runtime does only if it is finite; NaN may hide an infinity."""
    return _has_nan(inputs[0]) and bool(np.isinf(inputs[0]).any())


def _no_finite_maximum(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    """LogSoftmax of float64, for which ONNX Runtime has no vectorized kernel, with NaN or infinity as an axis' maximum.

    The elements minus the maximum are NaN for one of them and minus infinity for others, which ONNX Runtime adds up by position.
    """
    return inputs[0].dtype == np.float64 and bool((np.isnan(inputs[0]) | (inputs[0] == np.inf)).any())


def _floating(x: Any) -> bool:
    return isinstance(x, np.ndarray) and (x.dtype.kind == "f" or x.dtype == ml_dtypes.bfloat16)


def _extreme(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    """An element so large that products, powers or sums overflow."""

    def overflows(x: Any) -> bool:
        return bool((~np.isfinite(x) | (np.abs(x.astype(float)) > np.sqrt(float(ml_dtypes.finfo(x.dtype).max)))).any())

    return any(_floating(x) and overflows(x) for x in inputs)


def _empty(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    return not inputs[0].size


def _same_pads(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    return attrs.get("auto_pad", b"").startswith(b"SAME")


def _align_corners(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    return attrs.get("coordinate_transformation_mode") == b"align_corners"


def _nearest(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    return attrs.get("mode", b"nearest" if "nearest_mode" in attrs or "axes" in attrs else b"linear") == b"nearest"


def _float8_e5m2_input(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    return str(inputs[0].dtype) == "float8_e5m2"


def _bool_input(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    return inputs[0].dtype == np.bool_


def _large_integers(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    """Integers whose sum or product may overflow, or that float64 cannot represent."""
    return inputs[0].dtype.kind in "iu" and float(np.prod(np.abs(inputs[0].astype(float)) + 1)) >= 2**31


def _overflowing_product(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    """A product whose partial products overflow in some order of evaluation."""
    return _floating(inputs[0]) and float(np.abs(np.log2(np.abs(inputs[0].astype(float)) + 1e-300)).sum()) > 120


def _subnormal(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    """A subnormal element."""
    return any(_floating(x) and ((x != 0) & (np.abs(x) < ml_dtypes.finfo(x.dtype).tiny)).any() for x in inputs)


def _beyond_float32_integers(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    """Integers that float32 cannot represent exactly."""
    return inputs[0].dtype.kind in "iu" and bool((np.abs(inputs[0].astype(float)) > 2**24).any())


def _string_reductions(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    return inputs[0].dtype == object and attrs.get("reduction", b"none") != b"none"


def _floor_in_subgraph(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    """A subgraph with Floor, which amplifies rounding errors of its input."""
    return any(n.op_type == "Floor" for g in attrs.values() if hasattr(g, "node") for n in _all_nodes(g))


def _all_nodes(graph: Any) -> Any:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            yield from _all_nodes(attribute.g)


def _integer_input(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    return isinstance(inputs[0], np.ndarray) and inputs[0].dtype.kind in "iu"


def _string_matrix(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    return bool(inputs[0].dtype == object and inputs[0].ndim > 1)


def _policy_with_negative_axes(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    return "keep_aspect_ratio_policy" in attrs and any(a < 0 for a in attrs.get("axes", ()))


def _crop_of_same_size(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    return attrs.get("coordinate_transformation_mode") == b"tf_crop_and_resize" and inputs[0].shape == outputs[0].shape


def _axis_of_size_one(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    return attrs.get("align_corners") == 1 and 1 in inputs[1][2:]


def _clipped_cell(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    """A cell that exceeds `clip`: the last one, or perhaps the one of an earlier step, which is no output."""
    steps = inputs[0].shape[1 if attrs.get("layout") else 0]
    return "clip" in attrs and (steps > 1 or _largest(outputs[2]) > attrs["clip"])


def _overflowed_state(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    """A state that overflowed."""
    return not all(np.isfinite(o.astype(float)).all() for o in outputs)


def _softplus_of_large(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    """ONNX Runtime's Softplus of recurrent layers is log(1 + exp(x)), which overflows above the logarithm of the largest float32.

    Gates are bounded by the sums of weights times inputs and states; cells and states are known as far as they are outputs.
    """
    x, w, r, *others = inputs
    state = max(map(_largest, [*others, *outputs]), default=0.0)
    gate = _largest(x) * np.abs(w.astype(float)).sum(-1).max() + state * np.abs(r.astype(float)).sum(-1).max()
    peephole = max(map(_largest, others), default=0.0) * state
    largest = max(gate + 2 * state + peephole, state)
    return b"Softplus" in attrs.get("activations", ()) and bool(largest > np.log(np.finfo(np.float32).max))


def _largest(x: Any) -> float:
    return float(np.abs(x.astype(float)).max(initial=0))


def _half_precision(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    """16-bit states, which are rounded in every iteration."""
    return inputs[0].dtype.itemsize == 2


def _one_causal_query(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    return attrs.get("is_causal") == 1 and inputs[0].shape[-2] == 1 < inputs[1].shape[-2]


def _cancelling(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    """Terms that cancel each other."""
    return bool(np.abs(inputs[0].astype(float)).max(initial=0) > 0 and any((o < -8).any() for o in outputs))


def _cancelled_loss(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    """A sum of losses that is as small as the rounding of its terms."""
    terms = np.abs(inputs[0].astype(float)).sum()
    return any(np.abs(np.asarray(o, float)).min(initial=np.inf) <= 2.0**-22 * terms for o in outputs)


def _large_negative(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    return bool((inputs[0].astype(float) < -4).any())


def _point_on_border(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    """A region with a point on the first or last element up to the rounding of float32."""
    if attrs.get("coordinate_transformation_mode") != b"tf_crop_and_resize" or not outputs:
        return False
    roi = next(np.asarray(v, np.float64) for v in inputs[1:] if v is not None and v.size == 2 * inputs[0].ndim)
    for length, n, begin, end in zip(inputs[0].shape, outputs[0].shape, roi, roi[len(roi) // 2 :], strict=False):
        points = begin * (length - 1) + np.arange(n) * (end - begin) * (length - 1) / max(1, n - 1)
        if (begin, end) != (0, 1) and (np.minimum(np.abs(points), np.abs(points - length + 1)) < 1e-5 * length).any():
            return True
    return False


def _empty_string(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    """An empty string that is split at a delimiter, not at whitespace."""
    return bool(attrs.get("delimiter")) and bool((inputs[0] == "").any())


def _mask_of_attribute_ratio(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    """A mask before opset 12, in which the ratio became an input; the result itself is the input."""
    return len(inputs) == 1 and len(outputs) == 2 and bool(outputs[1].all()) and not differs(outputs[0], inputs[0], "Dropout")


@cache
def _products_saturate() -> bool:
    """Whether this processor's products of uint8 and int8 saturate sums of two at 16 bits: 2 x 255 x 127 is above 32,767."""
    shapes = {"a": (TensorProto.UINT8, [1, 8]), "b": (TensorProto.INT8, [8, 1]), "y": (TensorProto.INT32, [1, 1])}
    a, b, y = (helper.make_tensor_value_info(name, *shape) for name, shape in shapes.items())
    graph = helper.make_graph([helper.make_node("MatMulInteger", ["a", "b"], ["y"])], "g", [a, b], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    [found] = session(model).run(None, {"a": np.full((1, 8), 255, np.uint8), "b": np.full((8, 1), 127, np.int8)})
    return bool(found[0, 0] != 8 * 255 * 127)


def _large_int8(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    """An int8 operand with more than 7 bits, on a processor without exact products."""
    return _products_saturate() and any(x.dtype == np.int8 and x.size and (x.min() < -64 or x.max() > 63) for x in inputs)


def _beyond_small_integers(attrs: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> bool:
    """A floating-point number out of the range of the integers of 2 or 4 bits that it becomes."""
    if not _floating(inputs[0]) or not outputs or str(outputs[0].dtype) not in ("int2", "uint2", "int4", "uint4"):
        return False
    limits = ml_dtypes.iinfo(outputs[0].dtype)
    x = np.trunc(inputs[0].astype(np.float64))
    return bool((~np.isfinite(x) | (x < int(limits.min)) | (x > int(limits.max))).any())


REDUCTIONS = {f"Reduce{n}" for n in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp")}

# (checker, operators, predicate, row of the table)
ROWS: list[tuple[str, set[str], Predicate, str]] = [
    ("ort", {"Resize"}, _policy_with_negative_axes, "Resize: a policy and axes from the end"),
    ("ort", {"Resize"}, _align_corners, "Resize: a fraction of a length"),
    ("ort", {"Resize"}, _nearest, "Resize: a point between two"),
    ("ort", {"Resize", "GridSample"}, _integer_input, "Resize, GridSample: integers"),
    ("decomposition", {"Resize", "GridSample"}, _integer_input, "Resize, GridSample: integers"),
    ("ort", {"Resize"}, _crop_of_same_size, "Resize: a region of the same size"),
    ("ort", {"Resize"}, _point_on_border, "Resize: a point on the border"),
    ("ort", {"AffineGrid"}, _axis_of_size_one, "AffineGrid: an axis of size 1"),
    ("decomposition", {"Resize"}, _nearest, "Resize: a point between two"),
    ("ort", {"ReduceMax", "ReduceMin"}, _nan, "Reductions of NaN"),
    ("ort", {"ReduceLogSumExp"}, _nan_and_infinity, "Reductions of NaN"),
    ("ort", {"LogSoftmax"}, _no_finite_maximum, "Reductions of NaN"),
    ("ort", {"ScatterElements", "ScatterND"}, _nan_in_a_maximum_or_minimum, "The order of NaN"),
    ("ort", {"Clip"}, _nan_bound, "The order of NaN"),
    ("ort", {"Unique"}, _nan, "The order of NaN"),  # a tree of elements, in which NaN is equal to every other one
    ("ort", {"MaxPool", "GlobalMaxPool"}, _nan, "The maximum of a window with NaN"),
    ("ort", {"Hardmax", "ArgMax", "ArgMin", "TopK"}, _nan, "The order of NaN"),  # the largest element by comparisons
    ("ort", {"Sign"}, _16_bit_nan, "The order of NaN"),
    ("decomposition", {"Sign"}, _nan, "The order of NaN"),  # neither larger nor smaller than 0, which gives 0
    ("decomposition", {"Unique"}, _several_nan, "The order of NaN"),
    ("decomposition", {"Hardmax"}, _empty, "Reductions of empty axes"),
    ("ort", {"DynamicQuantizeLinear", "QuantizeLinear"}, _extreme, "Integers from NaN"),
    ("ort", {"DynamicQuantizeLinear"}, _subnormal, "Subnormal numbers"),
    ("ort", {"Clip"}, _extreme, "Clip: an omitted bound"),
    ("ort", {"StringSplit"}, _empty_string, "StringSplit: the empty string"),
    ("ort", {"Cast"}, _bool_input, "Cast: bool as string"),
    ("ort", {"IsInf"}, _float8_e5m2_input, "IsInf of float8e5m2"),
    ("ort", {"Cast", "CastLike"}, _beyond_small_integers, "Integers from NaN"),
    ("ort", {"MatMulInteger", "QLinearMatMul", "ConvInteger", "QLinearConv"}, _large_int8, "Products of uint8 and int8"),
    ("ort", {"Mod"}, _large_integers, "Integers out of range"),
    ("ort", REDUCTIONS, _large_integers, "Integers out of range"),
    ("ort", REDUCTIONS, _empty, "Reductions of empty axes"),
    ("ort", {"ReduceProd", "ReduceL2", "ReduceSumSquare"}, _extreme, "Squares and products out of range"),
    ("ort", {"Normalizer", "LpNormalization"}, _extreme, "Squares and products out of range"),
    ("ort", {"ReduceLogSum", "ReduceLogSumExp", "Normalizer"}, _integer_input, "Integers out of range"),
    ("ort", {"Gather"}, _string_matrix, "Gather: rows of strings"),
    ("decomposition", {"CumProd"}, _extreme, "Squares and products out of range"),
    ("ort", {"ReduceProd"}, _overflowing_product, "Squares and products out of range"),
    ("ort", {"MatMul", "Gemm"}, _empty, "Products of empty axes"),
    ("ort", {"MaxPool", "LpPool", "AveragePool", "ConvTranspose"}, _same_pads, "Auto pads: the size of the result"),
    ("ort", {"GridSample"}, _nearest, "GridSample: rounding and folding"),
    ("ort", {"Elu", "Celu", "Selu"}, _subnormal, "Subnormal numbers"),
    ("ort", {"LSTM"}, _clipped_cell, "LSTM: a clip of the cell"),
    ("ort", {"Shrink"}, _beyond_float32_integers, "Integers out of range"),
    ("ort", {"ScatterElements", "ScatterND"}, _string_reductions, "Sums of strings"),
    ("float64", {"LSTM", "GRU", "RNN"}, _overflowed_state, "Squares and products out of range"),
    ("ort", {"LSTM", "GRU", "RNN"}, _overflowed_state, "Squares and products out of range"),
    ("ort", {"LSTM", "GRU", "RNN"}, _softplus_of_large, "Squares and products out of range"),
    ("decomposition", {"LSTM", "GRU", "RNN"}, _half_precision, "A step after a rounding"),
    ("ort", {"ReduceL2"}, _subnormal, "Subnormal numbers"),
    ("ort", {"Attention"}, _one_causal_query, "Attention: one query"),
    ("ort", {"Dropout"}, _mask_of_attribute_ratio, "Dropout: the mask"),
    *((checker, {"ReduceLogSum"}, _cancelling, "A step after a rounding") for checker in ("ort", "float64", "decomposition")),
    ("ort", {"NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"}, _cancelled_loss, "A step after a rounding"),
    *(
        (checker, {"Gelu"}, _large_negative, "A step after a rounding")
        for checker in ("ort", "float64", "decomposition", "plan", "second run", "third run")  # kernels and rules, too
    ),
    ("decomposition", REDUCTIONS, _large_integers, "Integers out of range"),
    ("float64", {"Loop", "Scan", "If"}, _floor_in_subgraph, "A step after a rounding"),
    ("decomposition", {"Loop", "Scan", "If"}, _floor_in_subgraph, "A step after a rounding"),
    ("ort", {"Loop", "Scan", "If"}, _floor_in_subgraph, "A step after a rounding"),
    ("decomposition", {"Acosh", "Asinh", "Cosh", "Sinh", "Celu", "Softplus"}, _extreme, "Squares and products out of range"),
]


def reason(disagreement: Disagreement, graph: Graph) -> str:
    """The row of the table that explains a disagreement, "" if none does."""
    attrs = {a.name: helper.get_attribute_value(a) for a in disagreement.node.attribute}
    inputs = [graph.values[i] for i in disagreement.node.input if i]
    outputs = [graph.values[o] for o in disagreement.node.output if o in graph.values]
    for checker, operators, predicate, row in ROWS:
        if checker == disagreement.checker and disagreement.node.op_type in operators and predicate(attrs, inputs, outputs):
            return row
    return ""
