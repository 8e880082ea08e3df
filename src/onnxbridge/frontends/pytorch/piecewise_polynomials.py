"""Functions that ONNX does not have, as piecewise polynomials whose coefficients are computed when first asked for.

The reference is mpmath, which PyTorch brings along: its values are exact beyond double precision, and the same on every machine.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.frontends.pytorch.fx.promotion import cast, floating

DEGREE = 13


@dataclass(frozen=True)
class Fit:
    """A smooth function on [low, high], cut into equal pieces, a power of two a unit, so that places are found exactly.

    The function takes and returns mpmath's numbers; it is only asked inside its interval, never at the ends.
    """

    function: Callable[[Any], Any]
    low: float
    high: float
    pieces: int

    def __call__(self, op: Any, x: Any) -> Any:
        """The function at x, float64; outside of the interval the nearest piece goes on, NaN stays NaN."""
        table = _coefficients(self)
        place = op.Mul(op.Sub(x, self.low), self.pieces / (self.high - self.low))
        inside = op.Clip(op.Where(op.IsNaN(place), 0.0, place), 0.0, float(self.pieces))
        piece = op.Min(op.Floor(inside), float(self.pieces - 1))
        index = op.Cast(piece, to=ir.DataType.INT64)
        u = op.Sub(op.Mul(op.Sub(place, piece), 2.0), 1.0)
        return horner(op, u, [op.Gather(row, index) for row in table])


@functools.cache
def _coefficients(fit: Fit) -> np.ndarray[Any, Any]:
    """Row k: each piece's coefficient of u**k, u running from -1 to 1 along the piece."""
    import mpmath  # type: ignore[import-untyped]

    n = DEGREE + 1
    angles = (np.arange(n) + 0.5) * np.pi / n
    nodes = np.cos(angles)
    width = (fit.high - fit.low) / fit.pieces
    transform = np.cos(np.outer(np.arange(n), angles)) * 2 / n
    transform[0] /= 2
    table = np.zeros((n, fit.pieces))
    with mpmath.workdps(30):
        for piece in range(fit.pieces):
            start = fit.low + piece * width
            values = [float(fit.function(mpmath.mpf(start + width * (u + 1) / 2))) for u in nodes.tolist()]
            powers = np.polynomial.chebyshev.cheb2poly(transform @ np.asarray(values))
            table[: powers.size, piece] = powers
    return table


def horner(op: Any, x: Any, coefficients: Sequence[Any]) -> Any:
    """The polynomial with these coefficients, numbers or values, the constant one first."""
    *rest, total = coefficients
    for c in reversed(rest):
        total = op.Add(op.Mul(x, total), c)
    return total


def in_double(function: Callable[..., Any], *names: str) -> Callable[..., Any]:
    """A rule with parameters of these names that computes `function` in float64 and returns to the operands' dtype."""

    def lower(op: Any, *operands: Any) -> Any:
        values = floating(op, *operands)
        if any(0 in v.shape for v in values):
            return values[0] if len(values) == 1 else op.Add(*values)  # nothing, in the shape that comes out
        return cast(op, function(op, *(cast(op, v, ir.DataType.DOUBLE) for v in values)), values[0].dtype)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(n, kind) for n in ("op", *(names or ("self",)))]
    lower.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return lower
