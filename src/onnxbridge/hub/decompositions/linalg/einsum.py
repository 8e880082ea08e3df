"""Einsum as NumPy and the frameworks define it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def einsum(op: Any, operands: Sequence[Any], equation: str) -> Any:
    """ONNX's Einsum of operands whose ellipses may stand for different numbers of axes, which broadcast.

    ONNX requires the same number: an operand that has fewer gets axes of size 1 where its ellipsis begins.
    """
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    pairs = list(zip(terms, operands, strict=True))
    if any("..." in term and value.shape is None for term, value in pairs):
        return op.Einsum(*operands, equation=equation)
    ranks = [len(value.shape) - len(term.replace("...", "")) if "..." in term else None for term, value in pairs]
    most = max((r for r in ranks if r is not None), default=0)
    aligned = [
        value if r is None or r == most else op.Unsqueeze(value, [term.index("...") + i for i in range(most - r)])
        for (term, value), r in zip(pairs, ranks, strict=True)
    ]
    return op.Einsum(*aligned, equation=equation)
