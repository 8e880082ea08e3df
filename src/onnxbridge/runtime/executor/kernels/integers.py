"""Convolutions, products, sums and maxima of quantized values, without dequantization."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any

import numpy as np

from onnxbridge.hub.io.resource_limits import claim
from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.kernels.array_layout import Array, address, empty_like, first
from onnxbridge.runtime.executor.kernels.compile import byte_tiles
from onnxbridge.runtime.executor.kernels.compile.kernel import load_kernel
from onnxbridge.runtime.executor.kernels.convolution import BLOCK_BYTES
from onnxbridge.runtime.executor.kernels.run.call_recorder import int64_array, mark_incomplete
from onnxbridge.runtime.executor.kernels.run.thread_pool import threads
from onnxbridge.runtime.executor.kernels.run.work_partition import chunks, cut
from onnxbridge.runtime.executor.numpy.kernels.windows import out_sizes
from onnxbridge.runtime.executor.numpy.padding import Window

BYTES = (np.dtype(np.uint8), np.dtype(np.int8))
_UNFOLDED = 16  # input channels below which a row of the kernel is taken as one tap
_KINDS = {np.dtype(np.float32): 0, np.dtype(np.uint8): 1, np.dtype(np.int8): 2, np.dtype(np.int32): 3}
_SLACK = 64  # bytes that may be read after the last element, where weights are zero


def available() -> bool:
    """Whether the processor sums products of bytes."""
    return byte_tiles.lanes() > 0


@dataclass(frozen=True)
class Result:
    """Requantization of exact sums: times a factor of each channel, plus a shift; for bytes rounded, plus a zero point."""

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

    To the exact sums over (x - zero) * w the integers `bias` are added first. `dense`: the kernel is not dilated.
    """
    signs = 128 if zero.dtype == np.int8 else 0
    zero_point = int(zero) + signs
    run = ByteConvolution(w, window, groups, result.dtype, result.zero, pool, signs, zero_point if dense else None)
    offset = (bias - zero_point * run.totals).astype(np.int32)
    factor, shift = (np.ascontiguousarray(np.broadcast_to(v, len(w)), np.float32) for v in (result.factor, result.shift))
    zeros = np.full(run.padding, zero_point, np.uint8)
    where, nothing = (address(offset), address(factor), address(shift)), address(zeros)

    def convolve(x: Array) -> Array:
        if x.ndim != 4 or x.shape[1] != run.channels or x.dtype != zero.dtype:
            raise ValueError(f"a convolution over {run.channels} channels of {zero.dtype} does not fit {x.dtype} of {x.shape}")
        return run(x, where, nothing, result.low, result.high)

    convolve.retained = (run.weights, offset, factor, shift, zeros)  # type: ignore[attr-defined]
    convolve.how = run.how  # type: ignore[attr-defined]
    return convolve


def still(x: Array) -> Window:
    """The window of one position: a product as a convolution."""
    return Window((1, 1), (1, 1), (1, 1), ((0, 0), (0, 0)))


def as_rows(run: Callable[[Array], Array], x: Array) -> Array:
    """A convolution of one position as a product with the last axis."""
    if not x.flags.c_contiguous:
        mark_incomplete()
    y = run(np.ascontiguousarray(x).reshape(1, -1, 1, x.shape[-1]).transpose(0, 3, 1, 2))
    return y.transpose(0, 2, 3, 1).reshape(*x.shape[:-1], y.shape[1])


