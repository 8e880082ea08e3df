"""Convolutions and matrix products with weights packed once, and epilogues applied while the result is in the cache."""

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
from onnxbridge.runtime.executor.kernels.compile.kernel import load_kernel
from onnxbridge.runtime.executor.kernels.compile.llvm import lanes
from onnxbridge.runtime.executor.kernels.run.call_recorder import int64_array, mark_incomplete
from onnxbridge.runtime.executor.kernels.run.thread_pool import threads
from onnxbridge.runtime.executor.kernels.run.work_partition import chunks, cut
from onnxbridge.runtime.executor.numpy.kernels.windows import out_sizes

BLOCK_BYTES = 448 << 10  # of input rows that are multiplied with all columns before the next ones: they stay in the L2 cache
SLAB = 768  # of a product's depth
ACTIVATIONS = (
    "", "HardSwish", "HardSigmoid", "Sigmoid", "Swish", "Gelu", "Gelu tanh", "Tanh", "LeakyRelu", "Exp", "Erf",
    "Sqrt", "Square", "Cube", "Reciprocal", "Abs", "Neg", "Floor", "Elu", "Mish", "Softplus", "Log",
)  # fmt: skip
WINOGRAD_CHANNELS = 16  # input and output channels from which Winograd's algorithm pays
_UNFOLDED = 16  # input channels below which a row of the kernel is taken as one tap


@dataclass(frozen=True)
class Epilogue:
    """What is applied to a result: clipping to [low, high], then one of ACTIVATIONS with its parameters."""

    low: float = -math.inf
    high: float = math.inf
    activation: str = ""
    a: float = 0.0
    b: float = 0.0

    @property
    def kind(self) -> int:
        """The activation's number in the kernels."""
        return ACTIVATIONS.index(self.activation)

    def apply(self, x: Array, pool: Pool) -> Array:
        """The epilogue applied to an array."""
        bare = self.low == -math.inf and self.high == math.inf and not self.activation
        return x if bare else apply_epilogue(x, self, pool)


def apply_epilogue(x: Array, epilogue: Epilogue, pool: Pool) -> Array:
    """An epilogue, elementwise, in the memory order of x."""
    inside = swapped(x)
    data = last(x, pool) if inside else plain(x, pool)
    y = pool.empty(data.shape)
    chunk, units = chunks(y.size, 4)
    load_kernel("activations", "apply")(
        epilogue.kind, address(data), address(y), y.size, chunk, epilogue.low, epilogue.high, epilogue.a, epilogue.b, units=units
    )
    return first(y) if inside else y


