"""Gelu as exporters write it out, in its two forms: with Erf, and with Tanh."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.fusion.epilogues import other, scalar
from onnxbridge.runtime.executor.fusion.plan_rewriter import Draft
from onnxbridge.runtime.executor.kernels.array_layout import Array
from onnxbridge.runtime.executor.kernels.convolution import Ending, bent
from onnxbridge.runtime.executor.plan import NOTHING, Step

_CLOSE = 1e-6


def join(draft: Draft, pool: Pool) -> None:
    """One Gelu step for x * 0.5 * (1 + erf(x / sqrt(2))) and its approximation, factors in any order."""
    for i, step in draft.steps("Erf", "Tanh"):
        begun = _argument(draft, step) if step.op == "Erf" else _cubic(draft, step)
        if begun is None:
            continue
        x, places = begun
        ended = _rest(draft, step.targets[0], x)
        if ended is not None:
            more, slot = ended
            attrs = {"approximate": "none" if step.op == "Erf" else "tanh"}
            draft.join([*places, i, *more], "Gelu", _gelu(pool), [x], [slot], attrs)


def _gelu(pool: Pool) -> Callable[..., Array]:
    def gelu(X: Array, *, approximate: str) -> Array:
        return bent(X, Ending(curve="Gelu tanh" if approximate == "tanh" else "Gelu"), pool)

    return gelu


def _by(draft: Draft, step: Step | None, op: str, value: float) -> int:
    """The operand that this step combines with this constant; NOTHING if it does not."""
    if step is None or step.op != op or len(step.sources) != 2:
        return NOTHING
    order = (1,) if op in ("Div", "Pow") else (0, 1)
    for k in order:
        found = scalar(draft.constant(step.sources[k]))
        if found is not None and math.isclose(found, value, rel_tol=_CLOSE):
            return step.sources[1 - k]
    return NOTHING


def _made(draft: Draft, slot: int) -> tuple[int, Step | None]:
    """The step behind a value that only one other uses."""
    found = draft.maker(slot)
    return (found[0], found[1]) if found is not None and draft.user(slot) is not None else (-1, None)


def _argument(draft: Draft, erf: Step) -> tuple[int, list[int]] | None:
    i, step = _made(draft, erf.sources[0])
    x = _by(draft, step, "Div", math.sqrt(2)) or _by(draft, step, "Mul", math.sqrt(0.5))
    return (x, [i]) if x else None


def _cubic(draft: Draft, tanh: Step) -> tuple[int, list[int]] | None:
    """x of sqrt(2 / pi) * (x + 0.044715 * x^3)."""
    i, step = _made(draft, tanh.sources[0])
    inner = _by(draft, step, "Mul", math.sqrt(2 / math.pi))
    j, add = _made(draft, inner) if inner else (-1, None)
    if add is None or add.op != "Add":
        return None
    for term, x in (add.sources, add.sources[::-1]):
        k, scaled = _made(draft, term)
        cube = _by(draft, scaled, "Mul", 0.044715)
        m, power = _made(draft, cube) if cube else (-1, None)
        if _by(draft, power, "Pow", 3.0) == x:
            return x, [m, k, j, i]
    return None


def _rest(draft: Draft, slot: int, x: int) -> tuple[list[int], int] | None:
    """The steps of (1 + y) * x * 0.5, and the value that they give."""
    places: list[int] = []
    wanted = {"half", "x"}
    follow: Any = draft.user(slot)
    if follow is None or _by(draft, follow[1], "Add", 1.0) != slot:
        return None
    while True:
        places.append(follow[0])
        slot = follow[1].targets[0]
        if not wanted:
            return places, slot
        follow = draft.user(slot)
        if follow is None or follow[1].op != "Mul":
            return None
        if "half" in wanted and _by(draft, follow[1], "Mul", 0.5) == slot:
            wanted.remove("half")
        elif "x" in wanted and other(follow[1], slot) == x:
            wanted.remove("x")
        elif len(wanted) == 2 and _by(draft, (half := _made(draft, other(follow[1], slot)))[1], "Mul", 0.5) == x:
            places.append(half[0])
            wanted.clear()
        else:
            return None
