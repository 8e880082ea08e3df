"""Pooling over windows and global pooling."""

from __future__ import annotations

import math

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.frontends.mxnet.ops.types import as_tuple
from onnxbridge.hub.ir.values import rank, static_shape


@rule("Pooling", "Pooling_v1", "_npx_pooling")
def pooling(
    op, data, *, kernel=(), pool_type="max", global_pool=False, pooling_convention="valid", stride=(), pad=(), p_value=None,
    count_include_pad=None, layout=None,
):  # fmt: skip
    count = rank(data) - 2
    last = layout in ("NWC", "NHWC", "NDHWC")
    x = op.Transpose(data, perm=[0, count + 1, *range(1, count + 1)]) if last else data
    if pool_type == "lp" and p_value not in (1, 2, 3):
        raise Unsupported(f"p_value={p_value} is not supported")
    if global_pool:
        y = _global(op, x, pool_type, p_value)
    else:
        kernel, stride, pad = as_tuple(kernel), as_tuple(stride) or (1,) * count, (as_tuple(pad) or (0,) * count)[:count]
        y = _windows(op, x, kernel, pool_type, pooling_convention, stride, pad, p_value, count_include_pad is not False)
    return op.Transpose(y, perm=[0, *range(2, count + 2), 1]) if last else y


def _global(op, x, pool_type, p):
    if pool_type == "max":
        return op.GlobalMaxPool(x)
    if pool_type == "avg":
        return op.GlobalAveragePool(x)
    total = op.ReduceSum(x if pool_type == "sum" else _power(op, x, p), list(range(2, rank(x))))
    return total if pool_type == "sum" else _root(op, total, p)


def _power(op, x, p):
    return x if p == 1 else op.Mul(x, x) if p == 2 else op.Mul(op.Mul(x, x), x)


def _root(op, x, p):
    if p == 1:
        return x
    return op.Sqrt(x) if p == 2 else op.Mul(op.Sign(x), op.Pow(op.Abs(x), 1 / 3))


def _windows(op, x, kernel, pool_type, convention, stride, pad, p, count_include_pad):
    end = _end_padding(x, kernel, convention, stride, pad)
    shape = {"kernel_shape": kernel, "strides": stride}
    if pool_type == "max":
        if all(b < k for b, k in zip((*pad, *end), kernel * 2, strict=True)):
            return op.MaxPool(x, pads=(*pad, *end), **shape)
        return op.MaxPool(op.Pad(x, [0, 0, *pad, 0, 0, *end], -np.inf), **shape)
    if pool_type == "avg" and end == pad and all(b < k for b, k in zip(pad, kernel, strict=True)):
        return op.AveragePool(x, pads=pad * 2, count_include_pad=int(count_include_pad), **shape)
    powers = _power(op, x, p) if pool_type == "lp" else x
    if any(pad) or any(end):
        powers = op.Pad(powers, [0, 0, *pad, 0, 0, *end], 0.0)
    total = op.Mul(op.AveragePool(powers, **shape), float(math.prod(kernel)))
    if pool_type == "avg":
        return op.Div(total, _counts(x, kernel, stride, pad, end, count_include_pad))
    return _root(op, total, p) if pool_type == "lp" else total


def _end_padding(x, kernel, convention, stride, pad):
    """The padding at the end.

    "full" rounds the number of windows up and "same" has one for each stride; their last windows may exceed the padding.
    """
    if convention == "valid":
        return tuple(pad)
    if convention not in ("full", "same"):
        raise Unsupported(f"pooling_convention={convention!r} is not supported")
    end = []
    for n, k, s, p in zip(static_shape(x, range(2, rank(x))), kernel, stride, pad, strict=True):
        windows = -(-(n + 2 * p) // s) if convention == "same" else -(-(n + 2 * p - k) // s) + 1
        end.append(max((windows - 1) * s + k - n - p, 0))
    return tuple(end)


def _counts(x, kernel, stride, pad, end, count_include_pad):
    """The number of elements in each window; `count_include_pad` includes the symmetric padding."""
    counts = np.ones((), x.dtype.numpy())
    for n, k, s, p, e in zip(static_shape(x, range(2, rank(x))), kernel, stride, pad, end, strict=True):
        starts = np.arange((n + p + e - k) // s + 1) * s - p
        low, high = (-p, n + p) if count_include_pad else (0, n)
        along = np.minimum(starts + k, high) - np.maximum(starts, low)
        counts = counts[..., None] * along.astype(x.dtype.numpy())
    return counts


@rule("_contrib_AdaptiveAvgPooling2D")
def adaptive_avg_pooling_2d(op, data, *, output_size=()):
    size = as_tuple(output_size) or (1,)
    height, width = size if len(size) == 2 else size * 2
    if (height, width) == (1, 1):
        return op.GlobalAveragePool(data)
    tall, wide = static_shape(data, [2, 3])
    rows, columns = (_averages(n, out, data.dtype.numpy()) for n, out in ((tall, height), (wide, width)))
    return op.MatMul(op.MatMul(rows, data), np.ascontiguousarray(columns.T))


def _averages(size, out, dtype):
    """The matrix that averages `size` elements into `out` intervals, which overlap if `out` does not divide `size`."""
    matrix = np.zeros((out, size), dtype)
    for i in range(out):
        low, high = i * size // out, -(-(i + 1) * size // out)
        matrix[i, low:high] = 1 / (high - low)
    return matrix
