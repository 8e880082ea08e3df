"""Convolutions and matrix products with weights packed once; what follows them is done while the result is in the cache."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxbridge.hub.io.resource_limits import claim, claim_broadcast
from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.kernels import winograd
from onnxbridge.runtime.executor.kernels.array_layout import Array, address, first, last, plain, swapped
from onnxbridge.runtime.executor.kernels.compile import float_tiles
from onnxbridge.runtime.executor.kernels.compile.kernel import loop
from onnxbridge.runtime.executor.kernels.compile.llvm import lanes
from onnxbridge.runtime.executor.kernels.run.call_recorder import beside, numbers
from onnxbridge.runtime.executor.kernels.run.thread_pool import threads
from onnxbridge.runtime.executor.kernels.run.work_partition import chunks, cut

BLOCK_BYTES = 448 << 10  # of input rows that are multiplied with all columns before the next ones: they stay in the L2 cache
SLAB = 768  # of a product's depth
CURVES = (
    "", "HardSwish", "HardSigmoid", "Sigmoid", "Swish", "Gelu", "Gelu tanh", "Tanh", "LeakyRelu", "Exp", "Erf",
    "Sqrt", "Square", "Cube", "Reciprocal", "Abs", "Neg", "Floor", "Elu", "Mish", "Softplus", "Log",
)  # fmt: skip
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
        bare = self.low == -math.inf and self.high == math.inf and not self.curve
        return x if bare else bent(x, self, pool)


def bent(x: Array, ending: Ending, pool: Pool) -> Array:
    """An ending, elementwise, in the memory order of x."""
    inside = swapped(x)
    data = last(x, pool) if inside else plain(x, pool)
    y = pool.empty(data.shape)
    chunk, units = chunks(y.size, 4)
    loop("activations", "apply")(
        ending.kind, address(data), address(y), y.size, chunk, ending.low, ending.high, ending.a, ending.b, units=units
    )
    return first(y) if inside else y


def packed(*weights: Array, slab: int = 0) -> Array:
    """Weights (taps, depth, columns) of any strides as panels for the tiles, one after the other.

    Those of one tap may be cut into slabs of the depth, each with all panels.
    """
    pack = loop("convolution", "pack")
    sizes = [w.shape[0] * w.shape[1] * whole(w.shape[2]) for w in weights]
    y = np.empty(sum(sizes), np.float32)
    at = address(y)
    for w, size in zip(weights, sizes, strict=True):
        pack(address(w), at, *w.shape, *(s // 4 for s in w.strides), slab or max(1, w.shape[1]))
        at += 4 * size
    return y


def whole(n: int) -> int:
    """n rounded up to whole vectors."""
    return -(-n // lanes()) * lanes()


def block_of(depth: int, rows: int) -> int:
    """How many rows of this depth are taken at once: whole tiles, and blocks of nearly the same size."""
    tall = float_tiles.rows()
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
        weights = packed(*(g[None] for g in winograd.transformed(w)))
        biases = filled(bias, groups, columns)
    else:
        weights = packed(*by_tap)
        biases = filled(bias, groups, columns)
    zeros = np.zeros(max(channels, whole(maps)), np.float32)
    where = (address(weights), address(biases))
    nothing = address(zeros)
    if few:
        winograd.load()
        run = loop("winograd", "convolve")
    else:
        run = loop("convolution", "depthwise" if each else "convolve")
    known: dict[tuple[tuple[int, ...], int], _Geometry] = {}

    def geometry(x: Array, step: int) -> _Geometry:
        moves = window(x)
        (top, bottom), (left, right) = moves.pads
        (sh, sw), (dh, dw) = moves.strides, moves.dilations
        n, _, h, width = x.shape
        oh = (h + top + bottom - (kh - 1) * dh - 1) // sh + 1
        ow = (width + left + right - (kw - 1) * dw - 1) // sw + 1
        claim((n, maps, oh, ow), np.float32)
        merged = wide and dw == 1 and min(top, bottom, left, right) >= 0
        framed = ((top, bottom), (left, right)) if merged and any((top, bottom, left, right)) else None
        if framed:
            h, width, top, left = h + top + bottom, width + left + right, 0, 0
        taps = (kh, 1) if merged else (kh, kw)
        rows, work = n * oh * ow, n * oh * ow * maps * depth * kh * kw
        across, panel = (channels, lanes()) if each else (columns, float_tiles.panel()) if groups == 1 else (groups, 1)
        if few:
            rows = n * -(-oh // 2) * -(-ow // 2)
            block, high = winograd.block_of(depth, columns, rows), float_tiles.rows()
        else:
            block = block_of(depth * (kw if merged else 1) * (1 if kh == 1 else 2), rows)
            high = float_tiles.PIXELS if each else float_tiles.rows()
            work = work * 8 if each else work
        block, split, share, units = cut(rows, across, panel, work, block, high)
        lines = 8 * (block + 16) * math.prod(taps)
        room = 4 * (16 * block * (depth + columns) + columns) if few else 0
        spec = np.array(
            [n, h, width, channels, channels if each else groups, depth * kw if merged else depth, columns, *taps,
             sh, sw, dh, dw, top, left, oh, ow, step, maps, block, ending.kind, split, share, lines, room],
            np.int64,
        )  # fmt: skip
        bare = spec.copy()
        bare[20] = 0
        shape, many = (n, oh, ow, maps), threads()
        return _Geometry(shape, framed, spec, bare, address(spec), address(bare), lines * many, room * many, units)

    def moved(x: Array, add: Array | None, into: Array | None, g: _Geometry, spec: int, end: Ending) -> Array:
        data = _framed(x, g.framed, pool) if g.framed else last(x, pool)
        y = pool.empty(g.shape) if into is None else into
        added = None if add is None else last(add, pool)
        held, table = pool.scratch(g.lines)
        planes, scratch = pool.scratch(g.room) if g.room else (None, 0)
        run(
            address(data), address(y), *where, 0 if added is None else address(added), table, nothing, spec,
            *((scratch,) if g.room else ()), end.low, end.high, end.a, end.b, units=g.units,
        )  # fmt: skip
        return first(y)

    def of(x: Array, step: int = maps) -> _Geometry:
        found = known.get((x.shape, step))
        if found is None:
            found = known[x.shape, step] = geometry(x, step)
        return found

    def convolve(x: Array, add: Array | None = None, into: Array | None = None) -> Array:
        """What is added is of the result's shape; if it is not, it is added as NumPy does it.

        The result is `into` if that is given: (N, H, W, C) whose rows and samples follow each other, some elements apart.
        """
        found = of(x) if into is None else of(x, into.strides[2] // 4)
        shape = found.shape
        claim(shape, np.float32)
        if add is not None and (add.dtype != np.float32 or add.shape != (shape[0], maps, shape[1], shape[2])):
            claim_broadcast(np.broadcast_to(x.dtype.type(0), (shape[0], maps, shape[1], shape[2])), add)
            beside()
            plainly = of(x)
            y = ending.applied(moved(x, None, None, plainly, plainly.at_bare, Ending()) + add, pool)
            if into is None:
                return y
            first(into)[...] = y
            return first(into)
        return moved(x, add, into, found, found.at_spec, ending)

    convolve.kept = (weights, biases, zeros)  # type: ignore[attr-defined]
    convolve.shape_of = lambda x: of(x).shape  # type: ignore[attr-defined]
    way = "each channel by itself" if each else "minimal filtering F(2x2, 3x3)" if few else "tiles over rows of the kernel"
    convolve.how = (way if each or few or wide else "tiles over taps", depth * kh * kw)  # type: ignore[attr-defined]
    return convolve


@dataclass(frozen=True, slots=True)
class _Geometry:
    """What a convolution knows of inputs of one shape; the arrays are what the addresses mean."""

    shape: tuple[int, int, int, int]
    framed: Any
    spec: Array
    bare: Array
    at_spec: int
    at_bare: int
    lines: int
    room: int
    units: int


def _framed(x: Array, pads: Sequence[tuple[int, int]], pool: Pool) -> Array:
    """(N, C, H, W) as contiguous (N, H, W, C) with zeros around it."""
    (top, bottom), (left, right) = pads
    n, c, h, w = x.shape
    y = pool.empty((n, h + top + bottom, w + left + right, c))
    spec, where = numbers(*(s // 4 for s in x.strides), top, bottom, left, right)
    chunk, units = chunks(n * y.shape[1], y.shape[2] * c)
    loop("layout", "framed")(address(x), address(y), n, c, h, w, where, chunk, units=units)
    return y


def product(w: Array, bias: Array | None, ending: Ending, pool: Pool) -> Callable[..., Array]:
    """The function of (x, what is added) for constant weights (K, N): x (..., K) gives (..., N)."""
    depth, columns = w.shape
    slab = -(-depth // max(1, round(depth / SLAB)))
    weights = packed(w[None], slab=slab)
    biases, zeros = filled(bias, 1, columns), np.zeros(whole(columns), np.float32)
    where = (address(weights), address(biases), address(zeros))
    run = loop("convolution", "multiply")
    known: dict[int, tuple[Array, Array, int, int]] = {}

    def geometry(rows: int) -> tuple[Array, Array, int, int]:
        panel, tall = float_tiles.panel(), float_tiles.rows()
        block, split, share, units = cut(rows, columns, panel, rows * columns * depth, block_of(slab, rows), tall)
        spec = np.zeros(24, np.int64)
        spec[:3], spec[6], spec[19:24] = (rows, depth, slab), columns, (block, ending.kind, split, share, 8 * block)
        bare = spec.copy()
        bare[20] = 0
        return spec, bare, 8 * block * threads(), units

    def multiplied(x: Array, add: Array | None, end: Ending) -> Array:
        data = plain(x, pool)
        rows = data.size // depth if depth else 0
        y = pool.empty((*x.shape[:-1], columns))
        if not rows:
            return y
        if rows not in known:
            known[rows] = geometry(rows)
        spec, bare, lines, units = known[rows]
        added = None if add is None else plain(add, pool)
        held, table = pool.scratch(lines)
        run(
            address(data), address(y), *where, 0 if added is None else address(added), table,
            address(spec if end is ending else bare), end.low, end.high, end.a, end.b, units=units,
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
            beside()
            return ending.applied(multiplied(x, None, Ending()) + add, pool)
        return multiplied(x, add, ending)

    multiply.kept = (weights, biases, zeros)  # type: ignore[attr-defined]
    multiply.how = ("tiles", depth)  # type: ignore[attr-defined]
    return multiply
