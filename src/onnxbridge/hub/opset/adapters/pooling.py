"""Pooling: `ceil_mode`, dilations and indices, which older versions lack; `ceil_mode` changed its last window in opset 22."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.opset.adapters import down, up
from onnxbridge.hub.opset.known_values import dtype_of, fixed_shape
from onnxbridge.rules import Outputs


def _exact_sizes(op, X, kernel, strides, pads, dilations, counted, may_slice):
    """A pooling with ceil_mode=1 as older versions understand it: its input, pads, and whether ceil_mode is still needed.

    Since opset 22 a window must start in the data or in the padding before it; the older formula of the output's size counts one
    window more. Where the last window is complete, both formulas and ceil_mode=0 agree, so padding is added to the end for
    a window that would be incomplete, unless it is `counted` in averages, and elements that no window uses are removed.
    """
    rank = len(kernel)
    strides, dilations, pads = strides or [1] * rank, dilations or [1] * rank, list(pads or [0] * 2 * rank)
    longer, shorter = list(pads), {}  # end pads for ceil_mode=0; elements that no window uses, by axis
    ceil_needed = False
    for i in range(rank):
        size = None if X.shape is None else X.shape[i + 2]
        if strides[i] == 1:  # no window is incomplete
            continue
        if not isinstance(size, int):
            ceil_needed = True
            continue
        reach = (kernel[i] - 1) * dilations[i] + 1
        free = size + pads[i] + pads[i + rank] - reach
        missing = (_count(size, pads[i], free, strides[i], True) - 1) * strides[i] - free
        if missing > 0:
            longer[i + rank] += missing
            ceil_needed |= bool(counted) or longer[i + rank] >= kernel[i]  # ONNX Runtime requires pads below the kernel
        elif missing < 0:
            shorter[i] = -missing
    if not ceil_needed:
        return X, longer, False
    for i, unused in shorter.items() if may_slice else ():
        padding = min(unused, pads[i + rank])
        pads[i + rank] -= padding
        if unused > padding:
            X = op.Slice(X, [0], [X.shape[i + 2] - (unused - padding)], [i + 2])
    return X, pads, True


def _count(size, begin, free, stride, ceil_mode):
    """The number of windows along an axis, of which `free` elements remain after the first."""
    count = (-(-free // stride) if ceil_mode else free // stride) + 1
    return count - (ceil_mode and (count - 1) * stride >= size + begin)


def _windows(X, kernel, strides, pads, dilations, ceil_mode):
    """For each spatial axis the element indices of each window, and masks of those in the data and in the padded data."""
    rank = len(kernel)
    strides, dilations, pads = strides or [1] * rank, dilations or [1] * rank, list(pads or [0] * 2 * rank)
    for i, size in enumerate(fixed_shape(X)[2:]):
        begin, end, reach = pads[i], pads[i + rank], (kernel[i] - 1) * dilations[i] + 1
        free = size + begin + end - reach
        count = _count(size, begin, free, strides[i], ceil_mode)
        indices = np.arange(count)[:, None] * strides[i] + np.arange(kernel[i]) * dilations[i] - begin
        yield indices, (indices >= 0) & (indices < size), (indices >= -begin) & (indices < size + end)


def _reduce_windows(op, X, windows, outside, reduce):
    """Gathers the elements of each window along a new axis and reduces it, axis by axis."""
    for i, (indices, inside, _) in enumerate(windows):
        axis, size = i + 2, X.shape[i + 2]
        if not inside.all():
            slab = [*(int(d) for d in X.shape[:axis]), 1, *(int(d) for d in X.shape[axis + 1 :])]
            X = op.Concat(X, op.constant(np.full(slab, outside), dtype=dtype_of(X)), axis=axis)
        X = reduce(op.Gather(X, np.where(inside, indices, size), axis=axis), axis + 1)
    return X


def _max_pool_with_indices(op, X, kernel, strides, pads, dilations, ceil_mode, storage_order):
    """MaxPool with indices: the elements of each window are gathered along the last axis."""
    shape, rank = fixed_shape(X), len(kernel)
    windows = list(_windows(X, kernel, strides, pads, dilations, ceil_mode))
    steps = [int(np.prod(shape[i + 3 :] if not storage_order else shape[2 : i + 2])) for i in range(rank)]
    index_table, in_data = np.zeros((1, 1), np.int64), np.ones((1, 1), bool)
    flat = np.zeros((1, 1), np.int64)  # in row-major order, whatever the storage order of the indices
    for i, (indices, inside, _) in enumerate(windows):
        count, taps = indices.shape
        clipped = np.where(inside, indices, 0)

        def crossed(known, new, join, count=count, taps=taps):
            joined = join(known[:, None, :, None], new[None, :, None, :])
            return joined.reshape(known.shape[0] * count, known.shape[1] * taps)

        index_table = crossed(index_table, clipped * steps[i], np.add)
        flat = crossed(flat, clipped * int(np.prod(shape[i + 3 :])), np.add)
        in_data = crossed(in_data, inside, np.logical_and)
    area = int(np.prod(shape[2:]))
    row = op.Reshape(X, np.array([shape[0] * shape[1], area], np.int64))
    row = op.Concat(row, op.constant(np.full((shape[0] * shape[1], 1), -np.inf), dtype=dtype_of(X)), axis=1)
    elements = op.Gather(row, np.where(in_data, flat, area), axis=1)
    best = op.ArgMax(elements, axis=2, keepdims=0)
    # the index of the maximum: a gather from the table of all windows
    line = op.Add(best, np.arange(len(index_table), dtype=np.int64) * index_table.shape[1])
    index = op.Add(
        op.Gather(index_table.reshape(-1), line, axis=0), np.arange(shape[0] * shape[1])[:, None].astype(np.int64) * area
    )
    result = np.array([*shape[:2], *(len(indices) for indices, _, _ in windows)], np.int64)
    return op.Reshape(op.ReduceMax(elements, axes=[2], keepdims=0), result), op.Reshape(index, result)


def _average_pool(op, X, kernel, strides, pads, dilations, ceil_mode, count_include_pad, version):
    windows = list(_windows(X, kernel, strides, pads, dilations, ceil_mode))
    axes_is_input = version >= 13
    total = _reduce_windows(
        op, X, windows, 0.0,
        lambda v, axis: op.ReduceSum(v, [axis], keepdims=0) if axes_is_input else op.ReduceSum(v, axes=[axis], keepdims=0),
    )  # fmt: skip
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
    return _average_pool(op, X, kernel_shape, strides, pads, dilations, ceil_mode, count_include_pad, 18)


def _without_ceil_mode(name, version):
    def pool(
        op, X, *, ceil_mode=0, kernel_shape, strides=None, pads=None, dilations=None, auto_pad="NOTSET", outputs: Outputs, **more
    ):  # fmt: skip
        if version < 10 and dilations is not None and all(d == 1 for d in dilations):
            dilations = None
        indices_used, counted = bool(outputs[1:] and outputs[1]), more.get("count_include_pad", 0)
        if ceil_mode and auto_pad == "VALID":
            auto_pad, pads = "NOTSET", None
        if ceil_mode and auto_pad == "NOTSET":
            X, pads, ceil_mode = _exact_sizes(op, X, kernel_shape, strides, pads, dilations, counted, not indices_used)
            pads = pads if any(pads) else None
        if (ceil_mode or dilations) and version < 10:
            if auto_pad not in ("NOTSET", "VALID"):
                raise Unsupported(f"opset 10 added dilations and ceil_mode, here with {auto_pad=!s}")
            if name == "AveragePool":
                return _average_pool(op, X, kernel_shape, strides, pads, dilations, ceil_mode, counted, version)
            if indices_used:
                return _max_pool_with_indices(
                    op, X, kernel_shape, strides, pads, dilations, ceil_mode, more.get("storage_order", 0)
                )
            windows = _windows(X, kernel_shape, strides, pads, dilations, ceil_mode)
            return _reduce_windows(op, X, list(windows), -np.inf, lambda v, axis: op.ReduceMax(v, axes=[axis], keepdims=0))
        count = max((i + 1 for i, used in enumerate(outputs) if used), default=1)
        attrs = {"ceil_mode": int(ceil_mode) or None, "dilations": dilations, "pads": pads, "strides": strides, **more}
        present = {k: v for k, v in attrs.items() if v is not None}
        if auto_pad != "NOTSET":
            present["auto_pad"] = auto_pad
        return op.call(name, X, kernel_shape=kernel_shape, outputs=count, **present)

    return pool


for _name in ("AveragePool", "MaxPool"):
    for _to in (21, 9):
        down(_name, to=_to)(_without_ceil_mode(_name, _to))
down("LpPool", to=21)(_without_ceil_mode("LpPool", 21))


@down("LpPool", to=17)
def lp_pool_dilated(op, X, *, auto_pad="NOTSET", ceil_mode=0, dilations=None, kernel_shape, p=2, pads=None, strides=None):
    """The p-th root of the sum of p-th powers of each window."""
    if not ceil_mode and (dilations is None or all(d == 1 for d in dilations)):
        return op.LpPool(X, auto_pad=auto_pad, kernel_shape=kernel_shape, p=p, pads=pads, strides=strides)
    if auto_pad not in ("NOTSET", "VALID"):
        raise Unsupported(f"opset 18 added dilations, here with {auto_pad=!s}")
    pads = None if auto_pad == "VALID" else pads
    windows = list(_windows(X, kernel_shape, strides, pads, dilations, ceil_mode))
    powers = op.Pow(op.Abs(X), op.constant(float(p), dtype=dtype_of(X)))
    total = _reduce_windows(op, powers, windows, 0.0, lambda v, axis: op.ReduceSum(v, [axis], keepdims=0))
    return op.Pow(total, op.constant(1.0 / p, dtype=dtype_of(X)))


@up("LpPool", to=2)
def lp_pool(op, X, *, auto_pad="NOTSET", kernel_shape=None, p=2.0, pads=None, strides=None):
    kernel = kernel_shape or fixed_shape(X)[2:]
    return op.LpPool(X, auto_pad=auto_pad, kernel_shape=kernel, p=_integer_exponent(p), pads=pads, strides=strides)


@up("GlobalLpPool", to=2)
def global_lp_pool(op, X, *, p=2.0):
    return op.GlobalLpPool(X, p=_integer_exponent(p))


def _integer_exponent(p):
    if p != int(p):
        raise Unsupported(f"opset 2 supports integer exponents only, not p={p}")
    return int(p)


@down("MaxPool", to=7)
def max_pool_places(op, X, *, auto_pad="NOTSET", kernel_shape, pads=None, storage_order=0, strides=None, outputs: Outputs):
    if not (outputs[1:] and outputs[1]):
        return op.MaxPool(X, auto_pad=auto_pad, kernel_shape=kernel_shape, pads=pads, strides=strides)
    if auto_pad not in ("NOTSET", "VALID"):
        raise Unsupported(f"opset 8 added the output Indices, here with {auto_pad=!s}")
    return _max_pool_with_indices(op, X, kernel_shape, strides, None if auto_pad == "VALID" else pads, None, 0, storage_order)
