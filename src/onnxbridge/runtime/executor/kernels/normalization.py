"""Normalization along the last axis, softmax and attention."""

from __future__ import annotations

import math

import numpy as np

from onnxbridge.hub.io.resource_limits import claim
from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.kernels.array_layout import Array, address, first, last, plain
from onnxbridge.runtime.executor.kernels.compile import float_tiles
from onnxbridge.runtime.executor.kernels.compile.kernel import load_kernel
from onnxbridge.runtime.executor.kernels.convolution import round_to_lanes
from onnxbridge.runtime.executor.kernels.run.call_recorder import int64_array, retain
from onnxbridge.runtime.executor.kernels.run.thread_pool import threads
from onnxbridge.runtime.executor.kernels.run.work_partition import chunks

_ATTEND = 48  # rows of scores at a time, whole tiles of either height


def normalized(x: Array, scale: Array, shift: Array | None, epsilon: float, pool: Pool) -> Array:
    """LayerNormalization along the last axis."""
    data, y = plain(x, pool), pool.empty(x.shape)
    columns = x.shape[-1]
    rows = x.size // columns
    chunk, units = chunks(rows, 4 * columns)
    where = address(retain(scale)), 0 if shift is None else address(retain(shift))
    load_kernel("rows", "normalize")(address(data), address(y), rows, columns, chunk, *where, epsilon, units=units)
    return y


def grouped(x: Array, groups: int, scale: Array, shift: Array, epsilon: float, pool: Pool) -> Array:
    """(N, C, H, W) with each group of channels of a sample normalized, times a scale and plus a shift for each channel."""
    data = last(x, pool)
    n, h, w, c = data.shape
    y = pool.empty(data.shape)
    each = c // groups
    chunk, units = chunks(groups, 3 * h * w * each)
    buffer, scratch = pool.scratch(4 * 3 * chunk * each * threads())
    spec, where = int64_array(h * w, c, each, chunk, 3 * chunk * each)
    load_kernel("channels", "normalize")(
        address(data), address(y), address(retain(scale)), address(retain(shift)), scratch, where, epsilon, units=n * units
    )
    del buffer  # keep the memory alive until here
    return first(y)


def means(x: Array, pool: Pool) -> Array:
    """The mean along the last axis, which is kept with size 1."""
    data = plain(x, pool)
    columns = x.shape[-1]
    y = pool.empty((*x.shape[:-1], 1))
    chunk, units = chunks(y.size, columns)
    load_kernel("rows", "average")(address(data), address(y), y.size, columns, chunk, units=units)
    return y


MANY = 1 << 12  # elements that may be summed one by one; NumPy sums more of them with less rounding
OF = {"ReduceSum": (0, 0), "ReduceSumSquare": (1, 0), "ReduceL1": (2, 0), "ReduceL2": (1, 1)}


def sums(op: str, x: Array, axis: int, count: int, pool: Pool) -> Array:
    """One of `OF` over the axes from `axis` on that have `count` elements; the result is (outer, inner)."""
    data = plain(x, pool)
    outer = math.prod(x.shape[:axis])
    inner = x.size // (outer * count)
    y = pool.empty((outer, inner))
    chunk, units = chunks(outer, count * inner)
    load_kernel("sums", "total")(*OF[op], address(data), address(y), outer, count, inner, chunk, units=units)
    return y


def softmax(x: Array, pool: Pool) -> Array:
    """Along the last axis."""
    data = plain(x, pool)
    y = pool.empty(x.shape)
    columns = x.shape[-1]
    rows = x.size // columns
    chunk, units = chunks(rows, 8 * columns)
    load_kernel("rows", "softmax")(address(data), address(y), rows, columns, chunk, units=units)
    return y


def attends(query: Array, key: Array, value: Array, mask: Array | None) -> bool:
    """Whether `attention` takes such inputs."""
    q, k, v = query.shape, key.shape, value.shape
    if not query.dtype == key.dtype == value.dtype == np.float32 or len(q) not in (3, 4) or not len(q) == len(k) == len(v):
        return False
    if not (query.size and key.size and value.size) or q[:-3] != k[:-3] or k[:-2] != v[:-2] or q[-3] % k[-3]:
        return False
    if q[-1] != k[-2] or k[-1] != v[-2]:
        return False
    scores = (*q[:-1], k[-1])
    return mask is None or (
        mask.dtype in (np.float32, np.bool_) and mask.ndim <= len(scores)
        and all(m in (1, n) for m, n in zip(mask.shape[::-1], scores[::-1], strict=False))
    )  # fmt: skip


def attention(
    query: Array, key: Array, value: Array, factor: float, pool: Pool,
    mask: Array | None = None, causal: bool = False, zero_hidden: bool = False,
) -> Array:  # fmt: skip
    """softmax(factor * query key + mask) value for query (..., H, R, D), key (..., G, D, C) and value (..., G, C, W).

    H is a multiple of G. A mask of bools hides what is false; `causal`: a query attends the keys up to its own position;
    `zero_hidden`: one without keys gives zeros. The result is (batch, row, head, W) in memory, which the next product needs.
    """
    if query.strides[-1] != 4:
        query = plain(query, pool)
    flat = query.ndim == 3
    q, k, v = ((a[None] if flat else a) for a in (query, key, value))
    batch, heads, rows, depth = q.shape
    columns, wide = v.shape[2:]
    claim((batch, heads, rows, columns), np.float32)
    y = pool.empty((batch, rows, heads, wide))
    out = y.transpose(0, 2, 1, 3)
    block = min(_ATTEND, -(-rows // float_tiles.rows()) * float_tiles.rows())
    padded, filled = round_to_lanes(columns), round_to_lanes(wide)
    scratch_bytes = 4 * (depth * padded + columns * filled + block * padded + 2 * block + 16)
    buffer, scratch = pool.scratch(scratch_bytes * threads())
    zeros = retain(np.zeros(max(padded, filled), np.float32))
    kind = 0
    moves: tuple[int, ...] = (0, 0, 0, 0)
    if mask is not None:
        kind = 1 if mask.dtype == np.float32 else 2
        seen = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
        moves = tuple(0 if n == 1 else s // mask.itemsize for n, s in zip(seen.shape, seen.strides, strict=True))
    spec, where = int64_array(
        batch, heads, rows, columns, depth, wide,
        *(s // 4 for s in (*q.strides[:3], *k.strides, *v.strides, *out.strides[:3])),
        block, scratch_bytes, heads // k.shape[1], kind, *moves, int(causal), int(zero_hidden),
    )  # fmt: skip
    load_kernel("rows", "attend")(
        address(q), address(k), address(v), 0 if mask is None else address(mask), address(y), scratch, address(zeros), where,
        factor, units=batch * heads,
    )  # fmt: skip
    del buffer  # keep the memory alive until here
    return out[0] if flat else out
