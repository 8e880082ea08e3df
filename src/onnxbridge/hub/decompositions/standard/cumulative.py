"""Cumulative sums and products: in log2(length) steps along an axis of static length, else in a loop."""

from __future__ import annotations

import numpy as np

from onnxbridge.hub.decompositions.standard.dynamic_axis import reverse_first_axis, scalar
from onnxbridge.hub.ir.values import rank


def running(op, combine, x, axis, neutral, exclusive, reverse):
    """The cumulative reduction of x by `combine`, whose neutral element is `neutral`."""
    axis %= rank(x)
    if not isinstance(x.shape[axis], int):
        return _in_a_loop(op, combine, x, axis, neutral, exclusive, reverse)
    length = x.shape[axis]

    def part(v, start, stop):
        return op.Slice(v, [start], [stop], [axis])

    y, step = x, 1
    while step < length:
        # recursive doubling: each step combines elements at twice the distance of the previous step
        earlier, later = part(y, 0, length - step), part(y, step, length)
        pairs = combine(earlier, later)
        parts = (pairs, part(y, length - step, length)) if reverse else (part(y, 0, step), pairs)
        y = op.Concat(*parts, axis=axis)
        step *= 2
    if not exclusive or length == 0:
        return y if y is not x else op.Identity(x)
    edge_shape = op.Shape(part(x, 0, 1))
    fill = op.Expand(op.constant(np.full([1] * len(x.shape), neutral), dtype=x.dtype), edge_shape)
    if length == 1:
        return fill
    return op.Concat(part(y, 1, length), fill, axis=axis) if reverse else op.Concat(fill, part(y, 0, length - 1), axis=axis)


def _in_a_loop(op, combine, x, axis, neutral, exclusive, reverse):
    length = scalar(op, op.size(x, axis))
    last = op.Sub(length, np.int64(1))
    start = op.Expand(op.constant(neutral, dtype=x.dtype), op.dims([op.size(x, d) for d in range(rank(x)) if d != axis]))

    def body(step, condition, carried):
        new = combine(carried, op.Gather(x, op.Sub(last, step) if reverse else step, axis=axis))
        return [condition, new, op.Identity(carried) if exclusive else op.Identity(new)]

    _, y = op.Loop(length, True, start, body=body, outputs=2)
    if reverse:
        y = reverse_first_axis(op, y)
    order = list(range(1, rank(x)))
    order.insert(axis, 0)
    return op.Transpose(y, perm=order) if axis else y
