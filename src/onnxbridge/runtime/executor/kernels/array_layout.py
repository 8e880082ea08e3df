"""Addresses and memory layouts of arrays: C order, and channels last."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.kernels.compile.kernel import load_kernel
from onnxbridge.runtime.executor.kernels.run.call_recorder import int64_array, mark_incomplete
from onnxbridge.runtime.executor.kernels.run.work_partition import chunks

Array = np.ndarray[Any, Any]


def address(array: Array) -> int:
    """The address of the first element."""
    where: int = array.__array_interface__["data"][0]
    return where


def plain(x: Array, pool: Pool) -> Array:
    """x in C order, itself if it is."""
    if x.flags.c_contiguous:
        return x
    y = pool.empty(x.shape, x.dtype)
    copy(x, y)
    return y


def copy(x: Array, y: Array) -> None:
    """Copy x into y, which has its shape."""
    axes = merged(x, y)
    if x.dtype != np.float32 or y.dtype != np.float32 or len(axes) > 4:
        mark_incomplete()
        np.copyto(y, x)
        return
    axes = [*axes[:1], *[(1, 0, 0)] * (4 - len(axes)), *axes[1:]] if len(axes) > 1 else [(1, 0, 0)] * (4 - len(axes)) + axes
    chunk, units = chunks(axes[0][0], 2 * math.prod(a[0] for a in axes[1:]))
    spec, where = int64_array(*(a[0] for a in axes), *(a[1] // 4 for a in axes), *(a[2] // 4 for a in axes), chunk)
    load_kernel("layout", "copy_strided")(address(x), address(y), where, units=units)


def merged(*arrays: Array) -> list[tuple[int, ...]]:
    """Size and strides of each axis from the slowest of the last array to the fastest, adjacent axes merged where they can be."""
    shape, y = arrays[-1].shape, arrays[-1]
    axes: list[tuple[int, ...]] = []
    for k in sorted((k for k in range(y.ndim) if shape[k] != 1), key=lambda k: -y.strides[k]):
        size, strides = shape[k], tuple(a.strides[k] for a in arrays)
        if axes and all(outer == stride * size for outer, stride in zip(axes[-1][1:], strides, strict=True)):
            axes[-1] = (axes[-1][0] * size, *strides)
        else:
            axes.append((size, *strides))
    return axes


def empty_like(x: Array, pool: Pool, dtype: Any = np.float32) -> Array:
    """An uninitialized array of the shape of x, with its channels last in memory where those of x are."""
    if not swapped(x):
        return pool.empty(x.shape, dtype)
    n, c, *sizes = x.shape
    return first(pool.empty((n, *sizes, c), dtype))


def last(x: Array, pool: Pool) -> Array:
    """(N, C, *D) as contiguous (N, *D, C): a view where the memory has this layout already."""
    seen = x.transpose(0, *range(2, x.ndim), 1)
    if seen.flags.c_contiguous:
        return seen
    y = pool.empty(seen.shape, x.dtype)
    if x.flags.c_contiguous and x.dtype == np.float32:
        samples, channels, *sizes = x.shape
        pixels = math.prod(sizes)
        chunk, units = chunks(pixels, 2 * channels)
        load_kernel("layout", "channels_last")(address(x), address(y), samples, channels, pixels, chunk, units=samples * units)
    else:
        copy(seen, y)
    return y


def first(y: Array) -> Array:
    """The view (N, C, *D) of (N, *D, C)."""
    return y.transpose(0, y.ndim - 1, *range(1, y.ndim - 1))


def swapped(x: Array) -> bool:
    """Whether an array (N, C, *D) has its channels last in memory."""
    return x.ndim > 3 and not x.flags.c_contiguous and x.transpose(0, *range(2, x.ndim), 1).flags.c_contiguous
