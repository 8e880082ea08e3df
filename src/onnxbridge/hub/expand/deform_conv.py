"""A deformable convolution as what its kernel sees, sampled point by point, times the weights."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.expand import expand


@expand("DeformConv")
def deform_conv(
    op, X, W, offset, B=None, mask=None, *, dilations=(1, 1), group=1, kernel_shape=None, offset_group=1, pads=(0, 0, 0, 0),
    strides=(1, 1),
):  # fmt: skip
    shapes = [v.shape for v in (X, W, offset)]
    if any(s is None or len(s) != 4 or not all(isinstance(d, int) for d in s) for s in shapes):
        raise Unsupported("sizes that are not known, or other than two spatial axes")
    (n, c, *size), (out, _, *kernel), (_, _, *result) = (list(s) for s in shapes)
    taps, groups = int(np.prod(kernel)), offset_group
    # where each tap of each output lies before it is moved, in (tap, row, column)
    places = [
        (np.arange(result[i]) * strides[i] - pads[i])[None] + np.indices(kernel)[i].reshape(-1, 1) * dilations[i] for i in (0, 1)
    ]
    rows, columns = places[0][:, :, None], places[1][:, None, :]
    moved = op.Reshape(offset, [n * groups, taps, 2, *result])

    def along(i, fixed):
        """The place on one axis, in GridSample's measure: -1 and 1 are the outer edges of the first and last pixel."""
        at = op.Add(op.Gather(moved, np.int64(i), axis=2), op.constant(fixed, dtype=X.dtype))
        return op.Sub(op.Div(op.Add(op.Mul(at, 2.0), 1.0), float(size[i])), 1.0)

    points = [op.Reshape(along(i, fixed), [n * groups, taps * result[0], result[1], 1]) for i, fixed in ((1, columns), (0, rows))]
    seen = op.GridSample(op.Reshape(X, [n * groups, c // groups, *size]), op.Concat(*points, axis=-1), align_corners=0)
    seen = op.Reshape(seen, [n * groups, c // groups, taps, *result])
    if mask is not None:
        seen = op.Mul(seen, op.Reshape(mask, [n * groups, 1, taps, *result]))
    seen = op.Reshape(seen, [n, group, c // group * taps, int(np.prod(result))])
    weights = op.Reshape(W, [1, group, out // group, c // group * taps])
    y = op.Reshape(op.MatMul(weights, seen), [n, out, *result])
    return y if B is None else op.Add(y, op.Reshape(B, [1, -1, 1, 1]))
