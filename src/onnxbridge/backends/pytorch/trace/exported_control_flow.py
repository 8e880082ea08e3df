"""Control flow inside an exported program: PyTorch's `cond` and `while_loop`, which hold the bodies as graphs of their own.

Both take functions, and find by themselves what those use from around them. Neither may give what it took, so that is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._higher_order_ops.while_loop import while_loop

UNROLLED = 8
"""A loop of so many turns at most is written out; a graph of more would be large for nothing."""


def both(
    cond: torch.Tensor, then_body: Callable[..., Any], then_outer: Sequence[Any], else_body: Callable[..., Any],
    else_outer: Sequence[Any],
) -> Any:  # fmt: skip
    """Both branches, for the program to choose from."""

    def then_branch() -> tuple[torch.Tensor, ...]:
        return tuple(copied(r) for r in then_body(*then_outer))

    def else_branch() -> tuple[torch.Tensor, ...]:
        return tuple(copied(r) for r in else_body(*else_outer))

    return torch.cond(cond.reshape([]).to(torch.bool), then_branch, else_branch, ())


def copied(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone(memory_format=torch.contiguous_format)


def looped(
    count: Any, cond: torch.Tensor | None, states: Sequence[torch.Tensor], body: Callable[..., Any], outer: Sequence[Any],
    scans: int, asks: bool, device: Any,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """A loop as `repeat` runs it. What it collects is put into tensors that hold `count` turns, and cut off at the last one."""
    going = torch.ones((), dtype=torch.bool, device=device) if cond is None else cond.reshape([]).to(torch.bool)
    states = [copied(s) for s in states]
    turn = torch.zeros((), dtype=torch.int64, device=device)
    _, *first = body(turn, going, *states, *outer)
    for before, after in zip(states, first, strict=False):
        if before.dtype != after.dtype or before.ndim != after.ndim or before.shape != after.shape:
            raise ValueError(f"a loop in which a state of {list(before.shape)} becomes one of {list(after.shape)}")
    most = count
    if isinstance(count, torch.Tensor):
        count = count.reshape([])
        most = count.clamp(min=0).item() if scans else None
    if scans and most is None:
        raise ValueError("a loop that collects results, and that only a condition ends")
    kept = [r.new_zeros([most, *r.shape]) for r in first[len(states) :]]

    def goes(turn: torch.Tensor, going: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
        return going.clone() if count is None else going.logical_and(turn < count)

    def step(turn: torch.Tensor, going: torch.Tensor, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        more, *results = body(turn, torch.ones((), dtype=torch.bool, device=device), *values[: len(states)], *outer)
        more = more.reshape([]).to(torch.bool) if asks else going
        collected = zip(values[len(states) :], results[len(states) :], strict=True)
        filled = [held.index_put((turn.reshape(1),), r.unsqueeze(0)) for held, r in collected]
        return turn + 1, more.clone(), *(copied(r) for r in results[: len(states)]), *filled

    turn, going, *found = while_loop(goes, step, (turn, going.clone(), *states, *kept))
    if not asks:
        return tuple(found)
    turns = turn.item() if scans else None
    return (*found[: len(states)], *(held[:turns] for held in found[len(states) :]))
