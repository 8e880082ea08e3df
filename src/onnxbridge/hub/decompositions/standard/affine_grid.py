"""AffineGrid as a matrix product of homogeneous grid coordinates and theta."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.standard import decompose


@decompose("AffineGrid")
def affine_grid(op, theta, size, *, align_corners=0):
    """Multiplies the homogeneous coordinates of the grid, in [-1, 1], by theta.

    Coordinates are ordered from the last axis to the first, followed by 1. An axis of size 1 has the coordinate 0.
    """
    axes = theta.shape[1] if theta.shape is not None else None
    if not isinstance(axes, int):
        raise Unsupported("AffineGrid with theta of unknown shape")
    counts = [op.Gather(size, np.int64(i + 2), axis=0) for i in range(axes)]
    shape = op.dims(counts)
    coordinates = []
    for i, count in enumerate(counts):
        positions = op.Cast(op.Range(np.int64(0), count, np.int64(1)), to=theta.dtype)
        length = op.Cast(count, to=theta.dtype)
        doubled = op.Mul(positions, 2.0)
        last = op.Sub(length, 1.0)
        scaled = op.Div(doubled, op.Max(last, 1.0)) if align_corners else op.Div(op.Add(doubled, 1.0), length)
        coordinate = op.Reshape(
            op.Sub(scaled, op.Min(last, 1.0) if align_corners else 1.0), [-1 if d == i else 1 for d in range(axes)]
        )
        coordinates.insert(0, op.Reshape(op.Expand(coordinate, shape), [-1, 1]))
    ones = op.Add(op.Mul(coordinates[0], 0.0), 1.0)
    grid = op.MatMul(op.Concat(*coordinates, ones, axis=1), op.Transpose(theta, perm=[0, 2, 1]))
    return op.Reshape(grid, op.dims([op.size(theta, 0), *counts, axes]))
