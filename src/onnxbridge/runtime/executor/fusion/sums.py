"""Sums, and norms of vectors, over axes that follow each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxbridge.hub.io.resource_limits import claim
from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.fusion.plan_rewriter import Draft
from onnxbridge.runtime.executor.kernels.normalization import MANY, OF, sums
from onnxbridge.runtime.executor.kernels.run.call_recorder import unrecorded
from onnxbridge.runtime.executor.plan import Step


def join(draft: Draft, pool: Pool) -> None:
    """Put native loops in the place of sums in float32."""
    for i, step in draft.steps(*OF):
        draft.swap(i, _sum(step, pool))


def _sum(step: Step, pool: Pool) -> Callable[..., Any]:
    plain, op = unrecorded(step.run), step.op

    def run(data: Any, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Any:
        if data.dtype != np.float32 or not data.size or not data.ndim or (not axes and noop_with_empty_axes):
            return plain(data, axes, keepdims=keepdims, noop_with_empty_axes=noop_with_empty_axes)
        found = sorted(a % data.ndim for a in axes) if axes else [*range(data.ndim)]
        first, last = found[0], found[-1]
        count = int(np.prod(data.shape[first : last + 1]))
        if found != [*range(first, last + 1)] or count > MANY:
            return plain(data, axes, keepdims=keepdims, noop_with_empty_axes=noop_with_empty_axes)
        shape = (*data.shape[:first], *((1,) * len(found) if keepdims else ()), *data.shape[last + 1 :])
        claim(shape, data.dtype)
        return sums(op, data, first, count, pool).reshape(shape)

    return run
