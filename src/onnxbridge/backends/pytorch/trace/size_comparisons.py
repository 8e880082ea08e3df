"""A ShapeEnv in which comparisons of dynamic sizes do not specialize to the example sizes.

PyTorch decides `rows[:size]` of 64 rows by the example size, records a guard, and returns 64 rows. A built module must work at
every size, so each call is evaluated again with every such comparison negated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from onnxbridge.frameworks.log_suppression import loggers_disabled

_ORDERS = (sympy.LessThan, sympy.StrictLessThan, sympy.GreaterThan, sympy.StrictGreaterThan, sympy.And, sympy.Or, sympy.Not)


class ConservativeShapeEnv(ShapeEnv):  # type: ignore[misc]
    """A ShapeEnv in which no dynamic size is assumed smaller or larger than another number because of its example."""

    def __init__(self) -> None:
        super().__init__(specialize_zero_one=False, duck_shape=False)  # otherwise sizes are assumed to be at least 2
        self._decided: dict[Any, bool] | None = None
        self._negated: Any = None

    def evaluate_expr(self, orig_expr: Any, hint: Any = None, *args: Any, **kwargs: Any) -> Any:
        if self._decided is None or not isinstance(orig_expr, _ORDERS):
            return super().evaluate_expr(orig_expr, hint, *args, **kwargs)
        with self.suppress_guards():  # decisions by example sizes must not add guards
            found = [super(ConservativeShapeEnv, self).evaluate_expr(orig_expr, h, *args, **kwargs) for h in (hint, not hint)]
        if hint is None or found[0] == found[1]:
            return found[0]
        self._decided[orig_expr] = bool(found[0])
        return sympy.Not(found[0]) if orig_expr == self._negated else found[0]

    @contextmanager
    def _record_decisions(self, negated: Any = None) -> Iterator[dict[Any, bool]]:
        self._decided, self._negated = {}, negated
        try:
            yield self._decided
        finally:
            self._decided = self._negated = None

    def evaluate_both_ways(self, function: Callable[[], Any]) -> Any:
        """The function's result, with a new symbol for each size that depends on the outcome of such a comparison.

        A comparison whose negation makes the function fail is a requirement and is assumed to hold.

        Raises:
            Undecided: if more than sizes depends on a comparison.
        """
        with self._record_decisions() as decided:
            result = function()
        for comparison in decided:
            try:
                with self._record_decisions(comparison), loggers_disabled("torch"):
                    other = function()
            except Exception:  # noqa: S112  the other outcome is impossible
                continue
            result = self._common(result, other)
        return result

    def _common(self, a: Any, b: Any) -> Any:
        """One of two results, with new symbols for the sizes in which they differ."""
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and (a.dtype, a.ndim) == (b.dtype, b.ndim):
            sizes = [self._common(m, n) for m, n in zip(a.shape, b.shape, strict=True)]
            if all(made is size for made, size in zip(sizes, a.shape, strict=True)):
                return a
            for made in sizes:
                torch._check(made >= 0)
            return a.new_empty(sizes)
        if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and len(a) == len(b):
            return [self._common(m, n) for m, n in zip(a, b, strict=True)]
        if isinstance(a, (int, torch.SymInt)) and isinstance(b, (int, torch.SymInt)):
            return a if _expression(a) == _expression(b) else self.create_unbacked_symint()
        if type(a) is type(b) and not isinstance(a, torch.Tensor) and a == b:
            return a
        raise Undecided("it depends on a comparison of sizes")


class Undecided(Exception):
    """The result of a call depends on which of two sizes is larger."""


def _expression(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else size
