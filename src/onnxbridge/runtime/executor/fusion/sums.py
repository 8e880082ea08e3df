"""Sums, and norms of vectors, over adjacent axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxbridge.hub.io.resource_limits import claim
from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.fusion.plan_rewriter import PlanRewriter
from onnxbridge.runtime.executor.kernels.normalization import MANY, OF, sums


def rewrite(rewriter: PlanRewriter, pool: Pool) -> None:
    """Replace sums in float32 by kernels."""
    for i, step in rewriter.steps(*OF):
        rewriter.swap(i, _sum(step.op, pool))


def _sum(op: str, pool: Pool) -> Callable[..., Any]:
    def run(data: Any, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Any:
        if data.dtype != np.float32 or not data.size or not data.ndim or (not axes and noop_with_empty_axes):
            return None
        found = sorted(a % data.ndim for a in axes) if axes else [*range(data.ndim)]
        first, last = found[0], found[-1]
        count = int(np.prod(data.shape[first : last + 1]))
        if found != [*range(first, last + 1)] or count > MANY:
            return None
        shape = (*data.shape[:first], *((1,) * len(found) if keepdims else ()), *data.shape[last + 1 :])
        claim(shape, data.dtype)
        return sums(op, data, first, count, pool).reshape(shape)

    return run
