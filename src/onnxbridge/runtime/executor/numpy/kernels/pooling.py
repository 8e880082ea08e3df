"""Pooling by shifted views: the largest, the mean or the p-norm of each window."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onnxbridge.runtime.executor.numpy.kernels.windows import Array, Ints, Pads, extent, out_sizes, pad, shifts


def _fit(sizes: Ints, kernel: Ints, strides: Ints, pads: Pads, dilations: Ints, out: Ints) -> list[tuple[int, int]]:
    """The padding with which exactly `out` windows fit: in ceil mode the last one may extend beyond the input."""
    spans = zip(sizes, extent(kernel, dilations), strides, pads, out, strict=True)
    return [(b, max(a, (n - 1) * stride + span - size - b)) for size, span, stride, (b, a), n in spans]


def max_pool(x: Array, kernel: Ints, *, strides: Ints, pads: Pads, dilations: Ints, ceil_mode: bool = False) -> Array:
    """The largest element of each window; padding never wins, NaN does."""
    lowest: Any = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min if x.dtype.kind in "iu" else False
    out = out_sizes(x.shape[2:], kernel, strides, pads, dilations, ceil_mode=ceil_mode)
    padded = pad(x, _fit(x.shape[2:], kernel, strides, pads, dilations, out), lowest)
    y: Array | None = None
    for _, part in shifts(padded, kernel, out, strides, dilations):
        y = part.copy() if y is None else np.maximum(y, part, out=y)
    assert y is not None, "a kernel has at least one position"
    return y


def avg_pool(
    x: Array,
    kernel: Ints,
    *,
    strides: Ints,
    pads: Pads,
    dilations: Ints,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> Array:
    """The mean of each window. Padding counts as zeros if requested; what ceil mode adds beyond it never counts."""
    out = out_sizes(x.shape[2:], kernel, strides, pads, dilations, ceil_mode=ceil_mode)
    fit = _fit(x.shape[2:], kernel, strides, pads, dilations, out)
    total = _sums(pad(x, fit), kernel, out, strides, dilations)
    if all(f == tuple(p) for f, p in zip(fit, pads, strict=True)) and (count_include_pad or not any(map(any, pads))):
        total /= np.asarray(math.prod(kernel), x.dtype)
        return total
    inside = np.ones(x.shape[2:], x.dtype)
    if count_include_pad:
        inside = pad(inside, pads, 1)
        fit = [(0, f[1] - p[1]) for f, p in zip(fit, pads, strict=True)]
    total /= _sums(pad(inside, fit), kernel, out, strides, dilations)
    return total


def lp_pool(x: Array, kernel: Ints, *, p: int = 2, strides: Ints, pads: Pads, dilations: Ints, ceil_mode: bool = False) -> Array:
    """(sum of |x|^p over the window)^(1/p)."""
    out = out_sizes(x.shape[2:], kernel, strides, pads, dilations, ceil_mode=ceil_mode)
    padded = pad(np.abs(x) ** p, _fit(x.shape[2:], kernel, strides, pads, dilations, out))
    sums = _sums(padded, kernel, out, strides, dilations)
    y: Array = np.sqrt(sums) if p == 2 else sums ** np.asarray(1 / p, x.dtype)
    return y


def _sums(padded: Array, kernel: Ints, out: Ints, strides: Ints, dilations: Ints) -> Array:
    lead = padded.shape[: padded.ndim - len(out)]
    y: Array = np.zeros((*lead, *out), padded.dtype)
    for _, part in shifts(padded, kernel, out, strides, dilations):
        y += part
    return y
