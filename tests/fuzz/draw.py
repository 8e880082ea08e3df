"""Random sizes, numbers and choices for random graphs: mostly ordinary, now and then the edges of what a type holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]

FLOATS = (np.float32, np.float32, np.float32, np.float64, np.float16)
INTS = (np.int64, np.int32, np.int8, np.uint8)
NUMBERS = (*FLOATS, *INTS)
EDGES = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, -0.5, 1.5, 2.5)


class Draw:
    """Draws everything from one seed; values that the graph has already may be drawn again as inputs."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.there: list[Array] = []

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def pick(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def whole(self, low: int, high: int) -> int:
        """From low to high, both included."""
        return int(self.rng.integers(low, high + 1))

    def sizes(self, low: int, high: int, *, empty: bool = True) -> tuple[int, ...]:
        """A shape of low to high dimensions."""
        least = 0 if empty and self.chance(0.05) else 1
        return tuple(self.whole(least, 4) for _ in range(self.whole(low, high)))

    def array(self, dtype: Any, shape: Sequence[int], *, edges: bool = True) -> Array:
        """Numbers of a type; floats with their edges in one of four arrays."""
        dtype = np.dtype(dtype)
        if dtype == np.bool_:
            return np.asarray(self.rng.random(shape) < 0.5)
        if dtype.kind == "O":
            words = ["", "a", "b", "ab", "A", "é", " b "]
            made = np.empty(int(np.prod(shape)), object)
            made[:] = [self.pick(words) for _ in range(made.size)]
            return made.reshape(shape)
        if dtype.kind in "iu":
            info = np.iinfo(dtype)
            made = np.asarray(self.rng.integers(max(info.min, -9), min(info.max, 9) + 1, shape)).astype(dtype)
            if edges and self.chance(0.1):
                made = np.where(self.rng.random(shape) < 0.2, dtype.type(self.pick((info.min, info.max))), made).astype(dtype)
            return np.asarray(made)
        made = np.asarray(self.rng.standard_normal(shape) * self.pick((0.5, 1, 1, 4)))
        if edges and self.chance(0.25):
            info = ml_dtypes.finfo(dtype)
            special = (*EDGES, float(info.max), float(info.tiny), float(info.smallest_subnormal), -float(info.tiny) / 2)
            chosen = self.rng.choice(np.array(special), made.shape)
            made = np.where(self.rng.random(made.shape) < self.pick((0.1, 0.6)), chosen, made)
        if self.chance(0.15):
            made = np.round(made * 2) / 2  # ties
        with np.errstate(all="ignore"):
            return np.asarray(made).astype(dtype)

    def some(self, dtypes: Sequence[Any], low: int = 0, high: int = 4, *, empty: bool = True, edges: bool = True) -> Array:
        """An array of one of the types with low to high dimensions: one of the graph's where one fits, or a new one."""
        fit = [
            a for a in self.there
            if a.dtype in [np.dtype(d) for d in dtypes] and low <= a.ndim <= high and (a.size or empty) and a.size < 4096
        ]  # fmt: skip
        if fit and self.chance(0.7):
            return fit[-1] if self.chance(0.6) else self.pick(fit)
        return self.array(self.pick(dtypes), self.sizes(low, high, empty=empty), edges=edges)

    def beside(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape that broadcasts with this one."""
        kept = list(shape[self.whole(0, len(shape)) :]) if self.chance(0.5) else list(shape)
        kept = [1 if self.chance(0.25) else d for d in kept]
        if self.chance(0.15):
            kept = [self.whole(1, 3)] + kept if len(kept) == len(shape) else kept
        return tuple(kept)

    def axis(self, rank: int) -> int:
        return self.whole(-rank, rank - 1)

    def axes(self, rank: int) -> list[int]:
        chosen = [i for i in range(rank) if self.chance(0.5)]
        return [i - rank if self.chance(0.3) else i for i in chosen]
