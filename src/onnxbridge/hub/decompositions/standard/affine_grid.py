"""The places that an affine map moves the elements of a grid to."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.standard import expand


@expand("AffineGrid")
def affine_grid(op, theta, size, *, align_corners=0):
    """Every place of the grid from -1 to 1, the last axis first and a 1 behind, times each map; one alone is in the middle."""
    axes = theta.shape[1] if theta.shape is not None else None
    if not isinstance(axes, int):
        raise Unsupported("a map of an unknown number of axes")
    counts = [op.Gather(size, np.int64(i + 2), axis=0) for i in range(axes)]
    shape = op.dims(counts)
    lines = []
    for i, count in enumerate(counts):
        steps = op.Cast(op.Range(np.int64(0), count, np.int64(1)), to=theta.dtype)
        whole = op.Cast(count, to=theta.dtype)
        twice = op.Mul(steps, 2.0)
        last = op.Sub(whole, 1.0)
        at = op.Div(twice, op.Max(last, 1.0)) if align_corners else op.Div(op.Add(twice, 1.0), whole)
        line = op.Reshape(op.Sub(at, op.Min(last, 1.0) if align_corners else 1.0), [-1 if d == i else 1 for d in range(axes)])
        lines.insert(0, op.Reshape(op.Expand(line, shape), [-1, 1]))
    ones = op.Add(op.Mul(lines[0], 0.0), 1.0)
    moved = op.MatMul(op.Concat(*lines, ones, axis=1), op.Transpose(theta, perm=[0, 2, 1]))
    return op.Reshape(moved, op.dims([op.size(theta, 0), *counts, axes]))
