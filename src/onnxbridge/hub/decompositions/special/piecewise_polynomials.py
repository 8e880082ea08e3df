"""Piecewise polynomial approximations of functions that ONNX does not have; coefficients are computed on first use.

The reference is mpmath: its values are exact beyond double precision and the same on every machine.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

DEGREE = 13


@dataclass(frozen=True)
class PiecewisePolynomial:
    """A smooth function on [low, high], approximated on `pieces` equal intervals.

    The number of intervals per unit is a power of two, so that the interval of an element is computed exactly. `function` takes
    and returns mpmath numbers; it is evaluated only inside the interval, never at its ends.
    """

    function: Callable[[Any], Any]
    low: float
    high: float
    pieces: int

    def __call__(self, op: Any, x: Any) -> Any:
        """The function at x (float64). Outside the interval the nearest polynomial extrapolates; NaN stays NaN."""
        table = _coefficients(self)
        position = op.Mul(op.Sub(x, self.low), self.pieces / (self.high - self.low))
        inside = op.Clip(op.Where(op.IsNaN(position), 0.0, position), 0.0, float(self.pieces))
        piece = op.Min(op.Floor(inside), float(self.pieces - 1))
        index = op.Cast(piece, to=ir.DataType.INT64)
        u = op.Sub(op.Mul(op.Sub(position, piece), 2.0), 1.0)
        return horner(op, u, [op.Gather(row, index) for row in table])


@functools.cache
def _coefficients(fit: PiecewisePolynomial) -> np.ndarray[Any, Any]:
    """Row k holds the coefficient of u**k on each interval, where u runs from -1 to 1 along the interval."""
    import mpmath

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
    """Evaluate the polynomial with these coefficients (numbers or values, constant term first) at x by Horner's rule."""
    *rest, total = coefficients
    for c in reversed(rest):
        total = op.Add(op.Mul(x, total), c)
    return total