def packed(*weights: Array, slab: int = 0) -> Array:
    """Weights (taps, depth, columns) of any strides as panels for the tiles, one after the other.

    Those of one tap may be cut into slabs of the depth, each with all panels.
    """
    pack = load_kernel("convolution", "pack")
    sizes = [w.shape[0] * w.shape[1] * round_to_lanes(w.shape[2]) for w in weights]
    y = np.empty(sum(sizes), np.float32)
    at = address(y)
    for w, size in zip(weights, sizes, strict=True):
        pack(address(w), at, *w.shape, *(s // 4 for s in w.strides), slab or max(1, w.shape[1]))
        at += 4 * size
    return y


def round_to_lanes(n: int) -> int:
    """n rounded up to a multiple of the vector length."""
    return -(-n // lanes()) * lanes()


def block_of(depth: int, rows: int) -> int:
    """Rows of this depth per block: whole tiles, and blocks of nearly the same size."""
    tall = float_tiles.rows()
    most = max(tall, min(480, BLOCK_BYTES // (4 * max(1, depth))))
    blocks = max(1, -(-rows // most))
    return -(-max(1, rows) // (blocks * tall)) * tall


def padded_bias(bias: Array | None, groups: int, columns: int) -> Array:
    """The bias with each group's columns padded to whole vectors; zeros for none."""
    y = np.zeros((groups, round_to_lanes(columns)), np.float32)
    if bias is not None:
        y[:, :columns] = bias.reshape(groups, columns)
    return y


def convolution(
    w: Array,
    bias: Array | None,
    window: Callable[[Array], Any],
    groups: int,
    epilogue: Epilogue,
    pool: Pool,
    unit: bool = False,
) -> Callable[..., Array]:
    """The function of (x, addend) for constant weights (M, C/groups, KH, KW).

    `window(x)` is the window; `unit`: its strides and dilations are 1.
    """
    maps, depth, kh, kw = w.shape
    channels, columns = depth * groups, maps // groups
    depthwise = depth == 1 and columns == 1 and groups > 1
    row_taps = not depthwise and groups == 1 and depth < _UNFOLDED and kw > 1
    use_winograd = unit and not depthwise and groups == 1 and (kh, kw) == (3, 3) and min(depth, columns) >= WINOGRAD_CHANNELS
    by_tap = w.reshape(groups, columns, depth, kh * kw).transpose(0, 3, 2, 1)
    if depthwise:
        weights = np.zeros((kh * kw, round_to_lanes(channels)), np.float32)
        weights[:, :channels] = w.reshape(channels, -1).T
        biases = padded_bias(bias, 1, channels)
    elif use_winograd:
        weights = packed(*(g[None] for g in winograd.transformed(w)))
        biases = padded_bias(bias, groups, columns)
    else:
        weights = packed(*by_tap)
        biases = padded_bias(bias, groups, columns)
    zeros = np.zeros(max(channels, round_to_lanes(maps)), np.float32)
    where = (address(weights), address(biases))
    nothing = address(zeros)
    run = (
        load_kernel("winograd", "convolve")
        if use_winograd
        else load_kernel("convolution", "depthwise" if depthwise else "convolve")
    )
    known: dict[tuple[int, ...], _Geometry] = {}

    def geometry(x: Array) -> _Geometry:
        moves = window(x)
        (top, bottom), (left, right) = moves.pads
        n, _, h, width = x.shape
        oh, ow = out_sizes((h, width), (kh, kw), moves.strides, moves.pads, moves.dilations)
        claim((n, maps, oh, ow), np.float32)
        merged = row_taps and moves.dilations[1] == 1 and min(top, bottom, left, right) >= 0
        padding = ((top, bottom), (left, right)) if merged and any((top, bottom, left, right)) else None
        if padding:
            h, width, top, left = h + top + bottom, width + left + right, 0, 0
        taps = (kh, 1) if merged else (kh, kw)
        rows, work = n * oh * ow, n * oh * ow * maps * depth * kh * kw
        across, panel = (channels, lanes()) if depthwise else (columns, float_tiles.panel()) if groups == 1 else (groups, 1)
        if use_winograd:
            rows = n * -(-oh // 2) * -(-ow // 2)
            block, high = winograd.block_of(depth, columns, rows), float_tiles.rows()
        else:
            block = block_of(depth * (kw if merged else 1) * (1 if kh == 1 else 2), rows)
            high = float_tiles.PIXELS if depthwise else float_tiles.rows()
            work = work * 8 if depthwise else work
        block, split, share, units = cut(rows, across, panel, work, block, high)
        table_bytes = 8 * (block + 16) * math.prod(taps)
        scratch_bytes = 4 * (16 * block * (depth + columns) + columns) if use_winograd else 0
        spec = np.array(
            [n, h, width, channels, channels if depthwise else groups, depth * kw if merged else depth, columns, *taps,
             *moves.strides, *moves.dilations, top, left, oh, ow, maps, maps, block, epilogue.kind, split, share,
             table_bytes, scratch_bytes],
            np.int64,
        )  # fmt: skip
        bare = spec.copy()
        bare[20] = 0
        shape, count = (n, oh, ow, maps), threads()
        return _Geometry(shape, padding, spec, bare, table_bytes * count, scratch_bytes * count, units)

    def moved(x: Array, add: Array | None, into: Array | None, g: _Geometry, spec: Array, end: Epilogue) -> Array:
        data = _padded(x, g.padding, pool) if g.padding else last(x, pool)
        y = pool.empty(g.shape) if into is None else into
        added = None if add is None else last(add, pool)
        buffer, table = pool.scratch(g.table_bytes)
        planes, scratch = pool.scratch(g.scratch_bytes) if g.scratch_bytes else (None, 0)
        run(
            address(data), address(y), *where, 0 if added is None else address(added), table, nothing, address(spec),
            *((scratch,) if g.scratch_bytes else ()), end.low, end.high, end.a, end.b, units=g.units,
        )  # fmt: skip
        return first(y)

    def of(x: Array) -> _Geometry:
        found = known.get(x.shape)
        if found is None:
            found = known[x.shape] = geometry(x)
        return found

    def convolve(x: Array, add: Array | None = None, into: Array | None = None) -> Array:
        """The addend has the result's shape, or else is added by NumPy. The result is written to `into` (N, H, W, C) if given."""
        found = of(x)
        claim(found.shape, np.float32)
        n, *sizes, _ = found.shape
        if add is not None and (add.dtype != np.float32 or add.shape != (n, maps, *sizes)):
            claim_broadcast(np.broadcast_to(x.dtype.type(0), (n, maps, *sizes)), add)
            mark_incomplete()
            return epilogue.apply(moved(x, None, None, found, found.bare, Epilogue()) + add, pool)
        return moved(x, add, into, found, found.spec, epilogue)

    convolve.retained = (weights, biases, zeros)  # type: ignore[attr-defined]
    convolve.shape_of = lambda x: of(x).shape  # type: ignore[attr-defined]
    algorithm = "depthwise" if depthwise else "Winograd F(2x2, 3x3)" if use_winograd else "tiles over rows of the kernel"
    convolve.how = (algorithm if depthwise or use_winograd or row_taps else "tiles over taps", depth * kh * kw)  # type: ignore[attr-defined]
    return convolve


@dataclass(frozen=True, slots=True)
class _Geometry:
    """The parameters of a convolution for inputs of one shape."""

    shape: tuple[int, int, int, int]
    padding: Any
    spec: Array
    bare: Array
    table_bytes: int
    scratch_bytes: int
    units: int


def _padded(x: Array, pads: Sequence[tuple[int, int]], pool: Pool) -> Array:
    """(N, C, H, W) as contiguous (N, H, W, C) with zero padding."""
    (top, bottom), (left, right) = pads
    n, c, h, w = x.shape
    y = pool.empty((n, h + top + bottom, w + left + right, c))
    spec, where = int64_array(*(s // 4 for s in x.strides), top, bottom, left, right)
    chunk, units = chunks(n * y.shape[1], y.shape[2] * c)
    load_kernel("layout", "pad_channels_last")(address(x), address(y), n, c, h, w, where, chunk, units=units)
    return y


def product(w: Array, bias: Array | None, epilogue: Epilogue, pool: Pool) -> Callable[..., Array]:
    """The function of (x, addend) for constant weights (K, N): x (..., K) gives (..., N)."""
    depth, columns = w.shape
    slab = -(-depth // max(1, round(depth / SLAB)))
    weights = packed(w[None], slab=slab)
    biases, zeros = padded_bias(bias, 1, columns), np.zeros(round_to_lanes(columns), np.float32)
    where = (address(weights), address(biases), address(zeros))
    run = load_kernel("convolution", "multiply")
    known: dict[int, tuple[Array, Array, int, int]] = {}

    def geometry(rows: int) -> tuple[Array, Array, int, int]:
        panel, tall = float_tiles.panel(), float_tiles.rows()
        block, split, share, units = cut(rows, columns, panel, rows * columns * depth, block_of(slab, rows), tall)
        spec = np.zeros(24, np.int64)
        spec[:3], spec[6], spec[19:24] = (rows, depth, slab), columns, (block, epilogue.kind, split, share, 8 * block)
        bare = spec.copy()
        bare[20] = 0
        return spec, bare, 8 * block * threads(), units

    def multiplied(x: Array, add: Array | None, end: Epilogue) -> Array:
        data = plain(x, pool)
        rows = data.size // depth if depth else 0
        y = pool.empty((*x.shape[:-1], columns))
        if not rows:
            return y
        if rows not in known:
            known[rows] = geometry(rows)
        spec, bare, table_bytes, units = known[rows]
        added = None if add is None else plain(add, pool)
        buffer, table = pool.scratch(table_bytes)
        run(
            address(data), address(y), *where, 0 if added is None else address(added), table,
            address(spec if end is epilogue else bare), end.low, end.high, end.a, end.b, units=units,
        )  # fmt: skip
        del buffer  # keep the memory alive until here
        return y

    def multiply(x: Array, add: Array | None = None) -> Array:
        """The addend has the result's shape, or else is added by NumPy."""
        if x.ndim == 0 or x.shape[-1] != depth or x.dtype != np.float32:
            raise ValueError(f"a product with float32 weights of {(depth, columns)} does not fit {x.dtype} of {x.shape}")
        shape = (*x.shape[:-1], columns)
        claim(shape, np.float32)
        if add is not None and (add.dtype != np.float32 or add.shape != shape):
            claim_broadcast(np.broadcast_to(x.dtype.type(0), shape), add)
            mark_incomplete()
            return epilogue.apply(multiplied(x, None, Epilogue()) + add, pool)
        return multiplied(x, add, epilogue)

    multiply.retained = (weights, biases, zeros)  # type: ignore[attr-defined]
    multiply.how = ("tiles", depth)  # type: ignore[attr-defined]
    return multiply
