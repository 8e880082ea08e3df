"""How a graph uses an input, also through operators that only move, cast or select its elements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir

from onnxbridge.hub.ir.values import ROWS, SORTED

# By operator, the inputs whose elements it passes on unchanged; None for all inputs.
_PASSING_INPUTS: Mapping[str, tuple[int, ...] | None] = {
    **dict.fromkeys([
        "Cast", "CastLike", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Flatten", "Expand", "Slice", "Split",
        "TopK", "Gather", "GatherElements", "GatherND", "Tile", "Pad", "Trilu", "DepthToSpace", "SpaceToDepth",
        "StringNormalizer", "StringSplit", "Compress",
    ], (0,)),
    "Concat": None, "Where": (1, 2), "Max": None, "Min": None,
}  # fmt: skip
Sizes = Mapping[str, int]


def uses(value: ir.Value) -> Iterator[tuple[ir.Node, int]]:
    """The nodes that read an input, inside loops too, each with the index of its input."""
    todo, seen = [value], set()
    while todo:
        v = todo.pop()
        if id(v) in seen:
            continue
        seen.add(id(v))
        for node, i in v.uses():
            todo += _passed_on_to(node, i)
            yield node, i


def must_be_sorted(value: ir.Value) -> bool:
    """Whether the graph needs the input sorted in ascending order."""
    return any(v.meta.get(SORTED) for v in _copies(value))


def row_partition(value: ir.Value, sizes: Sizes) -> tuple[str, int] | None:
    """How the graph partitions elements into rows by this input, "splits" or "lengths", and their number; None for others."""
    for v in _copies(value):
        if ROWS in v.meta:
            kind, values, fewer = v.meta[ROWS]
            size = _size_at(values, 0, sizes)
            return None if size is None else (kind, max(0, size - fewer))
    return None


def _copies(value: ir.Value) -> Iterator[ir.Value]:
    """An input, and the values that contain its elements unchanged."""
    yield value
    yield from (v for node, i in uses(value) for v in _passed_on_to(node, i))


def _passed_on_to(node: ir.Node, i: int) -> list[ir.Value]:
    """The values that contain elements of the node's input `i` unchanged."""
    if node.op_type in ("Loop", "Scan"):
        body = node.attributes["body"].as_graph()
        return list(body.inputs[i : i + 1]) if node.op_type == "Scan" or i >= 2 else []
    passing = _PASSING_INPUTS.get(node.op_type, ())
    if node.domain not in ("", "ai.onnx") or (passing is not None and i not in passing):
        return []
    return list(node.outputs[: 1 if node.op_type in ("TopK", "StringSplit") else None])


def integer_range(value: ir.Value, sizes: Sizes) -> tuple[int, int, bool]:
    """The range of integers that an input may hold, upper end excluded, and whether it is used as an index.

    Divisors and sizes are 1 or 2; numbers that are quantized, and pixels, have the range of their dtype. All others are 0 or 1,
    which suits masks and counts.
    """
    found = index_or_length_range(value, sizes)
    if found is not None:
        return found
    if value.dtype in _SMALL and any(_is_quantized_or_pixel(value, node, i) for node, i in uses(value)):
        info = ml_dtypes.iinfo(value.dtype.numpy())  # type: ignore[no-untyped-call]  # it has no annotations
        return int(info.min), int(info.max) + 1, False
    low = int(any(i in _AT_LEAST_ONE.get(node.op_type, ()) for node, i in uses(value)))
    return low, low + 2, False


def _is_quantized_or_pixel(value: ir.Value, node: ir.Node, i: int) -> bool:
    """Whether an operator reads numbers that are quantized, or makes floating-point numbers of an image."""
    if node.op_type == "Cast":
        made = node.outputs[0].dtype
        return made is not None and made.is_floating_point() and value.shape is not None and len(value.shape) == 4
    return i in _QUANTIZED.get(node.op_type, ())


