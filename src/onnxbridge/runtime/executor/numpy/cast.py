"""Conversion between element types as the standard's Cast describes it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from onnxbridge.runtime.executor.numpy.dtypes import Array, is_float

_E8M0 = np.dtype(ml_dtypes.float8_e8m0fnu)
_SMALL_INTS = {"int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1), "uint2": (0, 3)}


def cast(x: Array, to: np.dtype[Any], *, saturate: bool = True, round_mode: str = "up") -> Array:
    """`x` with elements of another type.

    `saturate` clamps to the largest number of a float8, `round_mode` is for powers of two (E8M0).
    """
    if x.dtype == to:
        return x
    if to.kind == "O":
        return _to_strings(x)
    if x.dtype.kind in "OUS":
        return cast(np.asarray([float(s) if is_float(to) else int(s) for s in x.reshape(-1)]).reshape(x.shape), to)
    if to == _E8M0:
        return _to_power_of_two(x.astype(np.float32), saturate, round_mode)
    if to.name.startswith("float8"):
        return _to_float8(x, to, saturate)
    if to.name.startswith("float4"):
        limit = float(ml_dtypes.finfo(to).max)  # type: ignore[no-untyped-call]
        return np.clip(_as_plain_float(x), -limit, limit).astype(to)
    if to.name in _SMALL_INTS:
        return _to_small_int(x, to)
    if x.dtype.kind == "V" and to.kind in "iub":  # ml_dtypes' floats convert through float32, which represents all their values
        return x.astype(np.float32 if is_float(x.dtype) else np.int8).astype(to)
    return x.astype(to)


def _as_plain_float(x: Array) -> Array:
    return x if x.dtype.kind == "f" and x.dtype.itemsize >= 4 else x.astype(np.float32)


def _to_strings(x: Array) -> Array:
    if is_float(x.dtype):
        strings = [_float_string(v) for v in (x if x.dtype.kind == "f" else x.astype(np.float32)).reshape(-1)]
    else:
        strings = [str(v) for v in x.reshape(-1).tolist()]
    out = np.empty(x.size, dtype=object)
    out[:] = strings
    return out.reshape(x.shape)


def _float_string(v: Any) -> str:
    if np.isnan(v):
        return "NaN"
    if np.isinf(v):
        return "INF" if v > 0 else "-INF"
    return str(v)


def _to_float8(x: Array, to: np.dtype[Any], saturate: bool) -> Array:
    x = _as_plain_float(x)
    if saturate:
        limit = float(ml_dtypes.finfo(to).max)  # type: ignore[no-untyped-call]
        x = np.clip(x, -limit, limit)
    elif to.name.endswith("fnuz"):
        x = np.where(np.isinf(x), np.nan, x)
    return x.astype(to)


def _to_small_int(x: Array, to: np.dtype[Any]) -> Array:
    """Fractions are truncated, and values that are too large wrap to their low bits."""
    low, high = _SMALL_INTS[to.name]
    integers = (_as_plain_float(x) if is_float(x.dtype) else x).astype(np.int64) - low
    return (integers % (high - low + 1) + low).astype(np.int8).astype(to)


def _to_power_of_two(x: Array, saturate: bool, round_mode: str) -> Array:
    """E8M0 has the exponents 2^-127 to 2^127 and NaN (255); it has no sign, so the magnitude is converted."""
    bits = np.abs(x).view(np.uint32)
    exponent = (bits >> 23).astype(np.int32)
    fraction = bits & 0x7FFFFF
    if round_mode == "up":
        # Below 2^-126 float32 is subnormal: anything above 2^-127 (fraction 0x400000) is rounded up to 2^-126.
        up = np.where(exponent > 0, fraction > 0, fraction > 0x400000)
    elif round_mode == "nearest":
        up = np.where(exponent > 0, fraction >= 0x400000, fraction > 0x600000)
    else:
        up = np.zeros(x.shape, bool)
    found = exponent + up
    found = np.where(found > 254, 254 if saturate else 255, found)
    return np.where(np.isnan(x) | (np.isinf(x) & (not saturate)), 255, found).astype(np.uint8).view(_E8M0)
