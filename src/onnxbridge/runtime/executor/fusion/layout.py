"""Concatenation and shuffling of channels without leaving the layout with channels last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxbridge.hub.io.resource_limits import claim
from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.fusion.plan_rewriter import Draft
from onnxbridge.runtime.executor.kernels.array_layout import address, copy, plain
from onnxbridge.runtime.executor.kernels.compile.kernel import loop
from onnxbridge.runtime.executor.kernels.run.call_recorder import beside, unrecorded
from onnxbridge.runtime.executor.kernels.run.work_partition import chunks
from onnxbridge.runtime.executor.plan import Step


def join(draft: Draft, pool: Pool) -> None:
    """Concat along the channels, and Reshape, Transpose, Reshape that interleaves groups of channels."""
    for i, step in draft.steps("Concat"):
        draft.swap(i, _concat(step, pool))
        if step.attrs["axis"] in (1, -3):
            _written_by_convolutions(draft, i, step, pool)
    for i, step in draft.steps("Transpose"):
        if tuple(step.attrs["perm"] or ()) == (0, 2, 1, 3, 4):
            _shuffle(draft, i, step, pool)
    for i, step in draft.steps("Reshape", "Flatten"):
        draft.swap(i, _reshaped(step, pool))
    for i, step in draft.steps("Gather"):
        index = draft.constant(step.sources[1])
        if isinstance(index, np.ndarray) and index.ndim == 0:
            draft.swap(i, _picked(step))


def _last(x: Any) -> bool:
    return bool(x.ndim == 4 and x.transpose(0, 2, 3, 1).flags.c_contiguous)


def _as_bits(dtype: np.dtype[Any]) -> bool:
    """Whether elements of this type may be moved as one or two of float32 are."""
    return dtype != np.float32 and dtype.itemsize in (4, 8) and not dtype.hasobject


def _concat(step: Step, pool: Pool) -> Callable[..., Any]:
    rule = unrecorded(step.run)

    def run(*inputs: Any, axis: int) -> Any:
        x = inputs[0]
        if _as_bits(x.dtype) and x.size and all(y.dtype == x.dtype and y.flags.c_contiguous and y.ndim for y in inputs):
            return run(*(y.view(np.float32) for y in inputs), axis=axis).view(x.dtype)
        if any(y.dtype != np.float32 or y.ndim != x.ndim for y in inputs) or not -x.ndim <= axis < x.ndim or not x.size:
            return rule(*inputs, axis=axis)
        axis %= x.ndim
        rest = {(*y.shape[:axis], *y.shape[axis + 1 :]) for y in inputs}
        if len(rest) != 1:
            return rule(*inputs, axis=axis)
        shape = (*x.shape[:axis], sum(y.shape[axis] for y in inputs), *x.shape[axis + 1 :])
        claim(shape, x.dtype)
        swapped = any(_last(y) and not y.flags.c_contiguous for y in inputs)
        if swapped:
            n, c, h, w = shape
            z = pool.empty((n, h, w, c)).transpose(0, 3, 1, 2)
        else:
            z = pool.empty(shape)
        at = 0
        for y in inputs:
            if y.size:
                copy(y, z[(slice(None),) * axis + (slice(at, at + y.shape[axis]),)])
            at += y.shape[axis]
        return z

    return run


def _written_by_convolutions(draft: Draft, i: int, step: Step, pool: Pool) -> None:
    """Let the convolutions whose results are used here only write them where they belong, instead of copying them."""
    rule, places, sources = step.run, [i], list[int]()
    parts: list[tuple[slice, Callable[..., Any] | None, Any]] = []  # arguments, a convolution, its result's shape
    for slot in step.sources:
        found = draft.maker(slot)
        whole = getattr(found[1].run, "shape_of", None) if found is not None and draft.used_by(slot, i) else None
        if found is None or whole is None or step.sources.count(slot) > 1:
            parts.append((slice(len(sources), len(sources) + 1), None, None))
            sources.append(slot)
        else:
            parts.append((slice(len(sources), len(sources) + len(found[1].sources)), found[1].run, whole))
            sources += found[1].sources
            places.append(found[0])
    if len(places) == 1:
        return

    def run(*given: Any) -> Any:
        shapes = []
        for own, convolve, whole in parts:
            x = given[own.start]
            if not isinstance(x, np.ndarray) or x.dtype != np.float32 or x.ndim != 4 or not x.size:
                break
            n, c, h, w = x.shape
            shapes.append((n, h, w, c) if convolve is None else whole(x))
        if len(shapes) < len(parts) or len({s[:3] for s in shapes}) > 1:
            beside()
            return rule(*(given[own.start] if f is None else f(*given[own]) for own, f, _ in parts), axis=1)
        shape = (*shapes[0][:3], sum(s[3] for s in shapes))
        claim(shape, np.float32)
        y, at = pool.empty(shape), 0
        for (own, convolve, _), (*_, channels) in zip(parts, shapes, strict=True):
            if convolve is None:
                copy(given[own.start], y.transpose(0, 3, 1, 2)[:, at : at + channels])
            else:
                convolve(*given[own], into=y[..., at : at + channels])
            at += channels
        return y.transpose(0, 3, 1, 2)

    draft.join(places, "Concat", run, sources, step.targets)


def _reshaped(step: Step, pool: Pool) -> Callable[..., Any]:
    rule = step.run

    def run(data: Any, *more: Any, **attrs: Any) -> Any:
        if isinstance(data, np.ndarray) and data.dtype == np.float32 and data.size and not data.flags.c_contiguous:
            data = plain(data, pool)
        return rule(data, *more, **attrs)

    return run


def _picked(step: Step) -> Callable[..., Any]:
    """One element along an axis, which needs no copy."""
    rule = unrecorded(step.run)

    def run(data: Any, indices: Any, *, axis: int) -> Any:
        at = int(indices)
        if not isinstance(data, np.ndarray) or not -data.ndim <= axis < data.ndim:
            return rule(data, indices, axis=axis)
        if not -data.shape[axis] <= at < data.shape[axis]:
            return rule(data, indices, axis=axis)
        return data[(slice(None),) * (axis % data.ndim) + (at, ...)]

    return run


def _shuffle(draft: Draft, i: int, step: Step, pool: Pool) -> None:
    made, used = draft.maker(step.sources[0]), draft.user(step.targets[0])
    if made is None or used is None or draft.user(step.sources[0]) is None:
        return
    (j, split), (k, whole) = made, used
    if split.op != "Reshape" or whole.op != "Reshape" or split.forms or whole.forms:
        return
    five, four = draft.constant(split.sources[1]), draft.constant(whole.sources[1])
    if five is None or four is None or len(five) != 5 or len(four) != 4:
        return
    rules, attrs = (split.run, step.run, whole.run), (split.attrs, step.attrs, whole.attrs)

    def run(x: Any) -> Any:
        groups, each = five[1], five[2]
        kept = x.ndim == 4 and (*five[:1], *five[3:]) == (x.shape[0], *x.shape[2:]) and four == x.shape
        if not kept or not _last(x) or groups * each != x.shape[1] or x.dtype != np.float32:
            beside()
            return rules[2](rules[1](rules[0](x, five, **attrs[0]), **attrs[1]), four, **attrs[2])
        seen = x.transpose(0, 2, 3, 1)
        y = pool.empty(seen.shape)
        pixels = y.size // (groups * each)
        chunk, units = chunks(pixels, 2 * groups * each)
        loop("layout", "interleaved")(address(seen), address(y), pixels, groups, each, chunk, units=units)
        return y.transpose(0, 3, 1, 2)

    draft.join([j, i, k], "Shuffle", run, [split.sources[0]], whole.targets)