def index_or_length_range(value: ir.Value, sizes: Sizes) -> tuple[int, int, bool] | None:
    """The range of an input with indices or sequence lengths, upper end excluded, and whether it is an index; None for others.

    Indices stay within what they index, and lengths within their axis, from 1 on. MXNet has both in floating point.
    """
    found = list(uses(value))
    ends = [size for node, i in found if (size := _indexed(node, i, sizes)) is not None]
    if ends:
        return 0, max(1, min(ends)), True
    lengths = [d for node, i in found if (d := _measured_axis(node, i)) is not None]
    known = [n for d in lengths if (n := _size(d, sizes)) is not None]
    return (1, max(1, min(known, default=1)) + 1, False) if lengths else None


def rounds_down(value: ir.Value) -> bool:
    """Whether the graph makes integers of an input or compares it with positions, so that 3 and 2.999 are far apart."""
    for node, i in uses(value):
        if node.op_type in ("Floor", "Ceil") or (node.op_type in COMPARISONS and position_count(node.inputs[1 - i]) is not None):
            return True
        if node.op_type in ("Cast", "CastLike") and node.outputs[0].dtype is not None and node.outputs[0].dtype.is_integer():
            return True
    return False


def positive(value: ir.Value) -> bool:
    """Whether the graph uses a floating-point input as a scale, a variance or a probability."""
    return any(i in _POSITIVE.get(node.op_type, ()) for node, i in uses(value))


_SMALL = frozenset({
    ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT4, ir.DataType.UINT4, ir.DataType.INT2, ir.DataType.UINT2,
    ir.DataType.INT16, ir.DataType.UINT16,
})  # fmt: skip
# By operator, the inputs that are quantized numbers where their dtype is small.
_QUANTIZED = {
    "DequantizeLinear": (0,), "QLinearConv": (0, 3), "QLinearMatMul": (0, 3), "ConvInteger": (0, 1), "MatMulInteger": (0, 1),
    "MaxPool": (0,), "ReduceMax": (0,), "ReduceMin": (0,),
}  # fmt: skip
COMPARISONS = ("Less", "LessOrEqual", "Greater", "GreaterOrEqual")
_AT_LEAST_ONE = {
    "Div": (1,), "Mod": (1,), "Range": (2,), "Slice": (4,), "TopK": (1,), "Tile": (1,), "OneHot": (1,), "STFT": (1, 3),
    "DFT": (1,), "BlackmanWindow": (0,), "HannWindow": (0,), "HammingWindow": (0,), "ConstantOfShape": (0,), "Expand": (1,),
    "Resize": (3,), "CenterCropPad": (1,), "Split": (1,), "SplitToSequence": (1,),
}  # fmt: skip
_POSITIVE = {
    "QuantizeLinear": (1,), "DequantizeLinear": (1,), "BatchNormalization": (4,), "Resize": (2,), "Upsample": (1,),
    "Dropout": (1,), "NonMaxSuppression": (3,), "Bernoulli": (0,), "QLinearMatMul": (1, 4, 6), "QLinearConv": (1, 4, 6),
    "Range": (2,),
}  # fmt: skip
# By operator: its input with indices, the input that they index, and along which axis.
_INDEXED_INPUTS = {
    "ScatterND": (1, 0, 0), "NegativeLogLikelihoodLoss": (1, 0, 1), "SoftmaxCrossEntropyLoss": (1, 0, 1), "RoiAlign": (2, 0, 0),
    "GatherND": (1, 0, 0), "ArrayFeatureExtractor": (1, 0, -1),
}  # fmt: skip
_ALONG_AXIS = ("Gather", "GatherElements", "ScatterElements", "Scatter")


