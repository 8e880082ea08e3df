"""Activations, sums and the like by themselves, written into memory that is used again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxbridge.hub.io.resource_limits import claim_broadcast
from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.fusion.epilogues import activation
from onnxbridge.runtime.executor.fusion.plan_rewriter import Draft
from onnxbridge.runtime.executor.kernels.convolution import Ending, bent
from onnxbridge.runtime.executor.kernels.elementwise import OPERATORS, combined
from onnxbridge.runtime.executor.kernels.run.call_recorder import unrecorded
from onnxbridge.runtime.executor.plan import Step


def join(draft: Draft, pool: Pool) -> None:
    """Put native loops in the place of what is elementwise in float32."""
    for i, step in draft.steps(*OPERATORS):
        draft.swap(i, _binary(step, pool))
    for i, step in draft.steps():
        ending = activation(draft, step)
        if ending is not None:
            draft.swap(i, _unary(step, ending, pool))


def _binary(step: Step, pool: Pool) -> Callable[..., Any]:
    plain, op = unrecorded(step.run), step.op

    def run(A: Any, B: Any) -> Any:
        if A.dtype != np.float32 or B.dtype != np.float32 or not A.size or not B.size:
            return plain(A, B)
        claim_broadcast(A, B)
        found = combined(op, A, B, pool)
        return plain(A, B) if found is None else found

    return run


def _unary(step: Step, ending: Ending, pool: Pool) -> Callable[..., Any]:
    plain = unrecorded(step.run)

    def run(X: Any, *more: Any, **attrs: Any) -> Any:
        if X.dtype != np.float32 or not X.size:
            return plain(X, *more, **attrs)
        return bent(X, ending, pool)

    return run
