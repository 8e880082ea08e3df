"""DFT: the axis was an attribute before opset 20, with default 1."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.opset.adapters import down, up
from onnxbridge.hub.opset.known_values import known, rank_of


@up("DFT", to=20)
def dft(op, input, dft_length=None, *, axis=1, inverse=0, onesided=0):
    return op.DFT(input, dft_length, np.array(axis, np.int64), inverse=inverse, onesided=onesided)


@down("DFT", to=19)
def dft_axis(op, input, dft_length=None, axis=None, *, inverse=0, onesided=0):
    if inverse and onesided:
        raise Unsupported("opset 20 added inverse=1 with onesided=1")

    def transform(x, at):
        return op.DFT(x, dft_length, axis=at, inverse=inverse, onesided=onesided)

    found = np.array(-2) if axis is None else known(axis)
    if found is not None:
        return transform(input, int(found.reshape(())) % rank_of(input))
    return along_computed(op, input, axis, lambda x: transform(x, 1))


def along_computed(op, x, axis, write):
    """Applies `write` to axis 1 of `x` reshaped to rank 4: axes before the dynamic axis, itself, axes after it, and the last."""
    rank, one = rank_of(x), np.array([1], np.int64)
    axis, shape = op.Reshape(op.Cast(axis, to=7), [1]), op.Shape(x)
    axis = op.Where(op.Less(axis, np.array([0], np.int64)), op.Add(axis, np.array([rank], np.int64)), axis)
    axes, last = np.arange(rank, dtype=np.int64), np.arange(rank) == rank - 1
    here = op.Equal(axes, axis)
    before, after = op.Less(axes, axis), op.And(op.Greater(axes, axis), ~last)
    sizes = [op.ReduceProd(op.Where(which, shape, one), keepdims=1) for which in (before, here, after, op.constant(last))]
    grouped = op.Reshape(x, op.Concat(*sizes, axis=0))
    grouped.shape = ir.Shape([None, None, None, x.shape[-1]])
    y = write(grouped)
    length, width = (op.Slice(op.Shape(y), [i], [i + 1], [0]) for i in (1, 3))
    return op.Reshape(y, op.Where(here, length, op.Where(last, width, shape)))
