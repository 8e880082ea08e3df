"""Computing with coarser numbers than the machine's: what is kept of each number is drawn between its two neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# The bits of each type that are looked at, and how many of them are a number's fraction.
_LAYOUTS: dict[np.dtype[Any], tuple[Any, int]] = {
    np.dtype(np.float32): (np.uint32, 23),
    np.dtype(np.float64): (np.uint64, 52),
}
HALF = 2.0**-11
"""The unit roundoff of float16."""
_LEAST_NORMAL = 2.0**-14
_LEAST = 2.0**-24
_PIECE = 1 << 16


class Coarse:
    """Rounds float32 and float64 arrays to numbers of unit roundoff `unit` (a power of two), up or down by chance.

    The nearer neighbour is the likelier one, so that nothing is lost on average and a number that needs no rounding stays what it
    is: 0 and 1 of a mask, sizes, everything that was only moved. Each run draws anew. Of float16 there are the smallest numbers
    too, but not the largest: what overflows is no rounding. With `single`, float64 arrays stay as they are: next to float32 they
    are sizes and places.
    """

    def __init__(self, unit: float, seed: int = 0, single: bool = False) -> None:
        self._kinds = (np.dtype(np.float32),) if single else tuple(_LAYOUTS)
        self._bits = -round(np.log2(unit))
        self._half = unit == HALF
        self._rng = np.random.default_rng(seed)
        self._drawn: dict[int, Array] = {}

    def __call__(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self(item) for item in value]
        if not isinstance(value, np.ndarray) or value.dtype not in self._kinds or not value.size:
            return value
        return self._rounded(value)

    def constant(self, value: Any) -> Any:
        """A constant, which stays as it is where all of it is below what float16 tells from 0: no converter lets that vanish."""
        if self._half and isinstance(value, np.ndarray) and value.dtype in _LAYOUTS and np.all(np.abs(value) < _LEAST):
            return value
        return self(value)

    def _rounded(self, array: Array) -> Array:
        kind, fraction = _LAYOUTS[array.dtype]
        dropped = fraction - (self._bits - 1)
        if dropped <= 0:
            return array
        bits = np.array(array, order="C", copy=True).view(kind).reshape(-1)
        drawn = self._chances(dropped, kind)
        kept = kind(-(1 << dropped) % (1 << 8 * bits.itemsize))
        sign = kind((1 << 8 * bits.itemsize - 1) - 1)
        least = np.asarray(_LEAST_NORMAL, array.dtype).view(kind)
        for start in range(0, bits.size, _PIECE):  # a piece stays in the processor's cache
            piece = bits[start : start + _PIECE]
            small = None
            if self._half:
                small = np.flatnonzero(((piece & sign) - kind(1)) < least - kind(1))  # 0 wraps around
                few = piece[small].view(array.dtype)
            offset = int(self._rng.integers(_PIECE))
            # Carries go from the fraction into the exponent, as they should; infinity and NaN stay what they are.
            piece += drawn[offset : offset + piece.size]
            piece &= kept
            if small is not None and small.size:
                piece[small] = self._subnormal(few).view(kind)
        found: Array = bits.view(array.dtype).reshape(array.shape)
        return found

    def _chances(self, dropped: int, kind: Any) -> Array:
        """Random numbers for what is dropped, drawn once; each piece of an array takes them from another place on."""
        if dropped not in self._drawn:
            self._drawn[dropped] = self._rng.integers(0, 1 << dropped, 2 * _PIECE, kind)
        return self._drawn[dropped]

    def _subnormal(self, few: Array) -> Array:
        """The smallest numbers of float16 are equally far apart. None becomes 0 here, whose logarithm would say nothing."""
        steps = np.floor(np.abs(few) / _LEAST + self._rng.random(few.shape, np.float32))
        found: Array = np.copysign(np.maximum(steps, 1) * _LEAST, few).astype(few.dtype)
        return found
