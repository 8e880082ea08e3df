"""Convolutions, products, sums and maxima of bytes, without a detour through float32."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxbridge.hub.limits import claim
from onnxbridge.runtime.memory import Pool
from onnxbridge.runtime.native import quantized
from onnxbridge.runtime.native.address import Array, address, first
from onnxbridge.runtime.native.build import loop
from onnxbridge.runtime.native.convolution import BLOCK_BYTES
from onnxbridge.runtime.native.drive import threads
from onnxbridge.runtime.native.share import chunks, cut
from onnxbridge.runtime.native.tape import numbers
from onnxbridge.runtime.numpy.padding import Window

BYTES = (np.dtype(np.uint8), np.dtype(np.int8))
_UNFOLDED = 16  # input channels below which a row of the kernel is taken as one tap
_KINDS = {np.dtype(np.float32): 0, np.dtype(np.uint8): 1, np.dtype(np.int8): 2, np.dtype(np.int32): 3}
_SLACK = 64  # bytes that may be read behind the last element, where weights are zero


def available() -> bool:
    """Whether the processor sums products of bytes."""
    return quantized.lanes() > 0


@dataclass(frozen=True)
class Result:
    """What becomes of exact sums: times a factor for each channel, plus a shift; as bytes rounded, plus a zero point."""

    dtype: Any
    factor: Array
    shift: Array
    zero: int = 0
    low: float = -math.inf
    high: float = math.inf


def convolution(
    w: Array,
    zero: Any,
    bias: Array,
    window: Callable[[Array], Window],
    groups: int,
    result: Result,
    pool: Pool,
    dense: bool = True,
) -> Callable[[Array], Array]:
    """The function of x (N, C, H, W) in the type of its zero point, for constant weights (M, C/groups, KH, KW) of int8.

    To the exact sums over (x - zero) * w the whole numbers `bias` are added first. `dense`: the kernel is not dilated.
    """
    maps, depth, kh, kw = w.shape
    channels, columns = depth * groups, maps // groups
    signs = 128 if zero.dtype == np.int8 else 0
    nought = int(zero) + signs
    each = depth == 1 and columns == 1 and groups > 1
    wide = dense and not each and groups == 1 and depth < _UNFOLDED and kw > 1
    offset = (bias - nought * w.sum((1, 2, 3), dtype=np.int64)).astype(np.int32)
    if each:
        weights: Array = np.ascontiguousarray(w.reshape(channels, kh * kw).T.astype(np.int32))
    else:
        weights = np.concatenate([_packed(g, wide) for g in w.reshape(groups, columns, depth, kh, kw)])
    factor, shift = (np.ascontiguousarray(np.broadcast_to(v, (maps,)), np.float32) for v in (result.factor, result.shift))
    zeros = np.full(channels + _SLACK, nought, np.uint8)
    where = tuple(map(address, (weights, offset, factor, shift)))
    kind, nothing = _KINDS[np.dtype(result.dtype)], address(zeros)
    run = loop("integers", "depthwise" if each else "convolve")
    known: dict[tuple[int, ...], Any] = {}

    def geometry(x: Array) -> Any:
        moves = window(x)
        (top, bottom), (left, right) = moves.pads
        (sh, sw), (dh, dw) = moves.strides, moves.dilations
        n, _, h, width = x.shape
        oh = (h + top + bottom - (kh - 1) * dh - 1) // sh + 1
        ow = (width + left + right - (kw - 1) * dw - 1) // sw + 1
        claim((n, maps, oh, ow), result.dtype)
        if min(top, bottom, left, right) < 0:
            raise ValueError(f"padding of {moves.pads}")
        frame = (0, 0, 0, 0)
        if wide:
            frame = (top, bottom, left, right)
            h, width, top, left = h + top + bottom, width + left + right, 0, 0
        taps = (kh, 1) if wide else (kh, kw)
        deep = depth * kw if wide else depth
        rows, tall = n * oh * ow, quantized.rows()
        block = -(-max(tall, min(480, BLOCK_BYTES // max(1, deep * (1 if kh == 1 else 2)))) // tall) * tall
        across, panel = (channels, 64) if each else (columns, quantized.panel()) if groups == 1 else (groups, 1)
        work = rows * maps * depth * kh * kw * (2 if each else 1) // (1 if each else 3)
        block, split, share, units = cut(rows, across, panel, work, block, tall)
        lines, sums = 8 * (block + 16) * math.prod(taps), 4 * max(tall * quantized.panel(), 64)
        spec = np.array(
            [n, h, width, channels, channels if each else groups, deep, columns, *taps, sh, sw, dh, dw, top, left,
             oh, ow, maps, 0, block, 0, split, share, lines, sums, kind, result.zero],
            np.int64,
        )  # fmt: skip
        copied = bool(signs) or wide or (depth % 4 != 0 and not each)
        return (n, oh, ow, maps), frame, copied, spec, lines * threads(), sums * threads(), units

    def convolve(x: Array) -> Array:
        if x.ndim != 4 or x.shape[1] != channels or x.dtype != zero.dtype:
            raise ValueError(f"a convolution over {channels} channels of {zero.dtype} does not fit {x.dtype} of {x.shape}")
        if x.shape not in known:
            known[x.shape] = geometry(x)
        shape, frame, copied, spec, lines, sums, units = known[x.shape]
        claim(shape, result.dtype)
        held, data = None, address(x)
        if copied or not x.transpose(0, 2, 3, 1).flags.c_contiguous:
            held, data = _framed(x, frame, nought, signs, pool)
        y = pool.empty(shape, result.dtype)
        table, at = pool.scratch(lines)
        room, totals = pool.scratch(sums)
        run(data, address(y), *where, at, totals, nothing, address(spec), result.low, result.high, units=units)
        del held, table, room  # they had to live until here
        return first(y)

    convolve.kept = (weights, offset, factor, shift, zeros)  # type: ignore[attr-defined]
    way = "each channel by itself, bytes" if each else "tiles of bytes over " + ("rows of the kernel" if wide else "taps")
    convolve.how = (way, depth * kh * kw)  # type: ignore[attr-defined]
    return convolve


def _packed(w: Array, wide: bool) -> Array:
    """Weights (columns, depth, KH, KW) as panels of (tap, four of the depth, column, four)."""
    columns, depth, kh, kw = w.shape
    by_tap = w.transpose(2, 3, 1, 0).reshape((kh, kw * depth, columns) if wide else (kh * kw, depth, columns))
    taps, deep, _ = by_tap.shape
    n = quantized.lanes()
    full = np.zeros((taps, -(-deep // 4) * 4, -(-columns // n) * n), np.int8)
    full[:, :deep, :columns] = by_tap
    parts = []
    j = 0
    while j < columns:
        size = n if columns - j <= n else quantized.panel()
        part = full[:, :, j : j + size]
        parts.append(part.reshape(taps, -1, 4, size).transpose(0, 1, 3, 2).reshape(-1))
        j += size
    return np.concatenate(parts)


def _framed(x: Array, frame: Sequence[int], fill: int, signs: int, pool: Pool) -> tuple[Any, int]:
    """x as unsigned (N, H, W, C) in a frame: what keeps it, and its address."""
    n, c, h, w = x.shape
    high, wide = h + frame[0] + frame[1], w + frame[2] + frame[3]
    held, at = pool.scratch(n * high * wide * c + _SLACK)
    spec, where = numbers(n, c, h, w, *x.strides, *frame, fill, signs)
    loop("integers", "framed")(address(x), at, where, units=n * high)
    return held, at


def combined(x: Array, y: Array, a: float, b: float, c: float, zero: Any, low: float, high: float, pool: Pool) -> Array:
    """round(a * x + b * y + c) + zero, clipped: bytes of one shape and memory order, in the type of the zero point."""
    z = _alike(x, zero.dtype, pool)
    chunk, units = chunks(x.size)
    signs = (int(v.dtype == np.int8) for v in (x, y, z))
    spec, where = numbers(x.size, chunk, *signs, int(zero))
    loop("integers", "combined")(address(x), address(y), address(z), where, a, b, c, low, high, units=units)
    return z


def _alike(x: Array, dtype: Any, pool: Pool) -> Array:
    """Room in the memory order of x, which is dense."""
    if x.flags.c_contiguous:
        return pool.empty(x.shape, dtype)
    n, c, h, w = x.shape
    return pool.empty((n, h, w, c), dtype).transpose(0, 3, 1, 2)


def largest(x: Array, w: Window, out: Sequence[int], pool: Pool) -> Array:
    """The largest byte of each window of (N, C, H, W)."""
    n, c, height, width = x.shape
    held, at = None, address(x)
    if not x.transpose(0, 2, 3, 1).flags.c_contiguous:
        held, at = _framed(x, (0, 0, 0, 0), 0, 0, pool)
    y = pool.empty((n, *out, c), x.dtype)
    (top, _), (left, _) = w.pads
    signs = 128 if x.dtype == np.int8 else 0
    spec, where = numbers(n, height, width, c, *w.kernel, *w.strides, *w.dilations, top, left, *out, signs)
    loop("integers", "maximum")(at, address(y), where, units=n * out[0])
    del held
    return first(y)
