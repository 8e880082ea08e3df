"""GridSample: each output is a weighted sum of neighbors gathered from the flattened spatial axes."""

from __future__ import annotations

import itertools

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.standard import decompose
from onnxbridge.hub.decompositions.standard.dynamic_axis import scalar
from onnxbridge.hub.decompositions.standard.image import cubic
from onnxbridge.hub.ir.values import cast, is_integer, rank

_INT64 = ir.DataType.INT64


@decompose("GridSample")
def grid_sample(op, X, grid, *, align_corners=0, mode="linear", padding_mode="zeros"):
    """Supports any number of spatial axes. Each output combines 1, 2 or 4 neighbors along each axis."""
    space, dtype = rank(X) - 2, X.dtype
    if is_integer(X) and mode != "nearest":
        X = op.Cast(X, to=ir.DataType.DOUBLE)  # interpolation weights are fractional
    grid = cast(op, grid, X.dtype if X.dtype == ir.DataType.DOUBLE else ir.DataType.FLOAT)
    sizes = [scalar(op, op.size(X, d + 2)) for d in range(space)]
    axes = []
    for d, size in enumerate(sizes):
        p, n = op.Gather(grid, space - 1 - d, axis=-1), op.Cast(size, to=grid.dtype)
        if align_corners:
            p = op.Mul(op.Add(p, 1.0), op.Div(op.Sub(n, 1.0), 2.0))
        else:
            p = op.Div(op.Sub(op.Mul(op.Add(p, 1.0), n), 1.0), 2.0)
        taps = _taps(op, p, n, mode, padding_mode, align_corners)
        axes.append([_tap(op, at, w, n, padding_mode, align_corners) for at, w in taps])
    batch, channels, points = op.size(X, 0), op.size(X, 1), [op.size(grid, i) for i in range(1, space + 1)]
    flat = op.Reshape(X, op.dims([batch, channels, -1]))
    total = None
    for taps in itertools.product(*axes):
        flat_index, weight = taps[0]
        for size, (at, w) in zip(sizes[1:], taps[1:], strict=True):
            flat_index = op.Add(op.Mul(flat_index, size), at)
            weight = w if weight is None else weight if w is None else op.Mul(weight, w)
        index = op.Reshape(flat_index, op.dims([batch, 1, -1]))
        picked = op.GatherElements(flat, op.Expand(index, op.dims([1, channels, 1])), axis=2)
        if weight is not None:
            picked = op.Mul(cast(op, picked, grid.dtype), op.Reshape(weight, op.dims([batch, 1, -1])))
        total = picked if total is None else op.Add(total, picked)
    return cast(op, op.Reshape(total, op.dims([batch, channels, *points])), dtype)


def _taps(op, p, n, mode, padding_mode, align_corners):
    """The (index, weight) pairs that contribute along one axis; a weight of None is 1."""
    if mode == "nearest":
        return [(op.Round(p if padding_mode == "zeros" else _map_inside(op, p, n, padding_mode, align_corners)), None)]
    low = op.Floor(p)
    fraction = op.Sub(p, low)
    if mode == "linear":
        return [(low, op.Sub(1.0, fraction)), (op.Add(low, 1.0), fraction)]
    if mode == "cubic":
        return [(op.Add(low, float(i)), cubic(op, op.Abs(op.Sub(fraction, float(i))), -0.75)) for i in range(-1, 3)]
    raise Unsupported(f"mode {mode!r}")


def _tap(op, at, weight, n, padding_mode, align_corners):
    """Maps an index into the axis; with zero padding, indices outside of it get the weight 0."""
    if padding_mode != "zeros":
        return op.Cast(_map_inside(op, at, n, padding_mode, align_corners), to=_INT64), weight
    inside = op.Cast(op.And(op.GreaterOrEqual(at, 0.0), op.Less(at, n)), to=at.dtype)
    return op.Cast(op.Clip(at, 0.0, op.Sub(n, 1.0)), to=_INT64), inside if weight is None else op.Mul(weight, inside)


def _map_inside(op, p, n, padding_mode, align_corners):
    """Maps coordinates into the axis by reflection or by clamping to the border."""
    if padding_mode == "reflection":
        first, span = (0.0, op.Sub(n, 1.0)) if align_corners else (-0.5, n)
        distance, period = op.Sub(p, first), op.Max(op.Mul(span, 2.0), float(np.finfo(np.float32).tiny))
        offset_in_period = op.Sub(distance, op.Mul(op.Floor(op.Div(distance, period)), period))
        p = op.Add(op.Sub(span, op.Abs(op.Sub(offset_in_period, span))), first)
    elif padding_mode != "border":
        raise Unsupported(f"padding_mode {padding_mode!r}")
    return op.Clip(p, 0.0, op.Sub(n, 1.0))
