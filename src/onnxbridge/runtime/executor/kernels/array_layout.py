"""Where an array's data lies, and arrays laid out with their channels last."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.kernels.compile.kernel import loop
from onnxbridge.runtime.executor.kernels.run.call_recorder import beside, numbers
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
    """The elements of x into y, which has its shape."""
    axes = _merged(x, y)
    if x.dtype != np.float32 or y.dtype != np.float32 or len(axes) > 4:
        beside()
        np.copyto(y, x)
        return
    axes = [*axes[:1], *[(1, 0, 0)] * (4 - len(axes)), *axes[1:]] if len(axes) > 1 else [(1, 0, 0)] * (4 - len(axes)) + axes
    chunk, units = chunks(axes[0][0], 2 * math.prod(a[0] for a in axes[1:]))
    spec, where = numbers(*(a[0] for a in axes), *(a[1] // 4 for a in axes), *(a[2] // 4 for a in axes), chunk)
    loop("layout", "copied")(address(x), address(y), where, units=units)


def _merged(x: Array, y: Array) -> list[tuple[int, int, int]]:
    """Size and distances of each axis, the fastest of y last, those taken together that follow each other in both."""
    axes: list[tuple[int, int, int]] = []
    for size, dx, dy in sorted(zip(x.shape, x.strides, y.strides, strict=True), key=lambda axis: -axis[2]):
        if size == 1:
            continue
        if axes and axes[-1][1] == dx * size and axes[-1][2] == dy * size:
            axes[-1] = (axes[-1][0] * size, dx, dy)
        else:
            axes.append((size, dx, dy))
    return axes


def last(x: Array, pool: Pool) -> Array:
    """(N, C, *D) as contiguous (N, *D, C): a view where the memory is laid out so already."""
    seen = x.transpose(0, *range(2, x.ndim), 1)
    if seen.flags.c_contiguous:
        return seen
    y = pool.empty(seen.shape, x.dtype)
    if x.flags.c_contiguous and x.dtype == np.float32:
        samples, channels, *sizes = x.shape
        pixels = math.prod(sizes)
        chunk, units = chunks(pixels, 2 * channels)
        loop("layout", "channels_last")(address(x), address(y), samples, channels, pixels, chunk, units=samples * units)
    else:
        copy(seen, y)
    return y


def first(y: Array) -> Array:
    """(N, *D, C) seen as (N, C, *D)."""
    return y.transpose(0, y.ndim - 1, *range(1, y.ndim - 1))


def swapped(x: Array) -> bool:
    """Whether an array of channels and space lies in memory with its channels last."""
    return x.ndim > 3 and not x.flags.c_contiguous and x.transpose(0, *range(2, x.ndim), 1).flags.c_contiguous
