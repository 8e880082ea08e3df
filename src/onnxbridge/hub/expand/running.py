"""Running sums and products: in as many steps as the length has bits, each combining pairs that lie twice as far apart."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported


def running(op, combine, x, axis, neutral, exclusive, reverse):
    """Along an axis of known length; `neutral` is what nothing combines to."""
    if x.shape is None or not isinstance(x.shape[axis], int):
        raise Unsupported("the length of the axis must be known")
    axis %= len(x.shape)
    length = x.shape[axis]

    def part(v, start, stop):
        return op.Slice(v, [start], [stop], [axis])

    y, step = x, 1
    while step < length:
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
