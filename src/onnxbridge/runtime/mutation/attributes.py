"""Faults of attributes: another axis, shifted padding, another epsilon, another mode. None changes the shape of a result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.runtime.mutation.fault import Array, AttributeChanged, Change, ConstantChanged
from onnxbridge.runtime.mutation.node_attributes import attribute_of
from onnxbridge.runtime.mutation.weights import EPSILON_SCALE

Found = tuple[str, str, Change]

_AXES: Mapping[str, int] = {"Softmax": -1, "LogSoftmax": -1, "Hardmax": -1, "LpNormalization": -1}
"""Operators whose result has the same shape along any axis, with the default of `axis`."""
_ANY_SIZE: Mapping[str, int] = {"Gather": 0, "ArgMax": 0, "ArgMin": 0}
"""Operators that remove an axis, which is only changed for another of the same size."""
_NORMALIZATIONS = frozenset({
    "BatchNormalization", "LayerNormalization", "InstanceNormalization", "GroupNormalization", "RMSNormalization",
    "SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "SimplifiedLayerNormalization",
})  # fmt: skip
_POOLS = frozenset({"MaxPool", "AveragePool", "LpPool"})
_PADDED = frozenset({"Conv", "ConvTranspose", "ConvInteger", "QLinearConv"}) | _POOLS

_FLAG = {0: 1, 1: 0}
_LINEAR = {"linear": "nearest", "nearest": "linear", "cubic": "linear"}
_MODES: Mapping[str, Mapping[str, tuple[Any, Mapping[Any, Any]]]] = {
    "Resize": {
        "mode": ("nearest", _LINEAR),
        "coordinate_transformation_mode": ("half_pixel", {
            "half_pixel": "asymmetric", "half_pixel_symmetric": "asymmetric", "pytorch_half_pixel": "asymmetric",
            "asymmetric": "half_pixel", "align_corners": "half_pixel",
        }),
        "nearest_mode": ("round_prefer_floor", {
            "round_prefer_floor": "floor", "round_prefer_ceil": "floor", "floor": "ceil", "ceil": "floor",
        }),
    },
    "Gelu": {"approximate": ("none", {"none": "tanh", "tanh": "none"})},
    "Pad": {"mode": ("constant", {"constant": "edge", "edge": "constant", "reflect": "edge", "wrap": "edge"})},
    "GridSample": {
        "mode": ("linear", _LINEAR), "align_corners": (0, _FLAG),
        "padding_mode": ("zeros", {"zeros": "border", "border": "zeros", "reflection": "border"}),
    },
    "AffineGrid": {"align_corners": (0, _FLAG)},
    "DepthToSpace": {"mode": ("DCR", {"DCR": "CRD", "CRD": "DCR"})},
    "RoiAlign": {"mode": ("avg", {"avg": "max", "max": "avg"})},
    "TopK": {"largest": (1, _FLAG)},
    "CumSum": {"exclusive": (0, _FLAG), "reverse": (0, _FLAG)},
    "Attention": {"is_causal": (0, _FLAG)},
    "RotaryEmbedding": {"interleaved": (0, _FLAG)},
    "Trilu": {"upper": (1, _FLAG)},
    "AveragePool": {"count_include_pad": (0, _FLAG)},
    "GRU": {"linear_before_reset": (0, _FLAG), "direction": ("forward", {"forward": "reverse", "reverse": "forward"})},
    **dict.fromkeys(("LSTM", "RNN"), {"direction": ("forward", {"forward": "reverse", "reverse": "forward"})}),
}  # fmt: skip
"""By operator and attribute, the default and what each value is changed to."""


def faults_of_attributes(node: ir.Node) -> Iterator[Found]:
    """The kind, the text and the change of each fault of a node's attributes, and of inputs that are attributes by nature."""
    yield from _axis_faults(node)
    yield from _pads_faults(node)
    if node.op_type in _NORMALIZATIONS:
        old = float(attribute_of(node, "epsilon", 1e-5))
        if old:
            new = EPSILON_SCALE * old
            yield "epsilon", f"epsilon {new:.3g} in place of {old:.3g}", AttributeChanged("epsilon", new)
    yield from _mode_faults(node)


