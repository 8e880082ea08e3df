"""Resize of images in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxbridge.hub.io.resource_limits import claim
from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.fusion.plan_rewriter import PlanRewriter
from onnxbridge.runtime.executor.kernels.resampling import Axis, resized
from onnxbridge.runtime.executor.numpy.resampling import mixed, nearest, scales_and_sizes, source_points


def rewrite(rewriter: PlanRewriter, pool: Pool) -> None:
    """Replace a Resize of rows and columns by a kernel."""
    for i, step in rewriter.steps("Resize"):
        if step.attrs["coordinate_transformation_mode"] != "tf_crop_and_resize":
            rewriter.swap(i, _resize(pool))


def _resize(pool: Pool) -> Callable[..., Any]:
    known: dict[Any, tuple[Axis, Axis] | None] = {}

    def run(X: Any, roi: Any = None, scales: Any = None, sizes: Any = None, **attrs: Any) -> Any:
        tables = None
        if X.ndim == 4 and X.dtype == np.float32 and X.size:
            key = (X.shape, tuple(scales or ()), tuple(sizes or ()))
            if key not in known:
                known[key] = _tables(X.shape, scales, sizes, attrs)
            tables = known[key]
        if tables is None:
            return None
        claim((*X.shape[:2], *(index.shape[1] for index, _ in tables)), X.dtype)
        return resized(X, *tables, pool)

    return run


def _tables(shape: tuple[int, ...], scales: Any, sizes: Any, attrs: dict[str, Any]) -> tuple[Axis, Axis] | None:
    """The interpolation of rows and columns, None for other kinds of Resize."""
    axes = list(range(4)) if attrs["axes"] is None else [a % 4 for a in attrs["axes"]]
    factors, wanted = scales_and_sizes([shape[a] for a in axes], scales, sizes, attrs["keep_aspect_ratio_policy"])
    found: list[Axis] = []
    for axis in range(4):
        length = n = shape[axis]
        factor = 1.0
        if axis in axes:
            n, factor = wanted[axes.index(axis)], factors[axes.index(axis)]
        if n == length and factor == 1:
            table = (np.arange(n)[None], np.ones((1, n)))
        elif axis < 2 or n < 1:
            return None
        else:
            points = source_points(n, length, factor, attrs["coordinate_transformation_mode"])
            if attrs["mode"] == "nearest":
                table = (nearest(points, length, attrs["nearest_mode"])[None], np.ones((1, n)))
            else:
                shrink = min(factor, 1.0) if attrs["antialias"] else 1.0
                table = mixed(points, length, attrs["mode"], shrink, attrs["cubic_coeff_a"], bool(attrs["exclude_outside"]))
        found.append((table[0].astype(np.int64), table[1].astype(np.float32)))
    return found[2], found[3]
