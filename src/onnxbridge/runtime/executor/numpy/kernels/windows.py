"""Sliding windows over the spatial axes: padding, output sizes and strided views."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Pads = Sequence[tuple[int, int]]
Ints = Sequence[int]


def extent(kernel: Ints, dilations: Ints) -> list[int]:
    """How many elements a dilated kernel spans in each dimension."""
    return [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]


def same_pads(sizes: Ints, kernel: Ints, strides: Ints, dilations: Ints, *, lower: bool = False) -> list[tuple[int, int]]:
    """The padding with which the output has ceil(size / stride) elements; `lower` puts an odd element at the start."""
    pads = []
    for size, span, stride in zip(sizes, extent(kernel, dilations), strides, strict=True):
        total = max(0, (-(-size // stride) - 1) * stride + span - size)
        small, large = total // 2, total - total // 2
        pads.append((large, small) if lower else (small, large))
    return pads


def out_sizes(sizes: Ints, kernel: Ints, strides: Ints, pads: Pads, dilations: Ints, *, ceil_mode: bool = False) -> list[int]:
    """How many windows fit; with `ceil_mode` also one that starts inside the input or its front padding but ends beyond."""
    found = []
    for size, span, stride, (before, after) in zip(sizes, extent(kernel, dilations), strides, pads, strict=True):
        room = size + before + after - span
        count = room // stride + 1
        if ceil_mode and -(-room // stride) + 1 > count and count * stride < size + before:
            count += 1
        found.append(max(0, count))
    return found


def pad(x: Array, pads: Pads, value: Any = 0) -> Array:
    """Pad the last len(pads) axes with a value; a negative amount crops."""
    if any(n < 0 for pair in pads for n in pair):
        cut: Any = (..., *(slice(max(0, -b), x.shape[i - len(pads)] - max(0, -a)) for i, (b, a) in enumerate(pads)))
        x = x[cut]
    grow = [(max(0, b), max(0, a)) for b, a in pads]
    if not any(map(any, grow)):
        return x
    lead = x.ndim - len(pads)
    shape = (*x.shape[:lead], *(n + b + a for n, (b, a) in zip(x.shape[lead:], grow, strict=True)))
    out: Array = np.full(shape, value, x.dtype) if value != 0 else np.zeros(shape, x.dtype)
    middle: Any = (..., *(slice(b, b + n) for n, (b, _) in zip(x.shape[lead:], grow, strict=True)))
    out[middle] = x
    return out


def shifts(x: Array, kernel: Ints, out: Ints, strides: Ints, dilations: Ints) -> Iterator[tuple[tuple[int, ...], Array]]:
    """For each position of the kernel, the view of (padded) x that this position meets: shape (..., *out)."""
    for position in itertools.product(*map(range, kernel)):
        start = [p * d for p, d in zip(position, dilations, strict=True)]
        cut: Any = (..., *(slice(b, b + n * s, s) for b, n, s in zip(start, out, strides, strict=True)))
        yield position, x[cut]


def windows(x: Array, kernel: Ints, out: Ints, strides: Ints, dilations: Ints) -> Array:
    """A read-only view of (padded) x with one kernel-shaped window for each output: shape (..., *out, *kernel)."""
    space = len(kernel)
    lead, step = x.shape[: x.ndim - space], x.strides[x.ndim - space :]
    stride = tuple(b * s for b, s in zip(step, strides, strict=True))
    dilated = tuple(b * d for b, d in zip(step, dilations, strict=True))
    return np.lib.stride_tricks.as_strided(
        x, (*lead, *out, *kernel), (*x.strides[: x.ndim - space], *stride, *dilated), writeable=False
    )


def blocks(sizes: Ints, most: int) -> Iterator[tuple[slice, ...]]:
    """Cuts an array of these sizes into contiguous boxes of at most `most` elements, one slice for each axis."""
    axis, inner = len(sizes) - 1, 1
    while axis > 0 and inner * sizes[axis] <= most:
        inner *= sizes[axis]
        axis -= 1
    step = max(1, most // max(1, inner))
    rest = [slice(0, n) for n in sizes[axis + 1 :]]
    for front in itertools.product(*map(range, sizes[:axis])):
        for begin in range(0, sizes[axis], step):
            yield (*(slice(f, f + 1) for f in front), slice(begin, min(begin + step, sizes[axis])), *rest)
