"""Normalization along the last axis, softmax and attention."""

from __future__ import annotations

import math

import numpy as np

from onnxbridge.hub.io.resource_limits import claim
from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.kernels.array_layout import Array, address, first, last, plain
from onnxbridge.runtime.executor.kernels.compile import float_tiles
from onnxbridge.runtime.executor.kernels.compile.kernel import loop
from onnxbridge.runtime.executor.kernels.convolution import whole
from onnxbridge.runtime.executor.kernels.run.call_recorder import keep, numbers
from onnxbridge.runtime.executor.kernels.run.thread_pool import threads
from onnxbridge.runtime.executor.kernels.run.work_partition import chunks

_ATTEND = 48  # rows of scores at a time, whole tiles of either height


def normalized(x: Array, add: Array | None, scale: Array, shift: Array | None, epsilon: float, pool: Pool) -> tuple[Array, Array]:
    """LayerNormalization along the last axis of x (+ add), and that sum."""
    data = plain(x, pool)
    y = pool.empty(x.shape)
    total, more = data, None
    if add is not None:
        total, more = pool.empty(x.shape), plain(add, pool)
    columns = x.shape[-1]
    rows = x.size // columns
    chunk, units = chunks(rows, 4 * columns)
    loop("rows", "normalize")(
        address(data), 0 if more is None else address(more), address(y), address(total), rows, columns, chunk,
        address(keep(scale)), 0 if shift is None else address(keep(shift)), epsilon, units=units,
    )  # fmt: skip
    return y, total


def grouped(x: Array, groups: int, scale: Array, shift: Array, epsilon: float, pool: Pool) -> Array:
    """(N, C, H, W) with each group of channels of a sample normalized, times a scale and plus a shift for each channel."""
    data = last(x, pool)
    n, h, w, c = data.shape
    y = pool.empty(data.shape)
    each = c // groups
    chunk, units = chunks(groups, 3 * h * w * each)
    held, room = pool.scratch(4 * 3 * chunk * each * threads())
    spec, where = numbers(h * w, c, each, chunk, 3 * chunk * each)
    loop("channels", "normalize")(
        address(data), address(y), address(keep(scale)), address(keep(shift)), room, where, epsilon, units=n * units
    )
    del held  # it had to live until here
    return first(y)


def means(x: Array, pool: Pool) -> Array:
    """The mean along the last axis, which stays with one element."""
    data = plain(x, pool)
    columns = x.shape[-1]
    y = pool.empty((*x.shape[:-1], 1))
    chunk, units = chunks(y.size, columns)
    loop("rows", "average")(address(data), address(y), y.size, columns, chunk, units=units)
    return y


MANY = 1 << 12  # elements that may be summed one by one; NumPy sums more of them with less rounding
OF = {"ReduceSum": (0, 0), "ReduceSumSquare": (1, 0), "ReduceL1": (2, 0), "ReduceL2": (1, 1)}


def sums(op: str, x: Array, axis: int, count: int, pool: Pool) -> Array:
    """One of `OF` over `count` elements, those of the axes from this one on: what is before by what is behind."""
    data = plain(x, pool)
    outer = math.prod(x.shape[:axis])
    inner = x.size // (outer * count)
    y = pool.empty((outer, inner))
    chunk, units = chunks(outer, count * inner)
    loop("sums", "total")(*OF[op], address(data), address(y), outer, count, inner, chunk, units=units)
    return y


def softmax(x: Array, pool: Pool) -> Array:
    """Along the last axis."""
    data = plain(x, pool)
    y = pool.empty(x.shape)
    columns = x.shape[-1]
    rows = x.size // columns
    chunk, units = chunks(rows, 8 * columns)
    loop("rows", "softmax")(address(data), address(y), rows, columns, chunk, 1.0, units=units)
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
    mask: Array | None = None, causal: bool = False, blind: bool = False,
) -> Array:  # fmt: skip
    """softmax(factor * query key + mask) value for query (..., H, R, D), key (..., G, D, C) and value (..., G, C, W).

    H is a multiple of G. A mask of bools hides what is false; `causal`: a query sees the keys up to its own place; `blind`: one
    that sees none gets zeros. The result lies in memory as (batch, row, head, W), which is how it is wanted next.
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
    padded, filled = whole(columns), whole(wide)
    room = 4 * (depth * padded + columns * filled + block * padded + 2 * block + 16)
    held, scratch = pool.scratch(room * threads())
    zeros = keep(np.zeros(max(padded, filled), np.float32))
    kind = 0
    moves: tuple[int, ...] = (0, 0, 0, 0)
    if mask is not None:
        kind = 1 if mask.dtype == np.float32 else 2
        seen = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
        moves = tuple(0 if n == 1 else s // mask.itemsize for n, s in zip(seen.shape, seen.strides, strict=True))
    spec, where = numbers(
        batch, heads, rows, columns, depth, wide,
        *(s // 4 for s in (*q.strides[:3], *k.strides, *v.strides, *out.strides[:3])),
        block, room, heads // k.shape[1], kind, *moves, int(causal), int(blind),
    )  # fmt: skip
    loop("rows", "attend")(
        address(q), address(k), address(v), 0 if mask is None else address(mask), address(y), scratch, address(zeros), where,
        factor, units=batch * heads,
    )  # fmt: skip
    del held  # it had to live until here
    return out[0] if flat else out
