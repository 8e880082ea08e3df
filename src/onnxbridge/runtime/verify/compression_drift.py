"""How far lossy compression of weights moves a model's outputs. No tolerance can separate it from errors, so it is measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


class Drift:
    """Measures the distance of each output from its reference over all samples."""

    def __init__(self) -> None:
        self._distances: dict[str, float] = {}
        self._spans: dict[str, tuple[float, float]] = {}

    def add(self, reference: Mapping[str, Any], stored: Mapping[str, Any]) -> None:
        """Add one sample: the reference's outputs, and those of the model with compressed weights."""
        for name, value in reference.items():
            a, b = np.asarray(value), np.asarray(stored.get(name))
            if a.dtype.kind in "biufV" and a.shape == b.shape and a.size:
                a, b = a.astype(np.float64), b.astype(np.float64)
                finite = np.isfinite(a)
                distance = np.nan_to_num(np.abs(b[finite] - a[finite]), nan=np.inf, posinf=np.inf)
                self._distances[name] = max(self._distances.get(name, 0.0), float(distance.max(initial=0.0)))
                low, high = self._spans.get(name, (np.inf, -np.inf))
                self._spans[name] = min(low, a[finite].min(initial=np.inf)), max(high, a[finite].max(initial=-np.inf))

    def shares(self) -> dict[str, float]:
        """The largest distance of each output as a share of the reference's range, or of its magnitude where that is constant."""
        found = {}
        for name, distance in self._distances.items():
            low, high = self._spans[name]
            scale = high - low if high > low else abs(high)
            found[name] = 0.0 if distance == 0 else float(distance / scale) if scale else np.inf
        return found
