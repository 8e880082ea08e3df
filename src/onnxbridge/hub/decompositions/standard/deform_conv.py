"""DeformConv: GridSample at the offset kernel positions, then a matrix product with the weights."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.standard import decompose
from onnxbridge.hub.decompositions.standard.dynamic_axis import arange, product, scalar, sizes_of
from onnxbridge.hub.ir.values import rank, static_shape


@decompose("DeformConv")
def deform_conv(
    op, X, W, offset, B=None, mask=None, *, dilations=(1, 1), group=1, kernel_shape=None, offset_group=1, pads=(0, 0, 0, 0),
    strides=(1, 1),
):  # fmt: skip
    if rank(X) != 4:
        raise Unsupported("DeformConv of an input that is not 4-D")
    (n, _, *size), (out, inner, *kernel), result = sizes_of(op, X), static_shape(W), [op.size(offset, d) for d in (2, 3)]
    taps, groups, c = int(np.prod(kernel)), offset_group, inner * group
    images = product(op, [n, groups])
    offsets = op.reshape(offset, [images, taps, 2, *result])

    def coordinates(i):
        """The coordinate of each kernel tap of each output along one axis, normalized to [-1, 1] as for GridSample."""
        start = op.Sub(op.Mul(arange(op, result[i]), np.int64(strides[i])), np.int64(pads[i]))
        taps_at = (np.indices(kernel)[i].reshape(-1, 1) * dilations[i]).astype(np.int64)
        undeformed = op.Unsqueeze(op.Add(op.Unsqueeze(start, [0]), taps_at), [2 if i == 0 else 1])
        deformed = op.Add(op.Gather(offsets, np.int64(i), axis=2), op.Cast(undeformed, to=X.dtype))
        return op.Sub(op.Div(op.Add(op.Mul(deformed, 2.0), 1.0), scalar(op, size[i], X.dtype)), 1.0)

    rows = product(op, [taps, result[0]])
    points = [op.reshape(coordinates(i), [images, rows, result[1], 1]) for i in (1, 0)]
    sampled = op.GridSample(op.reshape(X, [images, c // groups, *size]), op.Concat(*points, axis=-1), align_corners=0)
    sampled = op.reshape(sampled, [images, c // groups, taps, *result])
    if mask is not None:
        sampled = op.Mul(sampled, op.reshape(mask, [images, 1, taps, *result]))
    sampled = op.reshape(sampled, [n, group, inner * taps, product(op, result)])
    weights = op.Reshape(W, [1, group, out // group, inner * taps])
    y = op.reshape(op.MatMul(weights, sampled), [n, out, *result])
    return y if B is None else op.Add(y, op.Reshape(B, [1, -1, 1, 1]))
