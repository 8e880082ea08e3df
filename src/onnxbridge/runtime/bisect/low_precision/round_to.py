"""Rounds arrays to the nearest numbers of a lower precision."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxbridge.runtime.verify.rounding.simulate_precision import HALF

Array = np.ndarray[Any, Any]


class RoundTo:
    """Rounds float32 and float64 arrays to numbers of unit roundoff `unit`, a power of two.

    For float16 that is its own rounding: what is beyond 65504 becomes infinite, what is below 6e-8 becomes 0.
    """

    def __init__(self, unit: float) -> None:
        self._unit = unit

    def __call__(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self(item) for item in value]
        if not isinstance(value, np.ndarray) or value.dtype not in (np.float32, np.float64):
            return value
        with np.errstate(all="ignore"):
            if self._unit == HALF:
                return value.astype(np.float16).astype(value.dtype)
            fraction, exponent = np.frexp(value)
            steps = 1 / self._unit
            return np.ldexp(np.rint(fraction * steps) / steps, exponent).astype(value.dtype)

    def constant(self, value: Any) -> Any:
        """A rounded constant; one that would become 0 throughout stays as it is, as in every converter."""
        found = self(value)
        return value if isinstance(value, np.ndarray) and value.dtype.kind == "f" and not np.any(found) else found
