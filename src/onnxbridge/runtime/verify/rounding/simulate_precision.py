"""Simulated low precision with stochastic rounding."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# For each dtype, the unsigned integer of its width and the number of bits in the fraction.
_LAYOUTS: dict[np.dtype[Any], tuple[Any, int]] = {
    np.dtype(np.float32): (np.uint32, 23),
    np.dtype(np.float64): (np.uint64, 52),
}
HALF = 2.0**-11
"""The unit roundoff of float16."""
_SMALLEST_NORMAL = 2.0**-14
_SMALLEST = 2.0**-24
_PIECE = 1 << 16


class SimulatedPrecision:
    """Rounds float32 and float64 arrays stochastically to numbers of unit roundoff `unit`, a power of two.

    A number becomes one of its two neighbors, with a probability that makes the mean error 0; a number that needs no rounding
    (0 and 1 of a mask, sizes, everything that was only moved) stays. For float16, subnormal numbers are simulated but not
    overflow, which is not rounding. With `single`, float64 arrays are not rounded: beside float32 they hold sizes and indices.
    """

    def __init__(self, unit: float, seed: int = 0, single: bool = False) -> None:
        self._kinds = (np.dtype(np.float32),) if single else tuple(_LAYOUTS)
        self._bits = -round(np.log2(unit))
        self._half = unit == HALF
        self._rng = np.random.default_rng(seed)
        self._bits_by_count: dict[int, Array] = {}

    def __call__(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self(item) for item in value]
        if not isinstance(value, np.ndarray) or value.dtype not in self._kinds or not value.size:
            return value
        return self._rounded(value)

    def constant(self, value: Any) -> Any:
        """A rounded constant; one that float16 would turn into 0 throughout stays as it is, as in every converter."""
        if self._half and isinstance(value, np.ndarray) and value.dtype in _LAYOUTS and np.all(np.abs(value) < _SMALLEST):
            return value
        return self(value)

    def _rounded(self, array: Array) -> Array:
        kind, fraction = _LAYOUTS[array.dtype]
        dropped = fraction - (self._bits - 1)
        if dropped <= 0:
            return array
        bits = np.array(array, order="C", copy=True).view(kind).reshape(-1)
        random_bits = self._random_bits(dropped, kind)
        mask = kind(-(1 << dropped) % (1 << 8 * bits.itemsize))
        sign = kind((1 << 8 * bits.itemsize - 1) - 1)
        smallest_normal = np.asarray(_SMALLEST_NORMAL, array.dtype).view(kind)
        for start in range(0, bits.size, _PIECE):  # a piece fits the processor's cache
            piece = bits[start : start + _PIECE]
            small = None
            if self._half:
                small = np.flatnonzero(((piece & sign) - kind(1)) < smallest_normal - kind(1))  # 0 wraps around
                subnormals = piece[small].view(array.dtype)
            offset = int(self._rng.integers(_PIECE))
            # A carry from the fraction into the exponent is right; infinity and NaN stay what they are.
            piece += random_bits[offset : offset + piece.size]
            piece &= mask
            if small is not None and small.size:
                piece[small] = self._subnormal(subnormals).view(kind)
        found: Array = bits.view(array.dtype).reshape(array.shape)
        return found

    def _random_bits(self, dropped: int, kind: Any) -> Array:
        """Random numbers for the dropped bits, drawn once; each piece of an array uses them from a random offset on."""
        if dropped not in self._bits_by_count:
            self._bits_by_count[dropped] = self._rng.integers(0, 1 << dropped, 2 * _PIECE, kind)
        return self._bits_by_count[dropped]

    def _subnormal(self, subnormals: Array) -> Array:
        """Rounds subnormal numbers of float16, which are evenly spaced. None becomes 0, whose logarithm would be infinite."""
        multiples = np.floor(np.abs(subnormals) / _SMALLEST + self._rng.random(subnormals.shape, np.float32))
        found: Array = np.copysign(np.maximum(multiples, 1) * _SMALLEST, subnormals).astype(subnormals.dtype)
        return found
