"""Pooling: `ceil_mode` says with a flag what padding says with numbers, and its last window moved with opset 22."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.adapters import down, up
from onnxbridge.hub.adapters.shapes import dtype_of, fixed_shape
from onnxbridge.rules import Outputs


def _end_pads(X, kernel, strides, pads, dilations):
    """The paddings at the end with which rounding down gives what rounding up gave; None where the sizes are not known."""
    if X.shape is None or not all(isinstance(d, int) for d in list(X.shape)[2:]):
        return None
    rank = len(kernel)
    begin, end = list(pads or [0] * 2 * rank)[:rank], list(pads or [0] * 2 * rank)[rank:]
    for i, size in enumerate(list(X.shape)[2:]):
        stride, reach = (strides or [1] * rank)[i], (kernel[i] - 1) * (dilations or [1] * rank)[i] + 1
        free = size + begin[i] + end[i] - reach
        windows = -(-free // stride) + 1
        if (windows - 1) * stride >= size + begin[i]:
            windows -= 1  # a window must begin in the data or in the padding before it
        if windows != free // stride + 1:
            end[i] += (windows - 1) * stride - free
        if not 0 <= end[i] < reach:
            return None
    return begin + end


def _windows(X, kernel, strides, pads, dilations, ceil_mode):
    """For each spatial axis which elements each window looks at, and which of these lie in the data or its padding."""
    rank = len(kernel)
    strides, dilations, pads = strides or [1] * rank, dilations or [1] * rank, list(pads or [0] * 2 * rank)
    for i, size in enumerate(fixed_shape(X)[2:]):
        begin, end, reach = pads[i], pads[i + rank], (kernel[i] - 1) * dilations[i] + 1
        free = size + begin + end - reach
        count = (-(-free // strides[i]) if ceil_mode else free // strides[i]) + 1
        if ceil_mode and (count - 1) * strides[i] >= size + begin:
            count -= 1
        places = np.arange(count)[:, None] * strides[i] + np.arange(kernel[i]) * dilations[i] - begin
        yield places, (places >= 0) & (places < size), (places >= -begin) & (places < size + end)


def _gathered(op, X, windows, outside, reduce):
    """Axis by axis, the elements under each window put side by side and reduced."""
    for i, (places, inside, _) in enumerate(windows):
        axis, size = i + 2, X.shape[i + 2]
        if not inside.all():
            slab = [*(int(d) for d in X.shape[:axis]), 1, *(int(d) for d in X.shape[axis + 1 :])]
            X = op.Concat(X, op.constant(np.full(slab, outside), dtype=dtype_of(X)), axis=axis)
        X = reduce(op.Gather(X, np.where(inside, places, size), axis=axis), axis + 1)
    return X


def _spread_average(op, X, kernel, strides, pads, dilations, ceil_mode, count_include_pad):
    windows = list(_windows(X, kernel, strides, pads, dilations, ceil_mode))
    total = _gathered(op, X, windows, 0.0, lambda v, axis: op.ReduceSum(v, [axis], keepdims=0))
    counts = np.ones(())
    for _, inside, padded in windows:
        counts = np.multiply.outer(counts, (padded if count_include_pad else inside).sum(1))
    return op.Div(total, op.constant(counts, dtype=dtype_of(X)))


@down("AveragePool", to=18)
def average_pool_dilated(
    op, X, *, auto_pad="NOTSET", ceil_mode=0, count_include_pad=0, dilations=None, kernel_shape, pads=None, strides=None
):
    if dilations is None or all(d == 1 for d in dilations):
        return op.AveragePool(
            X, auto_pad=auto_pad, ceil_mode=ceil_mode, count_include_pad=count_include_pad, kernel_shape=kernel_shape, pads=pads,
            strides=strides,
        )  # fmt: skip
    if auto_pad == "VALID":
        pads = None
    elif auto_pad != "NOTSET":
        raise Unsupported(f"opset 19 added dilations, here with {auto_pad=!s}")
    return _spread_average(op, X, kernel_shape, strides, pads, dilations, ceil_mode, count_include_pad)


def _rounding_down(name, version):
    def pool(
        op, X, *, ceil_mode=0, kernel_shape, strides=None, pads=None, dilations=None, auto_pad="NOTSET", outputs: Outputs, **more
    ):  # fmt: skip
        if dilations is not None and all(d == 1 for d in dilations):
            dilations = None
        if ceil_mode and auto_pad == "NOTSET":
            counted = more.get("count_include_pad", 0)
            padded = _end_pads(X, kernel_shape, strides, pads, dilations)
            # padding that is counted must stay what it is
            if padded is not None and (not counted or padded == list(pads or [0] * 2 * len(kernel_shape))):
                pads, ceil_mode = padded, 0
        if ceil_mode and version < 10:
            raise Unsupported("opset 10 added ceil_mode, and no padding says the same here")
        if dilations and version < 10:
            if any(outputs[1:]) or auto_pad != "NOTSET":
                raise Unsupported("opset 10 added dilations")
            windows = _windows(X, kernel_shape, strides, pads, dilations, 0)
            return _gathered(op, X, list(windows), -np.inf, lambda v, axis: op.ReduceMax(v, axes=[axis], keepdims=0))
        count = max((i + 1 for i, used in enumerate(outputs) if used), default=1)
        attrs = {"ceil_mode": ceil_mode or None, "dilations": dilations, "pads": pads, "strides": strides, **more}
        given = {k: v for k, v in attrs.items() if v is not None}
        if auto_pad != "NOTSET":
            given["auto_pad"] = auto_pad
        return op.call(name, X, kernel_shape=kernel_shape, outputs=count, **given)

    return pool


for _name in ("AveragePool", "MaxPool"):
    for _to in (21, 9):
        down(_name, to=_to)(_rounding_down(_name, _to))
down("LpPool", to=21)(_rounding_down("LpPool", 21))


@up("LpPool", to=2)
def lp_pool(op, X, *, auto_pad="NOTSET", kernel_shape=None, p=2.0, pads=None, strides=None):
    kernel = kernel_shape or fixed_shape(X)[2:]
    return op.LpPool(X, auto_pad=auto_pad, kernel_shape=kernel, p=_whole(p), pads=pads, strides=strides)


@up("GlobalLpPool", to=2)
def global_lp_pool(op, X, *, p=2.0):
    return op.GlobalLpPool(X, p=_whole(p))


def _whole(p):
    if p != int(p):
        raise Unsupported(f"opset 2 takes whole exponents only, not p={p}")
    return int(p)
