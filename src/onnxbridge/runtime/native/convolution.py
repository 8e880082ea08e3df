"""Convolutions and matrix products with weights packed once; what follows them is done while the result is in the cache."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxbridge.hub.limits import claim, claim_broadcast
from onnxbridge.runtime.memory import Pool
from onnxbridge.runtime.native import minimal, tile
from onnxbridge.runtime.native.address import Array, address, first, last, plain
from onnxbridge.runtime.native.build import loop
from onnxbridge.runtime.native.machine import lanes

BLOCK_BYTES = 448 << 10  # of input rows that are multiplied with all columns before the next ones: they stay in the L2 cache
SLAB = 768  # of a product's depth
CURVES = ("", "HardSwish", "HardSigmoid", "Sigmoid", "Swish", "Gelu", "Gelu tanh", "Tanh", "LeakyRelu", "Exp", "Erf")
MINIMAL = 16  # channels on both sides from which a 3x3 kernel is worth transforming
_UNFOLDED = 16  # input channels below which a row of the kernel is taken as one tap


@dataclass(frozen=True)
class Ending:
    """What is done to a product: clipped to [low, high], then a curve of CURVES with its parameters."""

    low: float = -math.inf
    high: float = math.inf
    curve: str = ""
    a: float = 0.0
    b: float = 0.0

    @property
    def kind(self) -> int:
        """The curve's number in the loops."""
        return CURVES.index(self.curve)

    def applied(self, x: Array, pool: Pool) -> Array:
        """Done to an array by itself."""
        if self.low != -math.inf or self.high != math.inf:
            x = np.clip(x, np.float32(self.low), np.float32(self.high))
        return bent(x, self.kind, self.a, self.b, pool) if self.curve else x


def bent(x: Array, kind: int, a: float, b: float, pool: Pool) -> Array:
    """A curve of CURVES, elementwise, in the memory order of x."""
    if x.ndim == 4 and not x.flags.c_contiguous:
        data = last(x, pool)
        y = pool.empty(data.shape)
        loop("curves", "apply", "iiiiff")(kind, address(data), address(y), y.size, a, b)
        return first(y)
    data = plain(x)
    y = pool.empty(data.shape)
    loop("curves", "apply", "iiiiff")(kind, address(data), address(y), y.size, a, b)
    return y


