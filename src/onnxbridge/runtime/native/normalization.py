"""Normalization along the last axis, softmax and attention."""

from __future__ import annotations

import numpy as np

from onnxbridge.hub.limits import claim
from onnxbridge.runtime.memory import Pool
from onnxbridge.runtime.native import tile
from onnxbridge.runtime.native.address import Array, address, plain
from onnxbridge.runtime.native.build import loop
from onnxbridge.runtime.native.convolution import whole
from onnxbridge.runtime.native.drive import threads
from onnxbridge.runtime.native.share import chunks
from onnxbridge.runtime.native.tape import keep, numbers

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


def means(x: Array, pool: Pool) -> Array:
    """The mean along the last axis, which stays with one element."""
    data = plain(x, pool)
    columns = x.shape[-1]
    y = pool.empty((*x.shape[:-1], 1))
    chunk, units = chunks(y.size, columns)
    loop("rows", "average")(address(data), address(y), y.size, columns, chunk, units=units)
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


def attention(query: Array, key: Array, value: Array, factor: float, pool: Pool) -> Array:
    """softmax(factor * query key) value: query (..., R, D), key (..., D, C), value (..., C, W), with one or two leading axes.

    The result lies in memory as (batch, row, head, W), which is how it is wanted next.
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
    block = min(_ATTEND, -(-rows // tile.rows()) * tile.rows())
    padded, filled = whole(columns), whole(wide)
    room = 4 * (depth * padded + columns * filled + block * padded + 2 * block + 16)
    held, scratch = pool.scratch(room * threads())
    zeros = keep(np.zeros(max(padded, filled), np.float32))
    spec, where = numbers(
        batch, heads, rows, columns, depth, wide,
        *(s // 4 for s in (*q.strides[:3], *k.strides, *v.strides, *out.strides[:3])),
        block, room,
    )  # fmt: skip
    loop("rows", "attend")(
        address(q), address(k), address(v), address(y), scratch, address(zeros), where, factor, units=batch * heads
    )
    return out[0] if flat else out
