"""Pooling: `ceil_mode` says with a flag what padding says with numbers, and its last window moved with opset 22."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.opset.adapters import down, up
from onnxbridge.hub.opset.known_values import dtype_of, fixed_shape
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


def _with_places(op, X, kernel, strides, pads, dilations, ceil_mode, storage_order):
    """The largest under each window and its place in the flattened tensor: all that lies under one window in a last axis."""
    shape, rank = fixed_shape(X), len(kernel)
    windows = list(_windows(X, kernel, strides, pads, dilations, ceil_mode))
    apart = [int(np.prod(shape[i + 3 :] if not storage_order else shape[2 : i + 2])) for i in range(rank)]
    at, real = np.zeros((1, 1), np.int64), np.ones((1, 1), bool)
    flat = np.zeros((1, 1), np.int64)  # in the order of the tensor, whatever order the places are told in
    for i, (places, inside, _) in enumerate(windows):
        count, taps = places.shape
        clipped = np.where(inside, places, 0)

        def crossed(known, new, join, count=count, taps=taps):
            joined = join(known[:, None, :, None], new[None, :, None, :])
            return joined.reshape(known.shape[0] * count, known.shape[1] * taps)

        at = crossed(at, clipped * apart[i], np.add)
        flat = crossed(flat, clipped * int(np.prod(shape[i + 3 :])), np.add)
        real = crossed(real, inside, np.logical_and)
    area = int(np.prod(shape[2:]))
    row = op.Reshape(X, np.array([shape[0] * shape[1], area], np.int64))
    row = op.Concat(row, op.constant(np.full((shape[0] * shape[1], 1), -np.inf), dtype=dtype_of(X)), axis=1)
    seen = op.Gather(row, np.where(real, flat, area), axis=1)
    best = op.ArgMax(seen, axis=2, keepdims=0)
    # from the tap that won to its place: a gather from the table of all windows, one row after another
    line = op.Add(best, np.arange(len(at), dtype=np.int64) * at.shape[1])
    place = op.Add(op.Gather(at.reshape(-1), line, axis=0), np.arange(shape[0] * shape[1])[:, None].astype(np.int64) * area)
    result = np.array([*shape[:2], *(len(places) for places, _, _ in windows)], np.int64)
    return op.Reshape(op.ReduceMax(seen, axes=[2], keepdims=0), result), op.Reshape(place, result)


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
        if version < 10 and dilations is not None and all(d == 1 for d in dilations):
            dilations = None
        if ceil_mode and auto_pad == "NOTSET":
            counted = more.get("count_include_pad", 0)
            padded = _end_pads(X, kernel_shape, strides, pads, dilations)
            # padding that is counted must stay what it is
            if padded is not None and (not counted or padded == list(pads or [0] * 2 * len(kernel_shape))):
                pads, ceil_mode = padded, 0
        if (ceil_mode or dilations) and version < 10:
            if auto_pad not in ("NOTSET", "VALID"):
                raise Unsupported(f"opset 10 added dilations and ceil_mode, here with {auto_pad=!s}")
            if name == "AveragePool":
                return _spread_average(op, X, kernel_shape, strides, pads, dilations, ceil_mode, more.get("count_include_pad", 0))
            if outputs[1:] and outputs[1]:
                return _with_places(op, X, kernel_shape, strides, pads, dilations, ceil_mode, more.get("storage_order", 0))
            windows = _windows(X, kernel_shape, strides, pads, dilations, ceil_mode)
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


@down("LpPool", to=17)
def lp_pool_dilated(op, X, *, auto_pad="NOTSET", ceil_mode=0, dilations=None, kernel_shape, p=2, pads=None, strides=None):
    """The p-th root of the sum of p-th powers under each window."""
    if not ceil_mode and (dilations is None or all(d == 1 for d in dilations)):
        return op.LpPool(X, auto_pad=auto_pad, kernel_shape=kernel_shape, p=p, pads=pads, strides=strides)
    if auto_pad not in ("NOTSET", "VALID"):
        raise Unsupported(f"opset 18 added dilations, here with {auto_pad=!s}")
    pads = None if auto_pad == "VALID" else pads
    windows = list(_windows(X, kernel_shape, strides, pads, dilations, ceil_mode))
    powers = op.Pow(op.Abs(X), op.constant(float(p), dtype=dtype_of(X)))
    total = _gathered(op, powers, windows, 0.0, lambda v, axis: op.ReduceSum(v, [axis], keepdims=0))
    return op.Pow(total, op.constant(1.0 / p, dtype=dtype_of(X)))


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


@down("MaxPool", to=7)
def max_pool_places(op, X, *, auto_pad="NOTSET", kernel_shape, pads=None, storage_order=0, strides=None, outputs: Outputs):
    if not (outputs[1:] and outputs[1]):
        return op.MaxPool(X, auto_pad=auto_pad, kernel_shape=kernel_shape, pads=pads, strides=strides)
    if auto_pad not in ("NOTSET", "VALID"):
        raise Unsupported(f"opset 8 added the places, here with {auto_pad=!s}")
    return _with_places(op, X, kernel_shape, strides, None if auto_pad == "VALID" else pads, None, 0, storage_order)