def packed(*weights: Array) -> Array:
    """Weights (taps, depth, columns) of any strides as panels for the tiles, one after the other."""
    pack = loop("convolution", "pack", "iiiiiiii")
    sizes = [w.shape[0] * w.shape[1] * whole(w.shape[2]) for w in weights]
    y = np.empty(sum(sizes), np.float32)
    at = address(y)
    for w, size in zip(weights, sizes, strict=True):
        pack(address(w), at, *w.shape, *(s // 4 for s in w.strides))
        at += 4 * size
    return y


def whole(n: int) -> int:
    """n rounded up to whole vectors."""
    return -(-n // lanes()) * lanes()


def block_of(depth: int, rows: int) -> int:
    """How many rows of this depth are taken at once: whole tiles, and blocks of nearly the same size."""
    tall = tile.rows()
    most = max(tall, min(480, BLOCK_BYTES // (4 * max(1, depth))))
    blocks = max(1, -(-rows // most))
    return -(-max(1, rows) // (blocks * tall)) * tall


def filled(bias: Array | None, groups: int, columns: int) -> Array:
    """The bias with each group's columns filled up to whole vectors; zeros for none."""
    y = np.zeros((groups, whole(columns)), np.float32)
    if bias is not None:
        y[:, :columns] = bias.reshape(groups, columns)
    return y


def convolution(
    w: Array,
    bias: Array | None,
    window: Callable[[Array], Any],
    groups: int,
    ending: Ending,
    pool: Pool,
    unit: bool = False,
) -> Callable[..., Array]:
    """The function of (x, what is added) for constant weights (M, C/groups, KH, KW).

    `window(x)` tells how the kernel moves; `unit` that it does by one element and is not dilated.
    """
    maps, depth, kh, kw = w.shape
    channels, columns = depth * groups, maps // groups
    each = depth == 1 and columns == 1 and groups > 1
    wide = not each and groups == 1 and depth < _UNFOLDED and kw > 1
    few = unit and not each and groups == 1 and (kh, kw) == (3, 3) and min(depth, columns) >= MINIMAL
    by_tap = w.reshape(groups, columns, depth, kh * kw).transpose(0, 3, 2, 1)
    if each:
        weights = np.zeros((kh * kw, whole(channels)), np.float32)
        weights[:, :channels] = w.reshape(channels, -1).T
        biases = filled(bias, 1, channels)
    elif few:
        weights = packed(*(g[None] for g in minimal.transformed(w)))
        biases = filled(bias, groups, columns)
    else:
        weights = packed(*by_tap)
        biases = filled(bias, groups, columns)
    zeros = np.zeros(max(channels, whole(maps)), np.float32)
    where = (address(weights), address(biases))
    nothing = address(zeros)
    if few:
        minimal.load()
        run = loop("minimal", "convolve", "iiiiiiiiiffff")
    else:
        run = loop("convolution", "depthwise" if each else "convolve", "iiiiiiiiffff")
    known: dict[tuple[int, ...], tuple[Any, ...]] = {}

    def geometry(x: Array) -> tuple[Any, ...]:
        moves = window(x)
        (top, bottom), (left, right) = moves.pads
        (sh, sw), (dh, dw) = moves.strides, moves.dilations
        n, _, h, width = x.shape
        oh = (h + top + bottom - (kh - 1) * dh - 1) // sh + 1
        ow = (width + left + right - (kw - 1) * dw - 1) // sw + 1
        claim((n, maps, oh, ow), np.float32)
        merged = wide and dw == 1
        framed = ((top, bottom), (left, right)) if merged and any((top, bottom, left, right)) else None
        if framed:
            h, width, top, left = h + top + bottom, width + left + right, 0, 0
        taps = (kh, 1) if merged else (kh, kw)
        if few:
            block = minimal.block_of(depth, columns, n * -(-oh // 2) * -(-ow // 2))
        else:
            block = block_of(depth * (kw if merged else 1) * (1 if kh == 1 else 2), n * oh * ow)
        spec = np.array(
            [n, h, width, channels, channels if each else groups, depth * kw if merged else depth, columns, *taps,
             sh, sw, dh, dw, top, left, oh, ow, maps, maps, block, ending.kind],
            np.int64,
        )  # fmt: skip
        bare = spec.copy()
        bare[-1] = 0
        room = 16 * block * (depth + columns) + columns if few else 0
        return (n, oh, ow, maps), framed, (spec, bare), (address(spec), address(bare)), 8 * (block + 16) * math.prod(taps), room

    def moved(x: Array, add: Array | None, found: tuple[Any, ...], spec: int, end: Ending) -> Array:
        shape, framed, _, _, lines, room = found
        data = _framed(x, framed, pool) if framed else last(x, pool)
        y = pool.empty(shape)
        added = None if add is None else last(add, pool)
        held, table = pool.scratch(lines)
        planes, scratch = pool.scratch(4 * room) if room else (None, 0)
        run(
            address(data), address(y), *where, 0 if added is None else address(added), table, nothing, spec,
            *((scratch,) if room else ()), end.low, end.high, end.a, end.b,
        )  # fmt: skip
        return first(y)

    def convolve(x: Array, add: Array | None = None) -> Array:
        """What is added is of the result's shape; if it is not, it is added as NumPy does it."""
        found = known.get(x.shape)
        if found is None:
            found = known[x.shape] = geometry(x)
        shape, _, _, (spec, bare), _, _ = found
        claim(shape, np.float32)
        if add is not None and (add.dtype != np.float32 or add.shape != (shape[0], maps, shape[1], shape[2])):
            claim_broadcast(np.broadcast_to(x.dtype.type(0), (shape[0], maps, shape[1], shape[2])), add)
            return ending.applied(moved(x, None, found, bare, Ending()) + add, pool)
        return moved(x, add, found, spec, ending)

    convolve.kept = (weights, biases, zeros)  # type: ignore[attr-defined]
    return convolve


def _framed(x: Array, pads: Sequence[tuple[int, int]], pool: Pool) -> Array:
    """(N, C, H, W) as contiguous (N, H, W, C) with zeros around it."""
    (top, bottom), (left, right) = pads
    n, c, h, w = x.shape
    y = pool.empty((n, h + top + bottom, w + left + right, c))
    spec = np.array([*(s // 4 for s in x.strides), top, bottom, left, right], np.int64)
    loop("layout", "framed", "iiiiiii")(address(x), address(y), n, c, h, w, address(spec))
    return y


def product(w: Array, bias: Array | None, ending: Ending, pool: Pool) -> Callable[..., Array]:
    """The function of (x, what is added) for constant weights (K, N): x (..., K) gives (..., N)."""
    depth, columns = w.shape
    slab = -(-depth // max(1, round(depth / SLAB)))
    weights = packed(*(w[None, k : k + slab] for k in range(0, depth, slab)))
    biases, zeros = filled(bias, 1, columns), np.zeros(whole(columns), np.float32)
    where = (address(weights), address(biases), address(zeros))
    run = loop("convolution", "multiply", "iiiiiiiiiiiiiffff")

    def multiplied(x: Array, add: Array | None, end: Ending) -> Array:
        data = plain(x)
        rows = data.size // depth if depth else 0
        y = pool.empty((*x.shape[:-1], columns))
        added = None if add is None else plain(add)
        block = block_of(slab, rows)
        held, table = pool.scratch(8 * block)
        run(
            address(data), address(y), *where, 0 if added is None else address(added), table,
            rows, depth, slab, columns, block, end.kind, end.low, end.high, end.a, end.b,
        )  # fmt: skip
        del held  # it had to live until here
        return y

    def multiply(x: Array, add: Array | None = None) -> Array:
        """What is added is of the result's shape; if it is not, it is added as NumPy does it."""
        if x.ndim == 0 or x.shape[-1] != depth or x.dtype != np.float32:
            raise ValueError(f"a product with float32 weights of {(depth, columns)} does not fit {x.dtype} of {x.shape}")
        shape = (*x.shape[:-1], columns)
        claim(shape, np.float32)
        if add is not None and (add.dtype != np.float32 or add.shape != shape):
            claim_broadcast(np.broadcast_to(x.dtype.type(0), shape), add)
            return ending.applied(multiplied(x, None, Ending()) + add, pool)
        return multiplied(x, add, ending)

    multiply.kept = (weights, biases, zeros)  # type: ignore[attr-defined]
    return multiply
