"""Dilation and windowed reductions along any axes, as TensorFlow Lite's and StableHLO's operators have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow import sizes
from onnxbridge.frontends.tensorflow.ops import rearrange
from onnxbridge.frontends.tensorflow.ops import reduction as tf
from onnxbridge.hub.decompositions.standard.dynamic_axis import arange
from onnxbridge.hub.ir import fold
from onnxbridge.hub.ir.values import cast, rank

D = ir.DataType
# by function, the reduction of elements, and the operator that combines its result with the initial value
_FUNCTIONS: dict[str, tuple[Any, str]] = {
    "ADD": ("ReduceSum", "Add"), "MUL": ("ReduceProd", "Mul"), "MAXIMUM": ("ReduceMax", "Max"), "MINIMUM": ("ReduceMin", "Min"),
    "ALL": (tf.all_, "And"), "ANY": (tf.any_, "Or"),
}  # fmt: skip
_NEUTRAL = {"ADD": 0, "MUL": 1, "ALL": True, "ANY": False}


def dilated(op: Any, x: Any, dilations: Sequence[int], value: Any) -> Any:
    """`x` with d - 1 copies of `value`, a scalar, between neighbours along an axis with dilation d."""
    axes = [a for a, d in enumerate(dilations) if d != 1]
    if not axes:
        return x
    if min(dilations) < 1:
        raise Unsupported(f"the dilations {list(dilations)}", "get the file again")
    # each element gets an axis of its own for what follows it; the copies after the last element are cut off
    whole = [sizes.multiply(op, op.size(x, a), d) for a, d in enumerate(dilations)]
    split = op.Unsqueeze(x, [a + i + 1 for i, a in enumerate(axes)])
    after = np.zeros((len(dilations) + len(axes), 2), np.int64)
    for i, a in enumerate(axes):
        after[a + i + 1, 1] = dilations[a] - 1
    joined = op.reshape(rearrange.pad_v2(op, split, after, op.Reshape(value, [])), whole)
    return op.Slice(joined, [0] * len(axes), [1 - dilations[a] for a in axes], axes)


def padded(op: Any, x: Any, pads: Sequence[tuple[int, int]], value: Any) -> Any:
    """`x` with `value` before and after each axis; negative pads remove elements."""
    cut = [a for a, p in enumerate(pads) if min(p) < 0]
    if cut:
        starts = [max(-pads[a][0], 0) for a in cut]
        x = op.Slice(x, starts, [min(pads[a][1], 0) or sizes.MOST for a in cut], cut)
    more = np.maximum(np.array(pads, np.int64).reshape(-1, 2), 0)
    return rearrange.pad_v2(op, x, more, op.Reshape(value, [])) if more.any() else x


def reduced(
    op: Any, x: Any, initial: Any, function: str, window: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> Any:
    """The reduction of each window, which starts with the initial value.

    Integers have the type of `x` and wrap around, as the kernels' do.
    """
    if function not in _FUNCTIONS:
        raise Unsupported(f"the reduction {function} of windows")
    if not len(window) == len(strides) == len(dilations) == rank(x) or min(*window, *strides, *dilations, 1) < 1:
        raise Unsupported(f"windows {list(window)}, strides {list(strides)}, dilations {list(dilations)}", "get the file again")
    dtype, (reduce, combine) = x.dtype, _FUNCTIONS[function]
    if dtype.is_integer() and dtype != D.UINT64:  # runtimes have kernels for few integers
        x, initial = (cast(op, v, D.INT64) for v in (x, initial))
    for axis, (size, stride, dilation) in enumerate(zip(window, strides, dilations, strict=True)):
        if size == 1 and stride == 1:
            continue
        if size == 1:
            x = op.Slice(x, [0], [sizes.MOST], [axis], [stride])
            continue
        apart = op.Gather(x, _positions(op, op.size(x, axis), size, stride, dilation), axis=axis)
        x = op.call(reduce, apart, [axis + 1], keepdims=0) if isinstance(reduce, str) else reduce(op, apart, [axis + 1])
    start = fold.constant_array(initial) if isinstance(initial, ir.Value) else np.asarray(initial)
    if start is None or function not in _NEUTRAL or start.reshape(-1)[0] != _NEUTRAL[function]:
        x = op.call(combine, x, op.Reshape(initial, []))
    return cast(op, x, dtype)


def _positions(op: Any, count: Any, size: int, stride: int, dilation: int) -> Any:
    """The elements of each window along an axis of `count` elements, [windows, size]."""
    extent = (size - 1) * dilation + 1
    within = np.arange(size) * dilation
    if isinstance(count, int):
        starts = np.arange(max((count - extent) // stride + 1, 0)) * stride
        return starts[:, None] + within
    windows = sizes.maximum(op, sizes.divide(op, sizes.subtract(op, count, extent - stride), stride), 0)
    return op.Add(op.Unsqueeze(op.Mul(arange(op, windows), np.int64(stride)), [1]), within)
