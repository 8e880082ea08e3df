"""Guards on sizes, beyond their ranges, under which a program was traced, such as "n % 2 == 0".

At other sizes the model's code takes a different branch. torch.export reports the ranges of sizes, but not the other guards
that it evaluated at the example's sizes.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping
from typing import Any

from onnxbridge.frontends.pytorch.fx.graph_reader import user_frame
from onnxbridge.hub.ir.source_locations import relative

_SAMPLES = 256
"""The number of size combinations at which guards are evaluated, to drop those that always hold or that others imply."""


def guard_conditions(program: Any, names: Mapping[Any, str]) -> list[str]:
    """Conditions on the named sizes, such as "n % 2 == 0": a small set that implies all guards."""
    guards = [guard for guard in _guards(program) if not _excludes_zero_or_one(guard)]
    named = [guard for guard in guards if guard.free_symbols and guard.free_symbols <= set(names)]
    symbols = sorted({s for guard in named for s in guard.free_symbols}, key=str)
    points = _points([program.range_constraints.get(s) for s in symbols])
    remaining: list[tuple[set[int], str]] = []
    for guard in dict.fromkeys(named):
        test = _compiled(guard, symbols)
        violated = {i for i, point in enumerate(points) if not _holds(test, point)}
        text = _text(guard, names) if violated else ""
        if violated and text not in ("True", "False"):  # dimensions of one name have the same size
            remaining.append((violated, text))
    found: list[str] = []
    while remaining:
        covered, text = min(remaining, key=lambda entry: (-len(entry[0]), len(entry[1]), entry[1]))
        found.append(text)
        remaining = [(rest, other) for violated, other in remaining if (rest := violated - covered)]
    return found


def where_fixed(program: Any, name: str, axis: int) -> str:
    """The line of the model's code that fixes a size of an input, "net.py:9 in forward"; empty where torch does not know it."""
    env = _shape_env(program)
    sources = {} if env is None else {s: [_name(source) for source in known] for s, known in env.var_to_sources.items()}
    fixed = {
        s: known for s, known in sources.items()
        if env.replace(s).is_Integer and any(source.endswith(f".size()[{axis}]") for source in known)
    }  # fmt: skip
    own = [s for s, known in fixed.items() if any(f"[{name!r}]" in source for source in known)] or list(fixed)
    if len(own) != 1:
        return ""
    for guard in env.guards:
        if guard.expr.func.__name__ != "Equality" or own[0] not in guard.expr.free_symbols:
            continue
        frames = [f for f in (guard.sloc.maybe_user_loc, guard.sloc.framework_loc) if hasattr(f, "filename")]
        found = user_frame([(f.filename, f.lineno or 0, f.name) for f in frames])
        return f"{relative(found[0])}:{found[1]} in {found[2]}" if found is not None else ""
    return ""


def _name(source: Any) -> str:
    return str(source.name() if callable(source.name) else source.name)  # a method before PyTorch 2.10


def _shape_env(program: Any) -> Any:
    modes = (getattr(n.meta.get("val"), "fake_mode", None) for n in program.graph.nodes if n.op == "placeholder")
    return next((mode.shape_env for mode in modes if mode is not None and mode.shape_env is not None), None)


def _guards(program: Any) -> list[Any]:
    env = _shape_env(program)
    return [] if env is None else [guard.expr for guard in env.guards]


def _excludes_zero_or_one(guard: Any) -> bool:
    """Whether a guard only says that something is not 0 or 1, which torch.export requires of every size."""
    inequalities = ("Unequality", "StrictGreaterThan", "GreaterThan", "StrictLessThan", "LessThan")
    return guard.func.__name__ in inequalities and any(operand.is_Integer and operand <= 2 for operand in guard.args)


def _points(ranges: list[Any]) -> list[tuple[int, ...]]:
    """Combinations of sizes within their ranges; from 2 on, as torch.export assumes of every dynamic size."""
    lows = [max(2, int(r.lower)) if r is not None and r.lower.is_Integer else 2 for r in ranges]
    highs = [
        int(r.upper) if r is not None and r.upper.is_Integer else low + _SAMPLES for r, low in zip(ranges, lows, strict=True)
    ]
    per_axis = max(2, round(_SAMPLES ** (1 / max(1, len(ranges)))))
    axes = [range(low, min(high, low + per_axis) + 1) for low, high in zip(lows, highs, strict=True)]
    if len(ranges) <= 2:
        return list(itertools.product(*axes))
    rng = random.Random(0)
    return [
        tuple(rng.randint(low, min(high, low + _SAMPLES)) for low, high in zip(lows, highs, strict=True)) for _ in range(_SAMPLES)
    ]


def _compiled(guard: Any, symbols: list[Any]) -> Callable[..., bool]:
    """Compile a guard to a Python function of the sizes, with parameter names that need no quoting."""
    import sympy  # type: ignore[import-untyped]
    from torch.utils._sympy.printers import PythonPrinter

    own = {s: sympy.Symbol(f"size_{i}", integer=True) for i, s in enumerate(symbols)}
    text = PythonPrinter().doprint(guard.xreplace(own))
    source = f"lambda {', '.join(map(str, own.values()))}: {text}"
    compiled: Callable[..., bool] = eval(source, {"min": min, "max": max})  # noqa: S307  printed from a sympy expression
    return compiled


def _holds(test: Callable[..., bool], point: tuple[int, ...]) -> bool:
    try:
        return bool(test(*point))
    except (ArithmeticError, NameError):  # undefined at these sizes, or uses functions that only PyTorch defines
        return False


def _text(guard: Any, names: Mapping[Any, str]) -> str:
    import sympy
    from torch.utils._sympy.printers import PythonPrinter

    text: str = PythonPrinter().doprint(guard.xreplace({s: sympy.Symbol(names[s], integer=True) for s in guard.free_symbols}))
    return text