def _axis_faults(node: ir.Node) -> Iterator[Found]:
    data = node.inputs[0] if node.inputs else None
    if data is None or data.shape is None or not len(data.shape):
        return
    rank, name = len(data.shape), node.op_type
    if name in _AXES or name in _ANY_SIZE:
        old = int(attribute_of(node, "axis", _AXES.get(name, _ANY_SIZE.get(name)))) % rank
        new = next((a for a in _others(old, rank) if name in _AXES or _same_size(data.shape, a, old)), None)
        if new is not None and (name in _AXES or _removes_axis(node)):
            yield "axis", f"axis {new} in place of {old}", AttributeChanged("axis", new)
    elif name == "Transpose":
        perm = list(attribute_of(node, "perm", tuple(reversed(range(rank)))))
        pairs = [(i, j) for i in range(rank) for j in range(i) if _same_size(data.shape, perm[i], perm[j])]
        if pairs:
            i, j = pairs[0]
            new_perm = perm.copy()
            new_perm[i], new_perm[j] = perm[j], perm[i]
            yield "axis", f"perm {new_perm} in place of {perm}", AttributeChanged("perm", tuple(new_perm))
    elif name == "CumSum" and rank > 1 and len(node.inputs) > 1 and _is_constant(node.inputs[1]):
        yield "axis", "the next axis", ConstantChanged(1, partial(_next_axis, rank=rank))


def _others(axis: int, rank: int) -> list[int]:
    """The other axes, nearest first."""
    return sorted((a for a in range(rank) if a != axis), key=lambda a: (abs(a - axis), a))


def _same_size(shape: ir.Shape | None, a: int, b: int) -> bool:
    """Whether two axes surely have the same size, larger than 1."""
    if shape is None or max(a, b) >= len(shape):
        return False
    first, second = shape[a], shape[b]
    if isinstance(first, int) and isinstance(second, int):
        return first == second > 1
    return not isinstance(first, int) and not isinstance(second, int) and first.value is not None and first == second


def _removes_axis(node: ir.Node) -> bool:
    """Whether the result does not have the axis, so that its shape is the same without another axis of the same size."""
    if node.op_type != "Gather":
        return not attribute_of(node, "keepdims", 1)
    indices = node.inputs[1]
    return indices is not None and indices.shape is not None and len(indices.shape) == 0


def _next_axis(axis: Array, rank: int) -> Array:
    return np.asarray((axis + 1) % rank, axis.dtype)


def _is_constant(value: ir.Value | None) -> bool:
    return value is not None and value.const_value is not None


def _pads_faults(node: ir.Node) -> Iterator[Found]:
    if node.op_type == "Pad" and len(node.inputs) > 1 and _is_constant(node.inputs[1]):
        value = node.inputs[1]
        assert value is not None and value.const_value is not None
        if value.const_value.dtype == ir.DataType.INT64 and _shifted(np.asarray(value.const_value.numpy()).tolist()) is not None:
            yield "pads", "a pad moved from one end to the other", ConstantChanged(1, _shifted_array)
    if node.op_type not in _PADDED:
        return
    auto = attribute_of(node, "auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        other = "SAME_LOWER" if auto == "SAME_UPPER" else "SAME_UPPER"
        yield "pads", f"auto_pad {other} in place of {auto}", AttributeChanged("auto_pad", other)
    elif old := list(attribute_of(node, "pads", ())):
        kernel = attribute_of(node, "kernel_shape", ()) if node.op_type in _POOLS else ()
        new = _shifted(old, kernel)
        if new is not None:
            yield "pads", f"pads {new} in place of {old}", AttributeChanged("pads", tuple(new))


def _shifted(pads: list[int], kernel: Any = ()) -> list[int] | None:
    """Padding with one moved from the beginning to the end, or back, along the first axis where that is possible; a pool is
    padded by less than its kernel."""
    half = len(pads) // 2
    for axis in range(half):
        for source, target in ((axis, axis + half), (axis + half, axis)):
            if pads[source] > 0 and pads[target] >= 0 and not (kernel and pads[target] + 1 >= kernel[axis]):
                found = pads.copy()
                found[source], found[target] = pads[source] - 1, pads[target] + 1
                return found
    return None


def _shifted_array(pads: Array) -> Array:
    return np.array(_shifted(pads.tolist()), pads.dtype)


def _mode_faults(node: ir.Node) -> Iterator[Found]:
    for name, (default, changes) in _MODES.get(node.op_type, {}).items():
        old = attribute_of(node, name, default)
        if old not in changes or _has_no_effect(node, name):
            continue
        yield "mode", f"{name} {changes[old]} in place of {old}", AttributeChanged(name, changes[old])


def _has_no_effect(node: ir.Node, name: str) -> bool:
    """Whether the attribute means nothing beside the node's others."""
    if name == "nearest_mode":
        return bool(attribute_of(node, "mode", "nearest") != "nearest")
    if name == "count_include_pad":
        return not any(attribute_of(node, "pads", ())) and attribute_of(node, "auto_pad", "NOTSET") in ("NOTSET", "VALID")
    return False
