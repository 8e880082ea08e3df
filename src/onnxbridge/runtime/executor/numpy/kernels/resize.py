"""Resampling along one axis, and in the plane."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxbridge.runtime.executor.numpy.kernels.windows import Array


def linear(x: Array, axis: int, points: Array) -> Array:
    """Interpolate between the two neighbours of each point along an axis; points are in elements, inside [0, size - 1]."""
    axis %= x.ndim
    low = np.clip(np.floor(points), 0, x.shape[axis] - 1).astype(np.intp)
    high = np.minimum(low + 1, x.shape[axis] - 1)
    part = (points - low).astype(x.dtype).reshape(-1, *(1 for _ in range(x.ndim - axis - 1)))
    below, above = np.take(x, low, axis), np.take(x, high, axis)
    y: Array = below + (above - below) * part
    return y


def sample(x: Array, xs: Array, ys: Array, *, mode: str, padding: str, value: float = 0.0) -> Array:
    """Sample x (N, C, H, W) at the points (xs, ys), each (N, *P), in elements: (N, C, *P).

    mode: nearest (ties to even) or bilinear. padding: constant (`value` outside), border, reflection (about the outer
    elements' centres) or symmetric (about their edges).
    """
    height, width = x.shape[2:]
    if padding != "constant":
        xs, ys = _inside(xs, width, padding), _inside(ys, height, padding)
    if mode == "nearest":
        return _pick(x, np.rint(xs), np.rint(ys), padding, value)
    left, top = np.floor(xs), np.floor(ys)
    right, bottom = (xs - left)[:, None], (ys - top)[:, None]
    corners = [_pick(x, left + dx, top + dy, padding, value) for dy in (0, 1) for dx in (0, 1)]
    upper = corners[0] * (1 - right) + corners[1] * right
    lower = corners[2] * (1 - right) + corners[3] * right
    y: Array = (upper * (1 - bottom) + lower * bottom).astype(x.dtype)
    return y


def _inside(p: Array, size: int, padding: str) -> Array:
    """Clamp or reflect points into [0, size - 1]."""
    if padding in ("reflection", "symmetric"):
        first, span = (0.0, size - 1.0) if padding == "reflection" else (-0.5, float(size))
        if span:
            p = np.abs((p - first + span) % (2 * span) - span) + first
    clipped: Array = np.clip(p, 0, size - 1)
    return clipped


def _pick(x: Array, xs: Array, ys: Array, padding: str, value: float) -> Array:
    """x at integer points; those outside get `value` (constant) or the nearest element."""
    height, width = x.shape[2:]
    row, column = np.clip(ys, 0, height - 1).astype(np.intp), np.clip(xs, 0, width - 1).astype(np.intp)
    index = np.arange(x.shape[0]).reshape(-1, *(1 for _ in row.shape[1:]))
    found: Array = np.moveaxis(x[index, :, row, column], -1, 1)
    if padding == "constant":
        out = (xs < 0) | (xs > width - 1) | (ys < 0) | (ys > height - 1)
        fill: Any = np.asarray(value, x.dtype)
        found = np.where(out[:, None], fill, found)
    return found
