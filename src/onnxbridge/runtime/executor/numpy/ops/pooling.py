"""Pooling."""

from __future__ import annotations

import itertools

import numpy as np

from onnxbridge.hub.io.resource_limits import claim, current
from onnxbridge.rules import Ints, Outputs
from onnxbridge.runtime.executor.numpy.dtypes import widened
from onnxbridge.runtime.executor.numpy.kernels import pooling as kernels
from onnxbridge.runtime.executor.numpy.kernels.windows import out_sizes
from onnxbridge.runtime.executor.numpy.ops import rule
from onnxbridge.runtime.executor.numpy.padding import claim_output, pairs, window
from onnxbridge.runtime.executor.numpy.sums import mean, total


@rule("MaxPool")
@widened
def max_pool(
    X,
    *,
    kernel_shape,
    auto_pad="NOTSET",
    ceil_mode=0,
    dilations=None,
    pads=None,
    storage_order=0,
    strides=None,
    outputs: Outputs = (True,),
):
    w = window(X, kernel_shape, strides, pads, dilations, auto_pad)
    claim_output(X, X.shape[1], w, bool(ceil_mode))
    if len(outputs) > 1 and outputs[1]:
        return _with_indices(X, w, bool(ceil_mode), storage_order)
    return kernels.max_pool(X, w.kernel, ceil_mode=bool(ceil_mode), **w.moves)


def _with_indices(x, w, ceil_mode, storage_order):
    """The maxima, and their indices in the flattened input; `storage_order` 1: column-major in the last two axes."""
    sizes = x.shape[2:]
    out = out_sizes(sizes, w.kernel, w.strides, w.pads, w.dilations, ceil_mode=ceil_mode)
    step = np.cumprod([1, *sizes[:0:-1]])[::-1] if not storage_order else np.cumprod([1, *sizes[:-1]])
    planes = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *(1,) * len(out)) * int(np.prod(sizes))
    best = where = None
    for position in itertools.product(*map(range, w.kernel)):
        flat, inside = 0, True
        index = []
        for d, (k, n) in enumerate(zip(position, out, strict=True)):
            at = np.arange(n) * w.strides[d] + k * w.dilations[d] - w.pads[d][0]
            shape = (-1, *(1,) * (len(out) - 1 - d))
            inside = inside & ((at >= 0) & (at < sizes[d])).reshape(shape)
            at = np.clip(at, 0, sizes[d] - 1)
            flat = flat + (at * step[d]).reshape(shape)
            index.append(at.reshape(shape))
        part = x[(..., *index)]
        if best is None:
            best, where, found = part.copy(), np.broadcast_to(flat, part.shape).copy(), np.broadcast_to(inside, part.shape).copy()
        else:
            better = inside & (~found | (part > best) | (np.isnan(part) & ~np.isnan(best)))
            best, where, found = np.where(better, part, best), np.where(better, flat, where), found | inside
    return best, (where + planes).astype(np.int64)


@rule("AveragePool")
@widened
def average_pool(
    X, *, kernel_shape, auto_pad="NOTSET", ceil_mode=0, count_include_pad=0, dilations=None, pads=None, strides=None
):
    w = window(X, kernel_shape, strides, pads, dilations, auto_pad)
    claim_output(X, X.shape[1], w, bool(ceil_mode))
    options = {"ceil_mode": bool(ceil_mode), "count_include_pad": bool(count_include_pad)}
    return kernels.avg_pool(X, w.kernel, **options, **w.moves)


@rule("LpPool")
@widened
def lp_pool(X, *, kernel_shape, auto_pad="NOTSET", ceil_mode=0, dilations=None, p=2, pads=None, strides=None):
    w = window(X, kernel_shape, strides, pads, dilations, auto_pad)
    claim_output(X, X.shape[1], w, bool(ceil_mode))
    return kernels.lp_pool(X, w.kernel, p=p, ceil_mode=bool(ceil_mode), **w.moves)


def _space(x):
    return tuple(range(2, x.ndim))


@rule("GlobalAveragePool")
@widened
def global_average_pool(X):
    return mean(X, _space(X), keepdims=True)


@rule("GlobalMaxPool")
def global_max_pool(X):
    return np.max(X, axis=_space(X), keepdims=True)


@rule("GlobalLpPool")
@widened
def global_lp_pool(X, *, p=2):
    return total(np.abs(X) ** p, _space(X), keepdims=True) ** X.dtype.type(1 / p)


@rule("MaxUnpool")
def max_unpool(X, I, output_shape: Ints | None = None, *, kernel_shape, pads=None, strides=None):  # noqa: E741
    """Writes each element at its index; indices refer to the default output shape."""
    space = X.ndim - 2
    strides, cut = strides or (1,) * space, pairs(pads, space)
    inferred = [(n - 1) * s + k - b - e for n, s, k, (b, e) in zip(X.shape[2:], strides, kernel_shape, cut, strict=True)]
    inferred = (*X.shape[:2], *inferred)
    full = inferred if output_shape is None else tuple(output_shape)
    claim(full, X.dtype)
    y = np.zeros(int(np.prod(inferred)), X.dtype)
    y[I.reshape(-1)] = X.reshape(-1)
    y = y.reshape(inferred)
    if full != inferred:
        grown = np.zeros(full, X.dtype)
        grown[tuple(map(slice, inferred))] = y
        return grown
    return y


@rule("MaxRoiPool")
def max_roi_pool(X, rois, *, pooled_shape, spatial_scale=1.0):
    """Regions are rounded to whole elements, both ends included, and divided into bins that may overlap."""
    height, width = X.shape[2:]
    claim((rois.shape[0], X.shape[1], *pooled_shape), X.dtype)
    y = np.zeros((rois.shape[0], X.shape[1], *pooled_shape), X.dtype)
    for r, roi in enumerate(rois.astype(np.float64)):
        current().check_time()
        left, top, right, bottom = (int(np.floor(v * spatial_scale + 0.5)) for v in roi[1:])
        rows = _bins(top, bottom, pooled_shape[0], height)
        columns = _bins(left, right, pooled_shape[1], width)
        for i, j in itertools.product(range(pooled_shape[0]), range(pooled_shape[1])):
            part = X[int(roi[0]), :, slice(*rows[i]), slice(*columns[j])]
            if part.size:
                y[r, :, i, j] = part.max(axis=(1, 2))
    return y


def _bins(first, last, count, size):
    each = max(last - first + 1, 1) / count
    edges = [(int(np.floor(i * each)) + first, int(np.ceil((i + 1) * each)) + first) for i in range(count)]
    return [(min(max(a, 0), size), min(max(b, 0), size)) for a, b in edges]
