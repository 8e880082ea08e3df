"""Elements of both models' outputs, drawn at random, for plots of one against the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from onnxbridge.runtime.verify.compare import result_array

Array = np.ndarray[Any, Any]
Pairs = Mapping[str, tuple[Array, Array]]
"""For each output, elements of the reference and of the candidate at the same indices, in float64."""
MOST = 2000
"""The most elements of an output."""


class DrawnElements:
    """Collects elements of numeric outputs over all samples, equally many of each."""

    def __init__(self, samples: int, seed: int = 0) -> None:
        self._of_each = max(1, MOST // max(samples, 1))
        self._rng = np.random.default_rng(seed)
        self._found: dict[str, list[tuple[Array, Array]]] = {}

    def add(self, expected: Mapping[str, Any], actual: Mapping[str, Any]) -> None:
        """One sample's outputs."""
        for name, value in expected.items():
            a, b = result_array(value), result_array(actual.get(name))
            if a.shape != b.shape or not a.size or any(x.dtype.kind in "OUSc" for x in (a, b)):
                continue
            at = np.arange(a.size) if a.size <= self._of_each else np.unique(self._rng.integers(a.size, size=self._of_each))
            self._found.setdefault(name, []).append((a.reshape(-1)[at].astype(np.float64), b.reshape(-1)[at].astype(np.float64)))

    def pairs(self) -> Pairs:
        return {
            name: (np.concatenate([a for a, _ in found]), np.concatenate([b for _, b in found]))
            for name, found in self._found.items()
        }
