"""Dynamic quantization, for products of quantized values with constant weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.kernels.array_layout import Array, address, empty_like, first
from onnxbridge.runtime.executor.kernels.compile.kernel import load_kernel
from onnxbridge.runtime.executor.kernels.integers import ByteConvolution
from onnxbridge.runtime.executor.kernels.run.call_recorder import retain
from onnxbridge.runtime.executor.kernels.run.work_partition import chunks
from onnxbridge.runtime.executor.numpy.padding import Window


def quantized(x: Array, pool: Pool) -> tuple[Array, Array, Array] | None:
    """The bytes of x, their scale and zero point; None for an array that is not dense."""
    y = empty_like(x, pool, np.dtype(np.uint8))
    if x.strides != tuple(4 * s for s in y.strides):
        return None
    chunk, units = chunks(x.size)
    parts = pool.empty((units, 32))
    scale, zero = pool.empty((1,)).reshape(()), pool.empty((1,), np.uint8).reshape(())
    load_kernel("dynamic_quantization", "minimum_and_maximum")(address(x), address(parts), x.size, chunk, units=units)
    load_kernel("dynamic_quantization", "scale_and_zero_point")(address(parts), units, address(scale), address(zero))
    where = address(x), address(y), address(scale), address(zero)
    load_kernel("dynamic_quantization", "quantize")(*where, x.size, chunk, units=units)
    return y, scale, zero


@dataclass(frozen=True)
class Weights:
    """Weights as int8, (M, C/groups, KH, KW), and an integer to subtract from those of each map besides, or None."""

    int8: Array
    rest: Array | None

    @staticmethod
    def of(w: Any, zero: Any, axis: int) -> Weights | None:
        """Weights in bytes less their zero points, one for all or one for each map, which an axis counts; or None."""
        if not isinstance(w, np.ndarray) or w.dtype not in (np.int8, np.uint8) or not w.size:
            return None
        if zero is not None and (not isinstance(zero, np.ndarray) or zero.size not in (1, w.shape[axis]) or zero.ndim > 1):
            return None
        maps = w if axis == 0 else np.ascontiguousarray(w.T)[:, :, None, None]
        less = np.zeros(len(maps), np.int16) if zero is None else np.broadcast_to(zero.reshape(-1).astype(np.int16), len(maps))
        centred = maps.astype(np.int16) - less.reshape(-1, 1, 1, 1)
        if centred.min() >= -128 and centred.max() <= 127:
            return Weights(centred.astype(np.int8), None)
        half = 128 if w.dtype == np.uint8 else 0
        return Weights((maps.astype(np.int16) - half).astype(np.int8), (less - half).astype(np.int32))


def convolution(
    w: Weights, window: Callable[[Array], Window], groups: int, shift: Array | None, pool: Pool, by: Array | None = None
) -> Callable[..., Array]:
    """The function of x (N, C, H, W) in uint8, its zero point and a scale for all maps or one for each.

    It gives (x - zero) * w * scale + shift in float32, and without a scale the exact sums in int32; `by` is a factor of each
    map besides one scale for all. Weights with a rest are not in groups: there the sum of all inputs of a position is taken
    along, as if there were one more map.
    """
    maps, each = len(w.int8), w.int8
    if w.rest is not None:
        each = np.concatenate((each, np.ones((1, *each.shape[1:]), np.int8)))
    dtypes = (np.float32 if w.rest is None else np.int32, np.int32)
    scaled, exact = (ByteConvolution(each, window, groups, dtype, 0, pool) for dtype in dtypes)
    less = np.ascontiguousarray(scaled.totals, np.int32)
    plus, ones = np.zeros(len(each), np.float32), np.ones(maps, np.float32)
    ones[:] = 1 if by is None else by
    plus[:maps] = 0 if shift is None else shift
    prepare, spread, centre = (
        load_kernel("dynamic_quantization", name) for name in ("zero_point_offsets", "expand_scale", "subtract_rest")
    )

    def convolve(x: Array, zero: Array | None, scale: Array | None = None) -> Array:
        kernel = exact if scale is None else scaled
        if zero is None:
            zero = retain(np.zeros((), np.uint8))
        offset, padding = pool.empty((len(each),), np.int32), pool.empty((kernel.padding,), np.uint8)
        prepare(address(less), address(zero), address(offset), len(each), address(padding), kernel.padding)
        factor = scale
        if scale is not None and scale.size == 1:
            factor = pool.empty((maps,))
            spread(address(scale), address(ones), address(factor), maps)
        times = 0 if factor is None else address(factor)
        if w.rest is None:
            return kernel(x, (address(offset), times or address(plus), address(plus)), address(padding))
        sums = kernel(x, (address(offset), address(plus), address(plus)), address(padding)).transpose(0, 2, 3, 1)
        rows = sums.size // len(each)
        chunk, units = chunks(rows, 4 * maps)
        y = pool.empty((*sums.shape[:3], maps), np.int32 if scale is None else np.float32)
        centre(address(sums), address(y), rows, maps, address(w.rest), times, address(plus), chunk, units=units)
        return first(y)

    convolve.retained = (less, plus, ones, scaled, exact)  # type: ignore[attr-defined]
    convolve.how = scaled.how  # type: ignore[attr-defined]
    return convolve
