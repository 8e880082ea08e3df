"""Elementwise operators that are not fused with others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxbridge.hub.io.resource_limits import claim_broadcast
from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.fusion.epilogues import activation
from onnxbridge.runtime.executor.fusion.plan_rewriter import PlanRewriter
from onnxbridge.runtime.executor.kernels.convolution import Epilogue, apply_epilogue
from onnxbridge.runtime.executor.kernels.elementwise import OPERATORS, combined


def rewrite(rewriter: PlanRewriter, pool: Pool) -> None:
    """Replace elementwise operators in float32 by kernels."""
    for i, step in rewriter.steps(*OPERATORS):
        rewriter.swap(i, _binary(step.op, pool))
    for i, step in rewriter.steps():
        epilogue = activation(rewriter, step)
        if epilogue is not None:
            rewriter.swap(i, _unary(epilogue, pool))


def _binary(op: str, pool: Pool) -> Callable[..., Any]:
    def run(A: Any, B: Any) -> Any:
        if A.dtype != np.float32 or B.dtype != np.float32 or not A.size or not B.size:
            return None
        claim_broadcast(A, B)
        return combined(op, A, B, pool)

    return run


def _unary(epilogue: Epilogue, pool: Pool) -> Callable[..., Any]:
    return lambda X, *more, **attrs: apply_epilogue(X, epilogue, pool) if X.dtype == np.float32 and X.size else None
