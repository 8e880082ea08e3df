"""How far lossy compression of weights moves a model's outputs: no tolerance can tell that from an error, so it is measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


class Drift:
    """Measures, over all samples, how far each output is from its reference."""

    def __init__(self) -> None:
        self._moved: dict[str, float] = {}
        self._spans: dict[str, tuple[float, float]] = {}

    def add(self, reference: Mapping[str, Any], stored: Mapping[str, Any]) -> None:
        """Take one sample: the reference's outputs, and those of the model with its weights as they are stored."""
        for name, value in reference.items():
            a, b = np.asarray(value), np.asarray(stored.get(name))
            if a.dtype.kind in "biufV" and a.shape == b.shape and a.size:
                a, b = a.astype(np.float64), b.astype(np.float64)
                known = np.isfinite(a)
                moved = np.nan_to_num(np.abs(b[known] - a[known]), nan=np.inf, posinf=np.inf)
                self._moved[name] = max(self._moved.get(name, 0.0), float(moved.max(initial=0.0)))
                low, high = self._spans.get(name, (np.inf, -np.inf))
                self._spans[name] = min(low, a[known].min(initial=np.inf)), max(high, a[known].max(initial=-np.inf))

    def shares(self) -> dict[str, float]:
        """The largest movement of each output as a share of the reference's range, or of its size where that is constant."""
        found = {}
        for name, moved in self._moved.items():
            low, high = self._spans[name]
            scale = high - low if high > low else abs(high)
            found[name] = 0.0 if moved == 0 else float(moved / scale) if scale else np.inf
        return found
