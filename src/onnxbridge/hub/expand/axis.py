"""An axis that may be known only when the model runs."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.adapters.shapes import known


def along(op, axis, rank, write, last=None):
    """What `write(axis)` writes; where the axis is computed, a branch for each that it may be, up to the `last` one."""
    found = known(axis)
    if found is not None:
        return write(int(found.reshape(())) % rank)
    place = op.Reshape(op.Cast(axis, to=ir.DataType.INT64), np.zeros(0, np.int64))
    behind = op.Cast(op.Less(place, np.array(0, np.int64)), to=ir.DataType.INT64)
    place = op.Add(place, op.Mul(behind, np.array(rank, np.int64)))

    def branch(k):
        if k == (rank - 1 if last is None else last):
            return write(k)
        hit = op.Equal(place, np.array(k, np.int64))
        return op.If(hit, then_branch=lambda: write(k), else_branch=lambda: branch(k + 1))

    return branch(0)
