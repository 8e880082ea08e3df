"""Pooling, LRN and BatchNormalization in channels-last layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.fusion.epilogues import Chain, factors, single
from onnxbridge.runtime.executor.fusion.plan_rewriter import PlanRewriter
from onnxbridge.runtime.executor.kernels import pooling as native
from onnxbridge.runtime.executor.kernels.normalization import MANY, means
from onnxbridge.runtime.executor.kernels.run.call_recorder import mark_incomplete
from onnxbridge.runtime.executor.numpy.kernels.windows import out_sizes
from onnxbridge.runtime.executor.numpy.padding import claim_output, window
from onnxbridge.runtime.executor.plan import Step


def rewrite(rewriter: PlanRewriter, pool: Pool) -> None:
    """Replace 2-d pooling, means, LRN and BatchNormalization in float32 by kernels."""
    for i, step in rewriter.steps("MaxPool", "AveragePool"):
        if rewriter.single(step):
            rewriter.swap(i, _pool(step, pool))
    for i, step in rewriter.steps("GlobalAveragePool", "ReduceMean"):
        rewriter.swap(i, _mean(step, pool))
    for i, step in rewriter.steps("LRN"):
        if step.attrs["beta"] == 0.75:
            rewriter.swap(i, _lrn(step, pool))
    for i, step in rewriter.steps("BatchNormalization"):
        scale = rewriter.constant(step.sources[1])
        found = factors(rewriter, step, step.sources[0], len(scale)) if single(scale) else None
        if found is not None:
            _affine(rewriter, i, step, found, pool)


def _is_float_4d(x: Any) -> bool:
    return bool(x.ndim == 4 and x.dtype == np.float32 and x.size)


def _pool(step: Step, pool: Pool) -> Callable[..., Any]:
    largest = step.op == "MaxPool"

    def run(X: Any, **attrs: Any) -> Any:
        if not _is_float_4d(X):
            return None
        dilations = attrs.get("dilations")
        if not largest and dilations and any(d != 1 for d in dilations):
            return None
        w = window(X, attrs["kernel_shape"], attrs["strides"], attrs["pads"], dilations, attrs["auto_pad"])
        ceil = bool(attrs["ceil_mode"])
        claim_output(X, X.shape[1], w, ceil)
        out = out_sizes(X.shape[2:], w.kernel, w.strides, w.pads, w.dilations, ceil_mode=ceil)
        return native.pooled(X, w, out, largest, bool(attrs.get("count_include_pad")), pool)

    return run


def _mean(step: Step, pool: Pool) -> Callable[..., Any]:
    def run(X: Any, *more: Any, **attrs: Any) -> Any:
        axes = tuple(a % X.ndim for a in more[0]) if more and more[0] and X.ndim else ()
        keepdims = attrs.get("keepdims", 1)
        if axes == (X.ndim - 1,) and X.dtype == np.float32 and X.size and X.shape[-1] <= MANY:
            y = means(X, pool)
            return y if keepdims else y.reshape(X.shape[:-1])
        if X.dtype != np.float32 or not X.size or X.ndim < 4 or (step.op == "ReduceMean" and sorted(axes) != [*range(2, X.ndim)]):
            return None
        y = native.means(X, pool)
        return y if keepdims else y.reshape(y.shape[:2])

    return run


def _lrn(step: Step, pool: Pool) -> Callable[..., Any]:
    def run(X: Any, **attrs: Any) -> Any:
        return native.lrn(X, attrs["size"], attrs["alpha"], attrs["bias"], pool) if _is_float_4d(X) else None

    return run


def _affine(rewriter: PlanRewriter, i: int, step: Step, found: tuple[Any, Any], pool: Pool) -> None:
    chain = Chain(rewriter, i, step)
    scale, shift = chain.factors(*found)
    clip = chain.activation(clip=True)
    low, high = clip.low, clip.high
    scale, shift = scale.astype(np.float32), shift.astype(np.float32)

    def run(X: Any) -> Any:
        if X.dtype == np.float32 and X.size and X.ndim > 3:
            return native.affine(X, scale, shift, low, high, pool)
        if X.dtype == np.float32 and X.size and X.ndim in (2, 3):  # no spatial axes, or one
            image = X[:, :, None, None] if X.ndim == 2 else X[:, :, None]
            return native.affine(image, scale, shift, low, high, pool).reshape(X.shape)
        mark_incomplete()
        each = (-1, *(1,) * (X.ndim - 2))
        return np.clip(X * scale.reshape(each) + shift.reshape(each), np.float32(low), np.float32(high))

    rewriter.fuse(chain.steps, "+".join(chain.names), run, [step.sources[0]], [chain.result])
