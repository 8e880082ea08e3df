"""What a graph does with an input, also after operators that only move, cast or select its elements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.ir.values import SORTED

# By operator, the inputs whose elements come out as they are; None for all of them.
_PASSING: Mapping[str, tuple[int, ...] | None] = {
    **dict.fromkeys([
        "Cast", "CastLike", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Flatten", "Expand", "Slice", "Split",
        "TopK", "Gather", "GatherElements", "GatherND", "Tile", "Pad", "Trilu", "DepthToSpace", "SpaceToDepth",
    ], (0,)),
    "Concat": None, "Where": (1, 2), "Max": None, "Min": None,
}  # fmt: skip
Sizes = Mapping[str, int]


def uses(value: ir.Value) -> Iterator[tuple[ir.Node, int]]:
    """The nodes that read an input and as which of their inputs, those inside loops included."""
    todo, seen = [value], set()
    while todo:
        v = todo.pop()
        if id(v) in seen:
            continue
        seen.add(id(v))
        for node, i in v.uses():
            todo += _passed_on(node, i)
            yield node, i


def must_ascend(value: ir.Value) -> bool:
    """Whether what reads an input needs it sorted."""
    if value.meta.get(SORTED):
        return True
    return any(v.meta.get(SORTED) for node, i in uses(value) for v in _passed_on(node, i))


def _passed_on(node: ir.Node, i: int) -> list[ir.Value]:
    """The values that have elements of the node's input `i` as they are."""
    if node.op_type in ("Loop", "Scan"):
        body = node.attributes["body"].as_graph()
        return list(body.inputs[i : i + 1]) if node.op_type == "Scan" or i >= 2 else []
    places = _PASSING.get(node.op_type, ())
    if node.domain not in ("", "ai.onnx") or (places is not None and i not in places):
        return []
    return list(node.outputs[: 1 if node.op_type == "TopK" else None])


def integer_range(value: ir.Value, sizes: Sizes) -> tuple[int, int, bool]:
    """The integers that an input may hold, the upper end excluded, and whether it is used as an index.

    They are within what the graph indexes with it, lengths from 1 on of what it measures, not 0 where it divides by them or
    takes them for sizes, else 0 and 1, which suit masks and counts.
    """
    found = list(uses(value))
    ends = [size for node, i in found if (size := _indexed(node, i, sizes)) is not None]
    if ends:
        return 0, max(1, min(ends)), True
    lengths = [d for node, i in found if (d := _measured(node, i)) is not None]
    if lengths:
        known = [n for d in lengths if (n := _size(d, sizes)) is not None]
        return 1, min(known, default=1) + 1, False
    low = int(any(i in _AT_LEAST_ONE.get(node.op_type, ()) for node, i in found))
    return low, low + 2, False


def positive(value: ir.Value) -> bool:
    """Whether the graph takes a floating-point input for a scale, a variance or a probability."""
    return any(i in _POSITIVE.get(node.op_type, ()) for node, i in uses(value))


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
# Which input an index points into, and along which axis.
_INTO = {
    "ScatterND": (1, 0, 0), "NegativeLogLikelihoodLoss": (1, 0, 1), "SoftmaxCrossEntropyLoss": (1, 0, 1), "RoiAlign": (2, 0, 0),
    "GatherND": (1, 0, 0), "ArrayFeatureExtractor": (1, 0, -1),
}  # fmt: skip
_ALONG_AXIS = ("Gather", "GatherElements", "ScatterElements", "Scatter")


def _indexed(node: ir.Node, i: int, sizes: Sizes) -> int | None:
    """How far the node's input `i` may index; None where it is not an index or the size is not known."""
    if node.op_type in _ALONG_AXIS and i == 1:
        return _size_at(node.inputs[0], _attribute(node, "axis", 0), sizes)
    if node.op_type in _INTO and i == _INTO[node.op_type][0]:
        _, data, axis = _INTO[node.op_type]
        if node.op_type in ("ScatterND", "GatherND"):  # one element after the other indexes another axis
            first = _attribute(node, "batch_dims", 0)
            dims = [_size_at(node.inputs[data], first + k, sizes) for k in range(_indexed_axes(node))]
            return min((d for d in dims if d is not None), default=None)
        return _size_at(node.inputs[data], axis, sizes)
    if node.op_type == "OneHot" and i == 0 and (depth := constant_behind(node.inputs[1])) is not None:
        return int(depth.reshape(-1)[0])
    if node.op_type in ("CumSum", "CumProd") and i == 1 and node.inputs[0] is not None and node.inputs[0].shape is not None:
        return len(node.inputs[0].shape)
    return None


def _indexed_axes(node: ir.Node) -> int:
    indices = node.inputs[1]
    last = indices.shape[-1] if indices is not None and indices.shape is not None and len(indices.shape) else 1
    return last if isinstance(last, int) else 1


def _measured(node: ir.Node, i: int) -> int | ir.SymbolicDim | None:
    """The size of the axis along which the node's input `i` says how long each sequence is; None where it says no length."""
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


def constant_behind(value: ir.Value | None) -> np.ndarray[Any, Any] | None:
    """The constant that a value holds, perhaps in another shape or dtype; None where it is none."""
    while value is not None:
        if value.const_value is not None:
            return None if value.is_graph_input() else value.const_value.numpy()
        node = value.producer()
        if node is not None and node.op_type == "Constant":
            for attribute in node.attributes.values():
                found = attribute.value
                return np.asarray(found.numpy() if isinstance(found, ir.TensorProtocol) else found)
        value = node.inputs[0] if node is not None and node.op_type in _SAME_ELEMENTS else None
    return None
