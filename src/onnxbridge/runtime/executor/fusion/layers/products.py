"""Matrix products with constant weights, together with the bias, sum and activation that follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.fusion.epilogues import Chain, other, single
from onnxbridge.runtime.executor.fusion.plan_rewriter import PlanRewriter
from onnxbridge.runtime.executor.kernels.convolution import product
from onnxbridge.runtime.executor.plan import NOTHING, Step


def rewrite(rewriter: PlanRewriter, pool: Pool) -> None:
    """Replace MatMul and Gemm with constant float32 weights by kernels."""
    for i, step in rewriter.steps("MatMul", "Gemm"):
        begun = _weights(rewriter, step)
        if begun is None:
            continue
        (w, bias), least, chain = begun, 1, Chain(rewriter, i, step)
        if bias is None and (add := chain.next("Add")) is not None:
            value = rewriter.constant(other(add, chain.result))
            if single(value) and value.ndim in (1, 2) and value.size == value.shape[-1] == w.shape[1]:
                bias, least = value.reshape(-1), value.ndim
                chain.append()
        sources = [step.sources[0], *chain.addend()]
        run = product(w, bias, chain.activation(), pool)
        fused_plan = run if least == 1 else _of_rows(run)
        rewriter.fuse(chain.steps, "+".join(chain.names), fused_plan, sources, [chain.result], how=run.how)  # type: ignore[attr-defined]


def _of_rows(run: Callable[..., Any]) -> Callable[..., Any]:
    """A product whose bias has two axes, so that a vector becomes a row."""
    return lambda x, *more: run(x[None] if x.ndim == 1 else x, *more)


def _weights(rewriter: PlanRewriter, step: Step) -> tuple[Any, Any] | None:
    """(depth, columns) and the bias, if the step is a plain product with them."""
    w = rewriter.constant(step.sources[1])
    if not single(w) or w.ndim != 2 or not w.size or rewriter.constant(step.sources[0]) is not None:
        return None
    if step.op == "MatMul":
        return w, None
    a = step.attrs
    w = w.T if a["transB"] else w
    bias = rewriter.constant(step.sources[2]) if len(step.sources) > 2 else None
    if a["transA"] or a["alpha"] != 1 or (len(step.sources) > 2 and step.sources[2] != NOTHING and bias is None):
        return None
    if bias is not None and (a["beta"] != 1 or not single(bias) or bias.size != w.shape[1] or bias.shape[-1] != bias.size):
        return None
    return w, bias if bias is None else bias.reshape(-1)
