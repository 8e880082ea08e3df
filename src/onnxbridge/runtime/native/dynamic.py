"""Models that quantize what they compute as it comes: by its own range, for products of bytes with constant weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxbridge.runtime.memory import Pool
from onnxbridge.runtime.native.address import Array, address
from onnxbridge.runtime.native.build import loop
from onnxbridge.runtime.native.elementwise import room
from onnxbridge.runtime.native.integers import Kernel
from onnxbridge.runtime.native.share import chunks
from onnxbridge.runtime.native.tape import keep
from onnxbridge.runtime.numpy.padding import Window


def quantized(x: Array, pool: Pool) -> tuple[Array, Array, Array] | None:
    """The bytes of x, their scale and zero point; None for an array that is not dense."""
    y = room(x, pool, np.dtype(np.uint8))
    if x.strides != tuple(4 * s for s in y.strides):
        return None
    chunk, units = chunks(x.size)
    parts = pool.empty((units, 32))
    scale, zero = pool.empty((1,)).reshape(()), pool.empty((1,), np.uint8).reshape(())
    loop("dynamic", "extremes")(address(x), address(parts), x.size, chunk, units=units)
    loop("dynamic", "fitted")(address(parts), units, address(scale), address(zero))
    where = address(x), address(y), address(scale), address(zero)
    loop("dynamic", "quantize")(*where, x.size, chunk, units=units)
    return y, scale, zero


def convolution(
    w: Array, window: Callable[[Array], Window], groups: int, shift: Array | None, pool: Pool
) -> Callable[..., Array]:
    """The function of x (N, C, H, W) in uint8, its zero point and a scale for all maps or one for each.

    It gives (x - zero) * w * scale + shift in float32, and without a scale the exact sums in int32; w is (M, C/groups, KH, KW)
    in int8.
    """
    scaled, exact = (Kernel(w, window, groups, dtype, 0, pool) for dtype in (np.float32, np.int32))
    maps = len(w)
    less = np.ascontiguousarray(scaled.totals, np.int32)
    plus = np.zeros(maps, np.float32) if shift is None else np.ascontiguousarray(shift, np.float32)
    prepare, spread = loop("dynamic", "shifted"), loop("dynamic", "spread")

    def convolve(x: Array, zero: Array | None, scale: Array | None = None) -> Array:
        kernel = exact if scale is None else scaled
        if zero is None:
            zero = keep(np.zeros((), np.uint8))
        offset, padding = pool.empty((maps,), np.int32), pool.empty((kernel.padding,), np.uint8)
        prepare(address(less), address(zero), address(offset), maps, address(padding), kernel.padding)
        factor = plus
        if scale is not None and scale.size == 1:
            factor = pool.empty((maps,))
            spread(address(scale), address(factor), maps)
        elif scale is not None:
            factor = scale
        return kernel(x, (address(offset), address(factor), address(plus)), address(padding))

    convolve.kept = (less, plus, scaled, exact)  # type: ignore[attr-defined]
    convolve.how = scaled.how  # type: ignore[attr-defined]
    return convolve


def fits(w: Any, zero: Any, axis: int) -> Array | None:
    """Weights less their zero points, one for all or one for each index of an axis, as int8; None if they are not such."""
    if not isinstance(w, np.ndarray) or w.dtype not in (np.int8, np.uint8) or not w.size:
        return None
    less = w.astype(np.int16)
    if zero is not None:
        if not isinstance(zero, np.ndarray) or zero.size not in (1, w.shape[axis]) or zero.ndim > 1:
            return None
        each = [1] * w.ndim
        each[axis] = -1
        less -= zero.astype(np.int16).reshape(each if zero.size > 1 else ())
    return less.astype(np.int8) if less.min() >= -128 and less.max() <= 127 else None
