"""Concat, channel shuffle, Reshape and Gather that preserve the channels-last layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxbridge.hub.io.resource_limits import claim
from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.fusion.plan_rewriter import PlanRewriter
from onnxbridge.runtime.executor.kernels.array_layout import address, copy, plain, swapped
from onnxbridge.runtime.executor.kernels.compile.kernel import load_kernel
from onnxbridge.runtime.executor.kernels.run.call_recorder import mark_incomplete
from onnxbridge.runtime.executor.kernels.run.work_partition import chunks
from onnxbridge.runtime.executor.plan import Step


def rewrite(rewriter: PlanRewriter, pool: Pool) -> None:
    """Concat along the channels, and Reshape, Transpose, Reshape that interleaves groups of channels."""
    for i, _ in rewriter.steps("Concat"):
        rewriter.swap(i, _concat(pool))
    for i, step in rewriter.steps("Transpose"):
        if tuple(step.attrs["perm"] or ()) == (0, 2, 1, 3, 4):
            _shuffle(rewriter, i, step, pool)
    for i, step in rewriter.steps("Reshape", "Flatten"):
        rewriter.swap(i, _reshaped(step, pool))
    for i, step in rewriter.steps("Gather"):
        index = rewriter.constant(step.sources[1])
        if isinstance(index, np.ndarray) and index.ndim == 0:
            rewriter.swap(i, _select)


def _movable_as_float32(dtype: np.dtype[Any]) -> bool:
    """Whether elements of this type may be moved as one or two of float32 are."""
    return dtype != np.float32 and dtype.itemsize in (4, 8) and not dtype.hasobject


def _concat(pool: Pool) -> Callable[..., Any]:
    def run(*inputs: Any, axis: int) -> Any:
        x = inputs[0]
        if (
            _movable_as_float32(x.dtype)
            and x.size
            and all(y.dtype == x.dtype and y.flags.c_contiguous and y.ndim for y in inputs)
        ):
            found = run(*(y.view(np.float32) for y in inputs), axis=axis)
            return None if found is None else found.view(x.dtype)
        if any(y.dtype != np.float32 or y.ndim != x.ndim for y in inputs) or not -x.ndim <= axis < x.ndim or not x.size:
            return None
        axis %= x.ndim
        rest = {(*y.shape[:axis], *y.shape[axis + 1 :]) for y in inputs}
        if len(rest) != 1:
            return None
        shape = (*x.shape[:axis], sum(y.shape[axis] for y in inputs), *x.shape[axis + 1 :])
        claim(shape, x.dtype)
        last = any(y.ndim == 4 and swapped(y) for y in inputs)
        if last:
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


def _reshaped(step: Step, pool: Pool) -> Callable[..., Any]:
    rule = step.run

    def run(data: Any, *more: Any, **attrs: Any) -> Any:
        if isinstance(data, np.ndarray) and data.dtype == np.float32 and data.size and not data.flags.c_contiguous:
            data = plain(data, pool)
        return rule(data, *more, **attrs)

    return run


def _select(data: Any, indices: Any, *, axis: int) -> Any:
    """One element along an axis, which needs no copy."""
    at = int(indices)
    if not isinstance(data, np.ndarray) or not -data.ndim <= axis < data.ndim or not -data.shape[axis] <= at < data.shape[axis]:
        return None
    return data[(slice(None),) * (axis % data.ndim) + (at, ...)]


def _shuffle(rewriter: PlanRewriter, i: int, step: Step, pool: Pool) -> None:
    made, used = rewriter.maker(step.sources[0]), rewriter.user(step.targets[0])
    if made is None or used is None or rewriter.user(step.sources[0]) is None:
        return
    (j, split), (k, whole) = made, used
    if split.op != "Reshape" or whole.op != "Reshape" or split.forms or whole.forms:
        return
    five, four = rewriter.constant(split.sources[1]), rewriter.constant(whole.sources[1])
    if five is None or four is None or len(five) != 5 or len(four) != 4:
        return
    rules, attrs = (split.run, step.run, whole.run), (split.attrs, step.attrs, whole.attrs)

    def run(x: Any) -> Any:
        groups, each = five[1], five[2]
        fits = x.ndim == 4 and (*five[:1], *five[3:]) == (x.shape[0], *x.shape[2:]) and four == x.shape
        if not fits or not swapped(x) or groups * each != x.shape[1] or x.dtype != np.float32:
            mark_incomplete()
            return rules[2](rules[1](rules[0](x, five, **attrs[0]), **attrs[1]), four, **attrs[2])
        seen = x.transpose(0, 2, 3, 1)
        y = pool.empty(seen.shape)
        pixels = y.size // (groups * each)
        chunk, units = chunks(pixels, 2 * groups * each)
        load_kernel("layout", "shuffle_channels")(address(seen), address(y), pixels, groups, each, chunk, units=units)
        return y.transpose(0, 3, 1, 2)

    rewriter.fuse([j, i, k], "Shuffle", run, [split.sources[0]], whole.targets)
