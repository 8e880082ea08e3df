"""Running sums and products: along an axis of known length in as many steps as the length has bits, otherwise in a loop."""

from __future__ import annotations

import numpy as np

from onnxbridge.hub.decompositions.standard.dynamic_axis import reversed_along_first, scalar
from onnxbridge.hub.ir.values import rank


def running(op, combine, x, axis, neutral, exclusive, reverse):
    """`neutral` is what nothing combines to."""
    axis %= rank(x)
    if not isinstance(x.shape[axis], int):
        return _in_a_loop(op, combine, x, axis, neutral, exclusive, reverse)
    length = x.shape[axis]

    def part(v, start, stop):
        return op.Slice(v, [start], [stop], [axis])

    y, step = x, 1
    while step < length:
        # each combines pairs that lie twice as far apart as those before
        ahead, behind = part(y, 0, length - step), part(y, step, length)
        pairs = combine(ahead, behind)
        pieces = (pairs, part(y, length - step, length)) if reverse else (part(y, 0, step), pairs)
        y = op.Concat(*pieces, axis=axis)
        step *= 2
    if not exclusive or length == 0:
        return y if y is not x else op.Identity(x)
    edge = op.Shape(part(x, 0, 1))
    nothing = op.Expand(op.constant(np.full([1] * len(x.shape), neutral), dtype=x.dtype), edge)
    if length == 1:
        return nothing
    return op.Concat(part(y, 1, length), nothing, axis=axis) if reverse else op.Concat(nothing, part(y, 0, length - 1), axis=axis)


def _in_a_loop(op, combine, x, axis, neutral, exclusive, reverse):
    length = scalar(op, op.size(x, axis))
    last = op.Sub(length, np.int64(1))
    start = op.Expand(op.constant(neutral, dtype=x.dtype), op.dims([op.size(x, d) for d in range(rank(x)) if d != axis]))

    def body(step, going, held):
        new = combine(held, op.Gather(x, op.Sub(last, step) if reverse else step, axis=axis))
        return [going, new, op.Identity(held) if exclusive else op.Identity(new)]

    _, y = op.Loop(length, True, start, body=body, outputs=2)
    if reverse:
        y = reversed_along_first(op, y)
    order = list(range(1, rank(x)))
    order.insert(axis, 0)
    return op.Transpose(y, perm=order) if axis else y
