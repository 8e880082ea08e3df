"""Matrix products with constant weights, together with the bias, sum and activation that follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.fusion.epilogues import activation, other, single
from onnxbridge.runtime.executor.fusion.plan_rewriter import Draft
from onnxbridge.runtime.executor.kernels.convolution import Ending, product
from onnxbridge.runtime.executor.plan import NOTHING, Step


def join(draft: Draft, pool: Pool) -> None:
    """Put native products in the place of MatMul and Gemm with constant float32 weights."""
    for i, step in draft.steps("MatMul", "Gemm"):
        begun = _weights(draft, step)
        if begun is None:
            continue
        (w, bias), least = begun, 1
        chain, slot = [i], step.targets[0]
        follow = draft.user(slot)
        if bias is None and follow is not None and follow[1].op == "Add":
            value = draft.constant(other(follow[1], slot))
            if single(value) and value.ndim in (1, 2) and value.size == value.shape[-1] == w.shape[1]:
                bias, least = value.reshape(-1), value.ndim
                chain.append(follow[0])
                slot = follow[1].targets[0]
                follow = draft.user(slot)
        sources = [step.sources[0]]
        if follow is not None and follow[1].op in ("Add", "Sum") and (more := other(follow[1], slot)) != NOTHING:
            chain.append(follow[0])
            slot = follow[1].targets[0]
            sources.append(more)
            follow = draft.user(slot)
        ending, names = Ending(), [step.op]
        if follow is not None and (found := activation(draft, follow[1])) is not None:
            chain.append(follow[0])
            slot, ending = follow[1].targets[0], found
            names.append(follow[1].op)
        run = product(w, bias, ending, pool)
        joined = run if least == 1 else _of_rows(run)
        draft.join(chain, "+".join(names), joined, sources, [slot], how=run.how)  # type: ignore[attr-defined]


def _of_rows(run: Callable[..., Any]) -> Callable[..., Any]:
    """A product whose bias has two axes, which a vector gets by it."""
    return lambda x, *more: run(x[None] if x.ndim == 1 else x, *more)


def _weights(draft: Draft, step: Step) -> tuple[Any, Any] | None:
    """(depth, columns) and the bias, if the step is a plain product with them."""
    w = draft.constant(step.sources[1])
    if not single(w) or w.ndim != 2 or not w.size or draft.constant(step.sources[0]) is not None:
        return None
    if step.op == "MatMul":
        return w, None
    a = step.attrs
    w = w.T if a["transB"] else w
    bias = draft.constant(step.sources[2]) if len(step.sources) > 2 else None
    if a["transA"] or a["alpha"] != 1 or (len(step.sources) > 2 and step.sources[2] != NOTHING and bias is None):
        return None
    if bias is not None and (a["beta"] != 1 or not single(bias) or bias.size != w.shape[1] or bias.shape[-1] != bias.size):
        return None
    return w, bias if bias is None else bias.reshape(-1)
