"""Norms of rows, of channels and of their groups, and softmax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.fusion.epilogues import single
from onnxbridge.runtime.executor.fusion.plan_rewriter import Draft
from onnxbridge.runtime.executor.kernels import normalization as native
from onnxbridge.runtime.executor.kernels.run.call_recorder import unrecorded
from onnxbridge.runtime.executor.plan import NOTHING, Step


def join(draft: Draft, pool: Pool) -> None:
    """Put native kernels in the place of norms, and of Softmax along the last axis."""
    for i, step in draft.steps("Softmax"):
        draft.swap(i, _softmax(step, pool))
    for i, step in draft.steps("InstanceNormalization", "GroupNormalization"):
        if all(single(draft.constant(s)) for s in step.sources[1:]) and len(step.sources) == 3:
            draft.swap(i, _groups(step, pool))
    for i, step in draft.steps("LayerNormalization"):
        if draft.single(step) and step.attrs["axis"] == -1 and single(draft.constant(step.sources[1])):
            shift = draft.constant(step.sources[2]) if len(step.sources) > 2 else None
            if len(step.sources) < 3 or step.sources[2] == NOTHING or single(shift):
                draft.swap(i, _layer(step, pool))


def _groups(step: Step, pool: Pool) -> Callable[..., Any]:
    """The mean and the variance of each channel, or of a group of them, over all pixels of a picture or a line."""
    plain = unrecorded(step.run)

    def run(X: Any, scale: Any, shift: Any, **attrs: Any) -> Any:
        groups = attrs.get("num_groups", X.shape[1] if X.ndim > 1 else 0)
        fits = X.dtype == np.float32 and X.size and X.ndim in (3, 4) and groups > 0 and not X.shape[1] % groups
        if not fits or not scale.shape == shift.shape == X.shape[1:2]:
            return plain(X, scale, shift, **attrs)
        picture = X[:, :, None] if X.ndim == 3 else X
        return native.grouped(picture, groups, scale, shift, attrs["epsilon"], pool).reshape(X.shape)

    return run


def _layer(step: Step, pool: Pool) -> Callable[..., Any]:
    plain = unrecorded(step.run)

    def run(X: Any, Scale: Any, B: Any = None, **attrs: Any) -> Any:
        fits = Scale.shape == X.shape[-1:] and (B is None or B.shape == Scale.shape)
        if not fits or X.dtype != np.float32 or not X.size:
            return plain(X, Scale, B, **attrs)
        return native.normalized(X, None, Scale, B, attrs["epsilon"], pool)[0]

    return run


def _softmax(step: Step, pool: Pool) -> Callable[..., Any]:
    plain = unrecorded(step.run)

    def run(input: Any, *, axis: int) -> Any:
        if input.dtype == np.float32 and input.size and axis % input.ndim == input.ndim - 1:
            return native.softmax(input, pool)
        return plain(input, axis=axis)

    return run
