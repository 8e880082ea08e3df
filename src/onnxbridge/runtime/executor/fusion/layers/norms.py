"""Normalization of rows, of channels and of groups of channels, and softmax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.fusion.epilogues import single
from onnxbridge.runtime.executor.fusion.plan_rewriter import PlanRewriter
from onnxbridge.runtime.executor.kernels import normalization as native
from onnxbridge.runtime.executor.plan import NOTHING


def rewrite(rewriter: PlanRewriter, pool: Pool) -> None:
    """Replace normalization, and Softmax along the last axis, by kernels."""
    for i, _ in rewriter.steps("Softmax"):
        rewriter.swap(i, _softmax(pool))
    for i, step in rewriter.steps("InstanceNormalization", "GroupNormalization"):
        if all(single(rewriter.constant(s)) for s in step.sources[1:]) and len(step.sources) == 3:
            rewriter.swap(i, _group_norm(pool))
    for i, step in rewriter.steps("LayerNormalization"):
        if rewriter.single(step) and step.attrs["axis"] == -1 and single(rewriter.constant(step.sources[1])):
            shift = rewriter.constant(step.sources[2]) if len(step.sources) > 2 else None
            if len(step.sources) < 3 or step.sources[2] == NOTHING or single(shift):
                rewriter.swap(i, _layer_norm(pool))


def _group_norm(pool: Pool) -> Callable[..., Any]:
    """The mean and the variance of each channel, or of a group of them, over all spatial positions."""

    def run(X: Any, scale: Any, shift: Any, **attrs: Any) -> Any:
        groups = attrs.get("num_groups", X.shape[1] if X.ndim > 1 else 0)
        fits = X.dtype == np.float32 and X.size and X.ndim in (3, 4) and groups > 0 and not X.shape[1] % groups
        if not fits or not scale.shape == shift.shape == X.shape[1:2]:
            return None
        image = X[:, :, None] if X.ndim == 3 else X
        return native.grouped(image, groups, scale, shift, attrs["epsilon"], pool).reshape(X.shape)

    return run


def _layer_norm(pool: Pool) -> Callable[..., Any]:
    def run(X: Any, Scale: Any, B: Any = None, **attrs: Any) -> Any:
        fits = Scale.shape == X.shape[-1:] and (B is None or B.shape == Scale.shape)
        if not fits or X.dtype != np.float32 or not X.size:
            return None
        return native.normalized(X, Scale, B, attrs["epsilon"], pool)

    return run


def _softmax(pool: Pool) -> Callable[..., Any]:
    def run(input: Any, *, axis: int) -> Any:
        if input.dtype == np.float32 and input.size and axis % input.ndim == input.ndim - 1:
            return native.softmax(input, pool)
        return None

    return run
