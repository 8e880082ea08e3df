"""What a traced program has asked of its sizes beside their bounds, such as whether one is even.

At other sizes its code goes another way. torch.export tells bounds, and keeps to itself what else it has decided at the
example's sizes.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping
from typing import Any

_MANY = 256
"""How many combinations of sizes are looked at, to leave out what holds for all of them and what others say already."""


def choices(program: Any, names: Mapping[Any, str]) -> list[str]:
    """Conditions on the sizes with a name, "n % 2 == 0", the fewest that say it all."""
    guards = [guard for guard in _guards(program) if not _about_one(guard)]
    asked = [guard for guard in guards if guard.free_symbols and guard.free_symbols <= set(names)]
    symbols = sorted({s for guard in asked for s in guard.free_symbols}, key=str)
    points = _points([program.range_constraints.get(s) for s in symbols])
    left: list[tuple[set[int], str]] = []
    for guard in dict.fromkeys(asked):
        test = _compiled(guard, symbols)
        against = {i for i, point in enumerate(points) if not _holds(test, point)}
        text = _text(guard, names) if against else ""
        if against and text not in ("True", "False"):  # two sizes of one name are the same size
            left.append((against, text))
    found: list[str] = []
    while left:
        most, text = min(left, key=lambda entry: (-len(entry[0]), len(entry[1]), entry[1]))
        found.append(text)
        left = [(rest, other) for against, other in left if (rest := against - most)]
    return found


def _guards(program: Any) -> list[Any]:
    modes = (getattr(n.meta.get("val"), "fake_mode", None) for n in program.graph.nodes if n.op == "placeholder")
    env = next((mode.shape_env for mode in modes if mode is not None and mode.shape_env is not None), None)
    return [] if env is None else [guard.expr for guard in env.guards]


def _about_one(asked: Any) -> bool:
    """Whether a condition only says that something is not 0 or 1, which torch.export asks of every size."""
    inequalities = ("Unequality", "StrictGreaterThan", "GreaterThan", "StrictLessThan", "LessThan")
    return asked.func.__name__ in inequalities and any(side.is_Integer and side <= 2 for side in asked.args)


def _points(ranges: list[Any]) -> list[tuple[int, ...]]:
    """Sizes to try, within their bounds; two and more, as torch.export takes all sizes to be."""
    lows = [max(2, int(r.lower)) if r is not None and r.lower.is_Integer else 2 for r in ranges]
    highs = [int(r.upper) if r is not None and r.upper.is_Integer else low + _MANY for r, low in zip(ranges, lows, strict=True)]
    each = max(2, round(_MANY ** (1 / max(1, len(ranges)))))
    axes = [range(low, min(high, low + each) + 1) for low, high in zip(lows, highs, strict=True)]
    if len(ranges) <= 2:
        return list(itertools.product(*axes))
    rng = random.Random(0)
    return [tuple(rng.randint(low, min(high, low + _MANY)) for low, high in zip(lows, highs, strict=True)) for _ in range(_MANY)]


def _compiled(asked: Any, symbols: list[Any]) -> Callable[..., bool]:
    """A condition as a function of its sizes, under names of our own."""
    import sympy  # type: ignore[import-untyped]
    from torch.utils._sympy.printers import PythonPrinter

    own = {s: sympy.Symbol(f"size_{i}", integer=True) for i, s in enumerate(symbols)}
    text = PythonPrinter().doprint(asked.xreplace(own))
    made: Callable[..., bool] = eval(f"lambda {', '.join(map(str, own.values()))}: {text}", {"min": min, "max": max})
    return made


def _holds(test: Callable[..., bool], point: tuple[int, ...]) -> bool:
    try:
        return bool(test(*point))
    except (ArithmeticError, NameError):  # of sizes that there are not, or in words that only PyTorch has
        return False


def _text(asked: Any, names: Mapping[Any, str]) -> str:
    import sympy
    from torch.utils._sympy.printers import PythonPrinter

    text: str = PythonPrinter().doprint(asked.xreplace({s: sympy.Symbol(names[s], integer=True) for s in asked.free_symbols}))
    return text