@dataclass(eq=False)
class ByteConvolution:
    """Packed weights (M, C/groups, KH, KW) of int8, and convolving bytes (N, C, H, W) with them.

    `signs` is 128 for signed bytes, which makes them unsigned. `fill` pads an input whose kernel rows are taken as
    one tap each, if they may be.
    """

    w: InitVar[Array]
    window: Callable[[Array], Window]
    groups: int
    dtype: Any
    zero: int
    pool: Pool
    signs: int = 0
    fill: int | None = None
    weights: Array = field(init=False)
    known: dict[tuple[int, ...], Any] = field(init=False, default_factory=dict)

    def __post_init__(self, w: Array) -> None:
        maps, depth, kh, kw = self.shape = w.shape
        self.channels, columns = depth * self.groups, maps // self.groups
        self.depthwise = depth == 1 and columns == 1 and self.groups > 1
        self.row_taps = self.fill is not None and not self.depthwise and self.groups == 1 and depth < _UNFOLDED and kw > 1
        self.totals = w.sum((1, 2, 3), dtype=np.int64)
        self.padding = self.channels + _SLACK  # bytes that are read for positions outside of the input
        if self.depthwise:
            self.weights = np.ascontiguousarray(w.reshape(self.channels, kh * kw).T.astype(np.int32))
        else:
            self.weights = np.concatenate([_packed(g, self.row_taps) for g in w.reshape(self.groups, columns, depth, kh, kw)])
        self._run = load_kernel("integers", "depthwise" if self.depthwise else "convolve")
        way = "tiles of bytes over " + ("rows of the kernel" if self.row_taps else "taps")
        self.how = ("depthwise, bytes" if self.depthwise else way, depth * kh * kw)

    def _geometry(self, x: Array) -> Any:
        maps, depth, kh, kw = self.shape
        channels, columns = self.channels, maps // self.groups
        moves = self.window(x)
        (top, bottom), (left, right) = moves.pads
        n, _, h, width = x.shape
        oh, ow = out_sizes((h, width), (kh, kw), moves.strides, moves.pads, moves.dilations)
        claim((n, maps, oh, ow), self.dtype)
        if min(top, bottom, left, right) < 0:
            raise ValueError(f"padding of {moves.pads}")
        frame = (0, 0, 0, 0)
        if self.row_taps:
            frame = (top, bottom, left, right)
            h, width, top, left = h + top + bottom, width + left + right, 0, 0
        taps = (kh, 1) if self.row_taps else (kh, kw)
        deep = depth * kw if self.row_taps else depth
        rows, tall = n * oh * ow, byte_tiles.rows()
        block = -(-max(tall, min(480, BLOCK_BYTES // max(1, deep * (1 if kh == 1 else 2)))) // tall) * tall
        across, panel = (
            (channels, 64) if self.depthwise else (columns, byte_tiles.panel()) if self.groups == 1 else (self.groups, 1)
        )
        work = rows * maps * depth * kh * kw * (2 if self.depthwise else 1) // (1 if self.depthwise else 3)
        block, split, share, units = cut(rows, across, panel, work, block, tall)
        lines, sums = 8 * (block + 16) * math.prod(taps), 4 * max(tall * byte_tiles.panel(), 64)
        spec = np.array(
            [n, h, width, channels, channels if self.depthwise else self.groups, deep, columns, *taps,
             *moves.strides, *moves.dilations, top, left, oh, ow, maps, 0, block, 0, split, share, lines, sums,
             _KINDS[np.dtype(self.dtype)], self.zero],
            np.int64,
        )  # fmt: skip
        copied = bool(self.signs) or self.row_taps or (depth % 4 != 0 and not self.depthwise)
        return (n, oh, ow, maps), frame, copied, spec, lines * threads(), sums * threads(), units

    def __call__(
        self, x: Array, where: tuple[int, int, int], nothing: int, low: float = -math.inf, high: float = math.inf
    ) -> Array:
        """The results, given the addresses of offset (int32), factor and shift (float32) for each map, and of the padding."""
        if x.shape not in self.known:
            self.known[x.shape] = self._geometry(x)
        shape, frame, copied, spec, lines, sums, units = self.known[x.shape]
        claim(shape, self.dtype)
        buffer, data = None, address(x)
        if copied or not x.transpose(0, 2, 3, 1).flags.c_contiguous:
            buffer, data = _padded(x, frame, self.fill or 0, self.signs, self.pool)
        y = self.pool.empty(shape, self.dtype)
        table, at = self.pool.scratch(lines)
        accumulators, totals = self.pool.scratch(sums)
        weights = address(self.weights)
        self._run(data, address(y), weights, *where, at, totals, nothing, address(spec), low, high, units=units)
        del buffer, table, accumulators  # keep the memory alive until here
        return first(y)


def _packed(w: Array, row_taps: bool) -> Array:
    """Weights (columns, depth, KH, KW) as panels of (tap, four of the depth, column, four)."""
    columns, depth, kh, kw = w.shape
    by_tap = w.transpose(2, 3, 1, 0).reshape((kh, kw * depth, columns) if row_taps else (kh * kw, depth, columns))
    taps, deep, _ = by_tap.shape
    n = byte_tiles.lanes()
    full = np.zeros((taps, -(-deep // 4) * 4, -(-columns // n) * n), np.int8)
    full[:, :deep, :columns] = by_tap
    size = byte_tiles.panel()
    quads, panels = full.shape[1] // 4, full.shape[2] // size  # the remaining columns are one vector wide
    first = full[:, :, : panels * size].reshape(taps, quads, 4, panels, size).transpose(3, 0, 1, 4, 2)
    rest = full[:, :, panels * size :].reshape(taps, quads, 4, full.shape[2] - panels * size).transpose(0, 1, 3, 2)
    return np.concatenate([first.reshape(-1), rest.reshape(-1)])


def _padded(x: Array, frame: Sequence[int], fill: int, signs: int, pool: Pool) -> tuple[Any, int]:
    """x as unsigned (N, H, W, C) with padding: the object that owns the memory, and its address."""
    n, c, h, w = x.shape
    high, wide = h + frame[0] + frame[1], w + frame[2] + frame[3]
    buffer, at = pool.scratch(n * high * wide * c + _SLACK)
    spec, where = int64_array(n, c, h, w, *x.strides, *frame, fill, signs)
    load_kernel("integers", "pad_channels_last")(address(x), at, where, units=n * high)
    return buffer, at


def combined(x: Array, y: Array, a: float, b: float, c: float, zero: Any, low: float, high: float, pool: Pool) -> Array:
    """round(a * x + b * y + c) + zero, clipped: bytes of one shape and memory order, in the type of the zero point."""
    z = empty_like(x, pool, zero.dtype)
    chunk, units = chunks(x.size)
    signs = (int(v.dtype == np.int8) for v in (x, y, z))
    spec, where = int64_array(x.size, chunk, *signs, int(zero))
    load_kernel("integers", "combined")(address(x), address(y), address(z), where, a, b, c, low, high, units=units)
    return z


def largest(x: Array, w: Window, out: Sequence[int], pool: Pool) -> Array:
    """The largest byte of each window of (N, C, H, W)."""
    n, c, height, width = x.shape
    buffer, at = None, address(x)
    if not x.transpose(0, 2, 3, 1).flags.c_contiguous:
        buffer, at = _padded(x, (0, 0, 0, 0), 0, 0, pool)
    y = pool.empty((n, *out, c), x.dtype)
    (top, _), (left, _) = w.pads
    signs = 128 if x.dtype == np.int8 else 0
    spec, where = int64_array(n, height, width, c, *w.kernel, *w.strides, *w.dilations, top, left, *out, signs)
    load_kernel("integers", "maximum")(at, address(y), where, units=n * out[0])
    del buffer
    return first(y)
