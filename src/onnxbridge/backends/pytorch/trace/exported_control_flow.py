"""Control flow in exported programs with torch.cond and while_loop, whose bodies are graphs.

Both take functions and capture outer values by themselves. Neither may return an input, so results are cloned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._higher_order_ops.while_loop import while_loop

MAX_UNROLLED = 8
"""Loops of at most this many iterations are unrolled."""


def export_cond(
    cond: torch.Tensor, then_body: Callable[..., Any], then_outer: Sequence[Any], else_body: Callable[..., Any],
    else_outer: Sequence[Any],
) -> Any:  # fmt: skip
    """A torch.cond over both branches."""

    def then_branch() -> tuple[torch.Tensor, ...]:
        return tuple(cloned(r) for r in then_body(*then_outer))

    def else_branch() -> tuple[torch.Tensor, ...]:
        return tuple(cloned(r) for r in else_body(*else_outer))

    return torch.cond(cond.reshape([]).to(torch.bool), then_branch, else_branch, ())


def cloned(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone(memory_format=torch.contiguous_format)


def export_loop(
    count: Any, cond: torch.Tensor | None, states: Sequence[torch.Tensor], body: Callable[..., Any], outer: Sequence[Any],
    scans: int, has_condition: bool, device: Any,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """A loop as `run_loop` runs it. Scan outputs are written into tensors of `count` iterations and cut at the last iteration."""
    condition = torch.ones((), dtype=torch.bool, device=device) if cond is None else cond.reshape([]).to(torch.bool)
    states = [cloned(s) for s in states]
    iteration = torch.zeros((), dtype=torch.int64, device=device)
    _, *first = body(iteration, condition, *states, *outer)
    for before, after in zip(states, first, strict=False):
        if before.dtype != after.dtype or before.ndim != after.ndim or before.shape != after.shape:
            raise ValueError(f"a loop whose state changes its shape from {list(before.shape)} to {list(after.shape)}")
    max_count = count
    if isinstance(count, torch.Tensor):
        count = count.reshape([])
        max_count = count.clamp(min=0).item() if scans else None
    if scans and max_count is None:
        raise ValueError("a loop with scan outputs and no maximum trip count")
    buffers = [r.new_zeros([max_count, *r.shape]) for r in first[len(states) :]]

    def proceeds(iteration: torch.Tensor, condition: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
        return condition.clone() if count is None else condition.logical_and(iteration < count)

    def step(iteration: torch.Tensor, condition: torch.Tensor, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        proceed, *results = body(iteration, torch.ones((), dtype=torch.bool, device=device), *values[: len(states)], *outer)
        proceed = proceed.reshape([]).to(torch.bool) if has_condition else condition
        collected = zip(values[len(states) :], results[len(states) :], strict=True)
        filled = [buffer.index_put((iteration.reshape(1),), r.unsqueeze(0)) for buffer, r in collected]
        return iteration + 1, proceed.clone(), *(cloned(r) for r in results[: len(states)]), *filled

    iteration, condition, *outputs = while_loop(proceeds, step, (iteration, condition.clone(), *states, *buffers))
    if not has_condition:
        return tuple(outputs)
    iterations = iteration.item() if scans else None
    return (*outputs[: len(states)], *(buffer[:iterations] for buffer in outputs[len(states) :]))
