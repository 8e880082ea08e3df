"""Source coordinates, indices and weights of Resize, per axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnxbridge.errors import Unsupported

Array = np.ndarray[Any, Any]


def scales_and_sizes(
    lengths: Sequence[int], scales: Sequence[float] | None, sizes: Sequence[int] | None, policy: str
) -> tuple[Sequence[float], Sequence[int]]:
    """The scale and the output size of each axis."""
    if scales:
        # In float32, as shape inference computes it.
        return scales, [int(np.floor(np.float32(n) * np.float32(s))) for n, s in zip(lengths, scales, strict=True)]
    if not sizes:
        raise ValueError("neither scales nor sizes is set")
    ratios = [s / n if n else 1.0 for s, n in zip(sizes, lengths, strict=True)]
    if policy == "stretch":
        return ratios, list(sizes)
    if policy not in ("not_larger", "not_smaller"):
        raise Unsupported(f"keep_aspect_ratio_policy {policy!r}")
    one = min(ratios) if policy == "not_larger" else max(ratios)
    return [one] * len(lengths), [math.floor(one * n + 0.5) for n in lengths]


def source_points(n: int, length: int, scale: float, mode: str, region: tuple[float, float] = (0.0, 1.0)) -> Array:
    """The coordinate of each of n output elements along an axis of the input, in elements."""
    x = np.arange(n, dtype=np.float64)
    width = scale * length
    if mode == "half_pixel":
        return (x + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        return length / 2 * (1 - n / width) + (x + 0.5) / scale - 0.5
    if mode == "pytorch_half_pixel":
        return (x + 0.5) / scale - 0.5 if n > 1 else np.zeros(n)
    if mode == "align_corners":  # with a fractional output length, as in the test cases of onnx
        return x * (length - 1) / (width - 1) if width != 1 else np.zeros(n)
    if mode == "asymmetric":
        return x / scale
    if mode == "tf_crop_and_resize":
        start, end = region
        if n == 1:
            return np.full(n, 0.5 * (start + end) * (length - 1))
        return start * (length - 1) + x * (end - start) * (length - 1) / (width - 1)
    raise Unsupported(f"coordinate_transformation_mode {mode!r}")


_ROUNDING: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda p: np.ceil(p - 0.5),
    "round_prefer_ceil": lambda p: np.floor(p + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def nearest(points: Array, length: int, mode: str) -> Array:
    """The index of the nearest element of each point."""
    found: Array = np.clip(_ROUNDING[mode](points), 0, length - 1).astype(np.intp)
    return found


def cubic(distance: Array, a: float) -> Array:
    """Keys' cubic kernel."""
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def mixed(points: Array, length: int, mode: str, shrink: float, a: float, exclude_outside: bool) -> tuple[Array, Array]:
    """The indices that each point is interpolated from, and their weights, both (taps, points); `shrink` widens the kernel.

    Outside the axis the nearest element is repeated, or excluded.
    """
    if mode not in ("linear", "cubic"):
        raise Unsupported(f"mode {mode!r}")
    reach = math.ceil((1 if mode == "linear" else 2) / shrink)
    index = np.floor(points).astype(np.intp) + np.arange(1 - reach, 1 + reach)[:, None]
    distance = (index - points) * shrink
    weights = np.maximum(1 - np.abs(distance), 0) if mode == "linear" else cubic(distance, a)
    if exclude_outside:
        weights = np.where((index >= 0) & (index < length), weights, 0)
    if shrink != 1 or exclude_outside:
        weights = weights / weights.sum(0)
    return np.clip(index, 0, length - 1), weights
