"""Random shapes, arrays and choices for random graphs: mostly ordinary values, sometimes extreme values of a dtype."""

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


class RandomValues:
    """Generates everything from one seed; `existing` are the values of the graph, which may be reused as inputs."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.existing: list[Array] = []

    def coin(self, p: float) -> bool:
        """True with probability p."""
        return bool(self.rng.random() < p)

    def choice(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def integer(self, low: int, high: int) -> int:
        """A random integer in [low, high]."""
        return int(self.rng.integers(low, high + 1))

    def shape(self, low: int, high: int, *, empty: bool = True) -> tuple[int, ...]:
        """A random shape with low to high dimensions."""
        low_size = 0 if empty and self.coin(0.05) else 1
        return tuple(self.integer(low_size, 4) for _ in range(self.integer(low, high)))

    def array(self, dtype: Any, shape: Sequence[int], *, edges: bool = True) -> Array:
        """A random array; with `edges`, one in four float arrays contains special values."""
        dtype = np.dtype(dtype)
        if dtype == np.bool_:
            return np.asarray(self.rng.random(shape) < 0.5)
        if dtype.kind == "O":
            strings = ["", "a", "b", "ab", "A", "é", " b "]
            values = np.empty(int(np.prod(shape)), object)
            values[:] = [self.choice(strings) for _ in range(values.size)]
            return values.reshape(shape)
        if dtype.kind in "iu":
            info = np.iinfo(dtype)
            values = np.asarray(self.rng.integers(max(info.min, -9), min(info.max, 9) + 1, shape)).astype(dtype)
            if edges and self.coin(0.1):
                values = np.where(self.rng.random(shape) < 0.2, dtype.type(self.choice((info.min, info.max))), values).astype(
                    dtype
                )
            return np.asarray(values)
        values = np.asarray(self.rng.standard_normal(shape) * self.choice((0.5, 1, 1, 4)))
        if edges and self.coin(0.25):
            info = ml_dtypes.finfo(dtype)
            special = (*EDGES, float(info.max), float(info.tiny), float(info.smallest_subnormal), -float(info.tiny) / 2)
            chosen = self.rng.choice(np.array(special), values.shape)
            values = np.where(self.rng.random(values.shape) < self.choice((0.1, 0.6)), chosen, values)
        if self.coin(0.15):
            values = np.round(values * 2) / 2  # ties
        with np.errstate(all="ignore"):
            return np.asarray(values).astype(dtype)

    def operand(self, dtypes: Sequence[Any], low: int = 0, high: int = 4, *, empty: bool = True, edges: bool = True) -> Array:
        """An array of one of the dtypes with low to high dimensions: an existing value of the graph or a new one."""
        matching = [
            a for a in self.existing
            if a.dtype in [np.dtype(d) for d in dtypes] and low <= a.ndim <= high and (a.size or empty) and a.size < 4096
        ]  # fmt: skip
        if matching and self.coin(0.7):
            return matching[-1] if self.coin(0.6) else self.choice(matching)
        return self.array(self.choice(dtypes), self.shape(low, high, empty=empty), edges=edges)

    def broadcastable(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A random shape that broadcasts with this one."""
        sizes = list(shape[self.integer(0, len(shape)) :]) if self.coin(0.5) else list(shape)
        sizes = [1 if self.coin(0.25) else d for d in sizes]
        if self.coin(0.15):
            sizes = [self.integer(1, 3)] + sizes if len(sizes) == len(shape) else sizes
        return tuple(sizes)

    def axis(self, rank: int) -> int:
        return self.integer(-rank, rank - 1)

    def axes(self, rank: int) -> list[int]:
        chosen = [i for i in range(rank) if self.coin(0.5)]
        return [i - rank if self.coin(0.3) else i for i in chosen]
