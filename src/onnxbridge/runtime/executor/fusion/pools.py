"""Pooling, LRN and BatchNormalization by themselves, on data with channels last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.fusion.convolutions import affine, factors
from onnxbridge.runtime.executor.fusion.epilogues import activation
from onnxbridge.runtime.executor.fusion.plan_rewriter import Draft
from onnxbridge.runtime.executor.kernels import pooling as native
from onnxbridge.runtime.executor.kernels.normalization import MANY, means
from onnxbridge.runtime.executor.kernels.run.call_recorder import beside, unrecorded
from onnxbridge.runtime.executor.numpy.kernels.windows import out_sizes
from onnxbridge.runtime.executor.numpy.padding import claim_output, window
from onnxbridge.runtime.executor.plan import Step


def join(draft: Draft, pool: Pool) -> None:
    """Put native kernels in the place of two-dimensional pooling, and of means along the last axis, in float32."""
    for i, step in draft.steps("MaxPool", "AveragePool"):
        if draft.single(step):
            draft.swap(i, _window(step, pool))
    for i, step in draft.steps("GlobalAveragePool", "ReduceMean"):
        draft.swap(i, _everywhere(step, pool))
    for i, step in draft.steps("LRN"):
        if step.attrs["beta"] == 0.75:
            draft.swap(i, _response(step, pool))
    for i, step in draft.steps("BatchNormalization"):
        found = affine(draft, step, step.sources[0])
        if found is not None:
            _affine(draft, i, step, found, pool)


def _usual(x: Any) -> bool:
    return bool(x.ndim == 4 and x.dtype == np.float32 and x.size)


def _window(step: Step, pool: Pool) -> Callable[..., Any]:
    plain, largest = unrecorded(step.run), step.op == "MaxPool"

    def run(X: Any, **attrs: Any) -> Any:
        if not _usual(X):
            return plain(X, **attrs)
        dilations = attrs.get("dilations")
        if not largest and dilations and any(d != 1 for d in dilations):
            return plain(X, **attrs)
        w = window(X, attrs["kernel_shape"], attrs["strides"], attrs["pads"], dilations, attrs["auto_pad"])
        ceil = bool(attrs["ceil_mode"])
        claim_output(X, X.shape[1], w, ceil)
        out = out_sizes(X.shape[2:], w.kernel, w.strides, w.pads, w.dilations, ceil_mode=ceil)
        return native.pooled(X, w, out, largest, bool(attrs.get("count_include_pad")), pool)

    return run


def _everywhere(step: Step, pool: Pool) -> Callable[..., Any]:
    plain = unrecorded(step.run)

    def run(X: Any, *more: Any, **attrs: Any) -> Any:
        axes = tuple(a % X.ndim for a in more[0]) if more and more[0] and X.ndim else ()
        kept = attrs.get("keepdims", 1)
        if axes == (X.ndim - 1,) and X.dtype == np.float32 and X.size and X.shape[-1] <= MANY:
            y = means(X, pool)
            return y if kept else y.reshape(X.shape[:-1])
        if X.dtype != np.float32 or not X.size or X.ndim < 4 or (step.op == "ReduceMean" and sorted(axes) != [*range(2, X.ndim)]):
            return plain(X, *more, **attrs)
        y = native.means(X, pool)
        return y if kept else y.reshape(y.shape[:2])

    return run


def _response(step: Step, pool: Pool) -> Callable[..., Any]:
    plain = unrecorded(step.run)

    def run(X: Any, **attrs: Any) -> Any:
        return native.response(X, attrs["size"], attrs["alpha"], attrs["bias"], pool) if _usual(X) else plain(X, **attrs)

    return run


def _affine(draft: Draft, i: int, step: Step, found: tuple[Any, Any], pool: Pool) -> None:
    scale, shift = found
    chain, slot, names = [i], step.targets[0], [step.op]
    while (follow := draft.user(slot)) is not None and (change := factors(draft, follow[1], slot, scale.shape[0])) is not None:
        scale, shift = scale * change[0], shift * change[0] + change[1]
        chain.append(follow[0])
        slot = follow[1].targets[0]
    low, high = -np.inf, np.inf
    follow = draft.user(slot)
    if follow is not None and (ending := activation(draft, follow[1])) is not None and not ending.curve:
        chain.append(follow[0])
        slot, low, high = follow[1].targets[0], ending.low, ending.high
        names.append(follow[1].op)
    scale, shift = scale.astype(np.float32), shift.astype(np.float32)

    def run(X: Any) -> Any:
        if X.dtype == np.float32 and X.size and X.ndim > 3:
            return native.affine(X, scale, shift, low, high, pool)
        if X.dtype == np.float32 and X.size and X.ndim in (2, 3):  # rows, or lines: pictures of one row
            picture = X[:, :, None, None] if X.ndim == 2 else X[:, :, None]
            return native.affine(picture, scale, shift, low, high, pool).reshape(X.shape)
        beside()
        each = (-1, *(1,) * (X.ndim - 2))
        return np.clip(X * scale.reshape(each) + shift.reshape(each), np.float32(low), np.float32(high))

    draft.join(chain, "+".join(names), run, [step.sources[0]], [slot])
