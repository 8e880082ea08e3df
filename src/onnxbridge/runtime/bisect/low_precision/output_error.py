"""How far a model's outputs are off, as a share of each output's range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def ranges(runs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The range of each floating-point output over all runs, or its magnitude where it is constant; zero outputs are left out."""
    found = {}
    for name in runs[0]:
        arrays = [np.asarray(results[name]) for results in runs]
        finite = [a[np.isfinite(a)].astype(np.float64).reshape(-1) for a in arrays if a.dtype.kind == "f"]
        numbers = np.concatenate(finite) if finite else np.zeros(0)
        if numbers.size and numbers.any():
            found[name] = float(np.ptp(numbers) or np.abs(numbers).max())
    return found


def error_share(reference: Mapping[str, Any], candidate: Mapping[str, Any], ranges: Mapping[str, float]) -> float:
    """The largest difference of an element as a share of its output's range; infinite where only the reference is finite, or the
    shapes differ."""
    found = 0.0
    for name, span in ranges.items():
        a, b = np.asarray(reference[name]), np.asarray(candidate[name])
        if a.shape != b.shape:
            return float("inf")
        finite = np.isfinite(a)
        with np.errstate(all="ignore"):
            distance = np.abs(a[finite].astype(np.float64) - b[finite].astype(np.float64))
        found = max(found, float(np.nan_to_num(distance, nan=np.inf, posinf=np.inf).max(initial=0.0)) / span)
    return found
