"""Comparisons of dynamic sizes that only an example of each size decides while a module is recorded.

PyTorch decides `rows[:size]` of 64 rows by the example, keeps in mind that it did, and says that there are 64. What a module
computes must not depend on that, so each call is looked at once more with every such comparison going the other way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from onnxbridge.frameworks.log_suppression import hushed

_ORDERS = (sympy.LessThan, sympy.StrictLessThan, sympy.GreaterThan, sympy.StrictGreaterThan, sympy.And, sympy.Or, sympy.Not)


class Sizes(ShapeEnv):  # type: ignore[misc]
    """The dynamic sizes of a module, none of which is taken for smaller or larger than another number by its example."""

    def __init__(self) -> None:
        super().__init__(specialize_zero_one=False, duck_shape=False)  # otherwise sizes are two at least
        self._decided: dict[Any, bool] | None = None
        self._turned: Any = None

    def evaluate_expr(self, orig_expr: Any, hint: Any = None, *args: Any, **kwargs: Any) -> Any:
        if self._decided is None or not isinstance(orig_expr, _ORDERS):
            return super().evaluate_expr(orig_expr, hint, *args, **kwargs)
        with self.suppress_guards():  # nothing stays known of what an example decides
            found = [super(Sizes, self).evaluate_expr(orig_expr, h, *args, **kwargs) for h in (hint, not hint)]
        if hint is None or found[0] == found[1]:
            return found[0]
        self._decided[orig_expr] = bool(found[0])
        return sympy.Not(found[0]) if orig_expr == self._turned else found[0]

    @contextmanager
    def _watched(self, turned: Any = None) -> Iterator[dict[Any, bool]]:
        self._decided, self._turned = {}, turned
        try:
            yield self._decided
        finally:
            self._decided = self._turned = None

    def settled(self, function: Callable[[], Any]) -> Any:
        """What the function gives, with a new size in place of each one that depends on which way such a comparison goes.

        One that cannot go the other way, since the function then fails, asks for what has to be so anyway.

        Raises:
            Undecided: where more than sizes depends on it.
        """
        with self._watched() as decided:
            result = function()
        for comparison in decided:
            try:
                with self._watched(comparison), hushed("torch"):
                    other = function()
            except Exception:
                continue
            result = self._common(result, other)
        return result

    def _common(self, a: Any, b: Any) -> Any:
        """One of two results, with new sizes where they differ."""
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
            return a if _term(a) == _term(b) else self.create_unbacked_symint()
        if type(a) is type(b) and not isinstance(a, torch.Tensor) and a == b:
            return a
        raise Undecided("it depends on how sizes compare")


class Undecided(Exception):
    """What a call gives depends on which of two sizes is larger."""


def _term(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else size
