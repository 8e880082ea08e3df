"""Norms of rows (also as exporters write them out), of channels and of their groups, and softmax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.fusion.epilogues import other, scalar, single
from onnxbridge.runtime.executor.fusion.plan_rewriter import Draft
from onnxbridge.runtime.executor.kernels import normalization as native
from onnxbridge.runtime.executor.kernels.run.call_recorder import beside, unrecorded
from onnxbridge.runtime.executor.plan import NOTHING, Step


def join(draft: Draft, pool: Pool) -> None:
    """Put native kernels in the place of norms, and of Softmax along the last axis."""
    for i, step in draft.steps("Softmax"):
        draft.swap(i, _softmax(step, pool))
    for i, step in draft.steps("Div"):
        _written_out(draft, i, step, pool)
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


def _written_out(draft: Draft, i: int, step: Step, pool: Pool) -> None:
    """(x - mean) / sqrt(mean of squares + epsilon), times a scale, plus a shift: what LayerNormalization stands for."""
    apart, root = step.sources
    sqrt, sub = draft.maker(root), draft.maker(apart)
    add = _behind(draft, sqrt, "Sqrt")
    mean = None if add is None or add[1].op != "Add" else _with_constant(draft, add[1])
    if add is None or mean is None or sub is None or sub[1].op != "Sub":
        return
    squares = _behind(draft, draft.maker(mean[0]), "ReduceMean")
    first = draft.maker(sub[1].sources[1])
    if squares is None or first is None or first[1].op != "ReduceMean" or not draft.used_by(sub[1].sources[1], sub[0]):
        return
    (k, square), x, axes = squares, sub[1].sources[0], _last(draft, first[1])
    power = square.op == "Pow" and square.sources[0] == apart and scalar(draft.constant(square.sources[1])) == 2
    squared = power or (square.op == "Mul" and square.sources == (apart, apart))
    second = draft.maker(mean[0])
    if not squared or first[1].sources[0] != x or axes is None or second is None or _last(draft, second[1]) != axes:
        return
    if not draft.used_by(apart, i, k) or not draft.used_by(mean[0], add[0]) or sqrt is None or not draft.used_by(root, i):
        return
    places, slot = [first[0], sub[0], k, second[0], add[0], sqrt[0], i], step.targets[0]
    scale: Any = None
    shift: Any = None
    epsilon = mean[1]
    follow = draft.user(slot)
    if follow is not None and follow[1].op == "Mul" and _row(scale := draft.constant(other(follow[1], slot))):
        places, slot = [*places, follow[0]], follow[1].targets[0]
        follow = draft.user(slot)
        if follow is not None and follow[1].op == "Add" and _row(shift := draft.constant(other(follow[1], slot)), scale.shape):
            places, slot = [*places, follow[0]], follow[1].targets[0]
        else:
            shift = None

        def run(x: Any) -> Any:
            if x.dtype == np.float32 and x.size and axes % x.ndim == x.ndim - 1 and x.shape[-1:] == scale.shape:
                return native.normalized(x, None, scale, shift, epsilon, pool)[0]
            beside()
            d = x - x.mean(axes, keepdims=True, dtype=x.dtype)
            y = d / np.sqrt((d * d).mean(axes, keepdims=True, dtype=x.dtype) + x.dtype.type(epsilon)) * scale
            return y if shift is None else y + shift

        draft.join(places, "LayerNormalization", run, [x], [slot])


def _behind(draft: Draft, made: tuple[int, Step] | None, op: str) -> tuple[int, Step] | None:
    """The step that makes the first input of a step of this operator, for it alone."""
    if made is None or made[1].op != op or not draft.used_by(made[1].sources[0], made[0]):
        return None
    return draft.maker(made[1].sources[0])


def _with_constant(draft: Draft, step: Step) -> tuple[int, float] | None:
    """The operand of a step that is combined with a number, and the number."""
    for k in (0, 1):
        value = scalar(draft.constant(step.sources[k]))
        if value is not None:
            return step.sources[1 - k], value
    return None


def _last(draft: Draft, step: Step) -> int | None:
    """The one axis of a reduction that keeps its place."""
    axes = draft.constant(step.sources[1]) if len(step.sources) > 1 else None
    return int(axes[0]) if axes is not None and len(axes) == 1 and step.attrs["keepdims"] else None


def _row(value: Any, shape: tuple[int, ...] | None = None) -> bool:
    return single(value) and value.ndim == 1 and (shape is None or value.shape == shape)


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
