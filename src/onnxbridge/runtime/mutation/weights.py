"""Faults of weights: one scaled, one element or one channel of it set to zero; and of epsilons that are added as constants."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np
import onnx_ir as ir

from onnxbridge.runtime.mutation.fault import Array, Change, ConstantChanged
from onnxbridge.runtime.mutation.node_attributes import attribute_of

SCALE = 1.1
"""What a scaled weight is multiplied by."""
EPSILON_SCALE = 100
"""What an epsilon is multiplied by: 1e-5 in place of 1e-3 is the usual mistake."""
LARGEST_EPSILON = 1e-2
"""A scalar up to this one that is added is an epsilon."""

_Channels = Mapping[int, int | None]
"""By input that may be a weight, the axis of its output channels; None where there is none."""

_ELEMENTWISE: _Channels = {0: None, 1: None}
_WEIGHTS: Mapping[str, _Channels] = {
    "Conv": {1: 0, 2: 0}, "ConvTranspose": {1: 1, 2: 0}, "DeformConv": {1: 0, 3: 0}, "MatMul": {0: -2, 1: -1},
    "Gemm": {0: None, 1: -1, 2: None}, "Einsum": {0: -1, 1: -1}, "BatchNormalization": dict.fromkeys(range(1, 5), 0),
    "Gather": {0: -1}, "PRelu": {1: None}, "DequantizeLinear": {1: None}, "QLinearConv": {4: None}, "QLinearMatMul": {4: None},
    **dict.fromkeys(("LSTM", "GRU", "RNN"), {1: 1, 2: 1, 3: None}),
    **dict.fromkeys(("LayerNormalization", "InstanceNormalization", "GroupNormalization"), {1: 0, 2: 0}),
    "RMSNormalization": {1: 0},
    **dict.fromkeys(("Add", "Sub", "Mul", "Div"), _ELEMENTWISE),
    **dict.fromkeys(("Transpose", "Expand", "Cast", "Tile"), {0: None}), "Concat": dict.fromkeys(range(64), None),
}  # fmt: skip

Found = tuple[str, str, Change]


def faults_of_weights(node: ir.Node) -> Iterator[Found]:
    """The kind, the text and the change of each fault of a node's weights."""
    for index, channels in _WEIGHTS.get(node.op_type, {}).items():
        value = node.inputs[index] if index < len(node.inputs) else None
        if value is None or value.const_value is None or not value.const_value.dtype.is_floating_point():
            continue
        if _is_epsilon(node, value):
            yield "epsilon", f"the added {_scalar(value):.3g} times {EPSILON_SCALE}", ConstantChanged(index, _epsilon)
            continue
        name, size, rank = value.name, value.const_value.size, len(value.const_value.shape)
        if not size:
            continue
        yield "weight scaled", f"{name} times {SCALE}", ConstantChanged(index, _scaled)
        if size == 1 or (node.op_type == "Div" and index == 1):
            continue
        if rank > 1 and channels is not None:
            axis = _channel_axis(node, index, channels)
            text = f"the largest channel of {name} set to zero"
            yield "channel zeroed", text, ConstantChanged(index, partial(_channel_zeroed, axis=axis))
        if node.op_type != "Gather":  # a single element of an embedding says which ids a sample has
            yield "weight zeroed", f"the largest element of {name} set to zero", ConstantChanged(index, _largest_zeroed)


def _channel_axis(node: ir.Node, index: int, axis: int) -> int:
    return 0 if node.op_type == "Gemm" and index == 1 and attribute_of(node, "transB", 0) else axis


def _is_epsilon(node: ir.Node, value: ir.Value) -> bool:
    constant = value.const_value
    if node.op_type != "Add" or constant is None or constant.size != 1:
        return False
    return 0 < _scalar(value) <= LARGEST_EPSILON


def _scalar(value: ir.Value) -> float:
    assert value.const_value is not None
    return float(np.asarray(value.const_value.numpy()).astype(np.float64).reshape(-1)[0])


def _computed(array: Array, compute: Callable[[Array], Array]) -> Array:
    """The array computed in float32 at least, since narrower dtypes lack functions."""
    with np.errstate(over="ignore"):
        return compute(array.astype(np.float32) if array.dtype.itemsize < 4 else array).astype(array.dtype, copy=False)


def _scaled(array: Array) -> Array:
    return _computed(array, lambda a: a * a.dtype.type(SCALE))


def _epsilon(array: Array) -> Array:
    return _computed(array, lambda a: a * a.dtype.type(EPSILON_SCALE))


def _largest_zeroed(array: Array) -> Array:
    def zeroed(a: Array) -> Array:
        high, low = int(a.argmax()), int(a.argmin())  # without a copy of absolute values, which may take gigabytes
        a = a.copy()
        a.flat[high if a.flat[high] >= -a.flat[low] else low] = 0
        return a

    return _computed(array, zeroed)


def _channel_zeroed(array: Array, axis: int) -> Array:
    def zeroed(a: Array) -> Array:
        channels = np.moveaxis(a.copy(), axis, 0)
        norms = np.abs(channels).reshape(len(channels), -1).sum(axis=1)
        channels[int(norms.argmax())] = 0
        return np.moveaxis(channels, 0, axis)

    return _computed(array, zeroed)
