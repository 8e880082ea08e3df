"""The shape that coremltools infers for a Reshape by dynamic sizes, without solving equations."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import sympy  # type: ignore[import-untyped]
from coremltools.converters.mil.mil.ops.defs.iOS15.tensor_transformation import reshape
from coremltools.converters.mil.mil.types.symbolic import is_symbolic


@contextlib.contextmanager
def fast_reshape_inference() -> Iterator[None]:
    """Context in which coremltools finds the unknown size of a Reshape by a division.

    It calls sympy's `solve` for each dynamic size, which takes minutes where sizes are long expressions. Of all these equations
    only that of the one size with an unknown symbol can have a result that it uses.
    """
    original = reshape.__dict__["enforce_volumetric_constraint"]

    def inferred(elements: Any, sizes: Sequence[Any]) -> list[Any]:
        known = elements.free_symbols if is_symbolic(elements) else set()
        unknown = [i for i, size in enumerate(sizes) if is_symbolic(size) and size.free_symbols - known]
        found = list(sizes)
        if len(unknown) != 1:
            return found
        size = sympy.cancel(sympy.sympify(elements) / math.prod(s for i, s in enumerate(sizes) if i != unknown[0]))
        found[unknown[0]] = size if size.free_symbols else int(size)
        return found

    reshape.enforce_volumetric_constraint = staticmethod(inferred)
    try:
        yield
    finally:
        reshape.enforce_volumetric_constraint = original