def _indexed(node: ir.Node, i: int, sizes: Sizes) -> int | None:
    """The size that the node's input `i` indexes; None where it is not an index or the size is unknown."""
    if node.op_type in _ALONG_AXIS and i == 1:
        return _size_at(node.inputs[0], _attribute(node, "axis", 0), sizes)
    if node.op_type in _INDEXED_INPUTS and i == _INDEXED_INPUTS[node.op_type][0]:
        _, data, axis = _INDEXED_INPUTS[node.op_type]
        if node.op_type in ("ScatterND", "GatherND"):  # each element of the last axis indexes an axis of its own
            first = _attribute(node, "batch_dims", 0)
            dims = [_size_at(node.inputs[data], first + k, sizes) for k in range(_indexed_axes(node))]
            return min((d for d in dims if d is not None), default=None)
        return _size_at(node.inputs[data], axis, sizes)
    if node.op_type == "OneHot" and i == 0 and (depth := constant_of(node.inputs[1])) is not None:
        return int(depth.reshape(-1)[0])
    if node.op_type in ("CumSum", "CumProd") and i == 1 and node.inputs[0] is not None and node.inputs[0].shape is not None:
        return len(node.inputs[0].shape)
    return None


def _indexed_axes(node: ir.Node) -> int:
    indices = node.inputs[1]
    last = indices.shape[-1] if indices is not None and indices.shape is not None and len(indices.shape) else 1
    return last if isinstance(last, int) else 1


def _measured_axis(node: ir.Node, i: int) -> int | ir.SymbolicDim | None:
    """The size of the axis along which the node's input `i` gives sequence lengths; None for other inputs.

    Masks of sequences compare lengths with positions 0, 1, 2 and so on.
    """
    if node.op_type in COMPARISONS:
        return position_count(node.inputs[1 - i])
    if node.inputs[0] is None or node.inputs[0].shape is None:
        return None
    if node.op_type in ("LSTM", "GRU", "RNN") and i == 4:
        return node.inputs[0].shape[_attribute(node, "layout", 0)]
    if node.op_type == "ReverseSequence" and i == 1:
        return node.inputs[0].shape[_attribute(node, "time_axis", 0)]
    return None


def _attribute(node: ir.Node, name: str, default: int) -> int:
    return node.attributes[name].as_int() if name in node.attributes else default


def _size_at(value: ir.Value | None, axis: int, sizes: Sizes) -> int | None:
    if value is None or value.shape is None or not -len(value.shape) <= axis < len(value.shape):
        return None
    return _size(value.shape[axis], sizes)


def _size(dim: int | ir.SymbolicDim, sizes: Sizes) -> int | None:
    return dim if isinstance(dim, int) else sizes.get(dim.value or "")


_SAME_ELEMENTS = frozenset(["Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Expand", "Transpose", "Flatten", "Tile"])


def position_count(value: ir.Value | None) -> int | ir.SymbolicDim | None:
    """The number of positions 0, 1, 2 and so on that a value holds, perhaps with another shape or dtype; None for others."""
    value = _first_with_elements(value)
    node = None if value is None else value.producer()
    if value is not None and node is not None and node.op_type == "Range":
        start, step = constant_of(node.inputs[0]), constant_of(node.inputs[2])
        counts = start is not None and step is not None and start.item() == 0 and step.item() == 1
        return value.shape[0] if counts and value.shape is not None else None
    constant = constant_of(value)
    if constant is None or constant.dtype.kind not in "iuf" or constant.size < 2:
        return None
    different = np.unique(constant)
    return different.size if np.array_equal(different, np.arange(different.size)) and different.size > 1 else None


def constant_of(value: ir.Value | None) -> np.ndarray[Any, Any] | None:
    """The constant that a value holds, perhaps with another shape or dtype; None where it is not constant."""
    value = _first_with_elements(value)
    if value is None or value.is_graph_input():
        return None
    if value.const_value is not None:
        return value.const_value.numpy()
    node = value.producer()
    if node is not None and node.op_type == "Constant":
        for attribute in node.attributes.values():
            found = attribute.value
            return np.asarray(found.numpy() if isinstance(found, ir.TensorProtocol) else found)
    return None


def _first_with_elements(value: ir.Value | None) -> ir.Value | None:
    """The value from which operators that only move or cast all elements made this one."""
    while value is not None and value.const_value is None:
        node = value.producer()
        if node is None or node.op_type not in _SAME_ELEMENTS:
            break
        value = node.inputs[0]
    return value
