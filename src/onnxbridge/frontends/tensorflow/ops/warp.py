"""Projective transforms of images."""

import numpy as np
import onnx_ir as ir

from onnxbridge.frontends.tensorflow import sizes
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.hub.decompositions.standard.dynamic_axis import arange
from onnxbridge.hub.ir.values import cast

D = ir.DataType


def _filled(op, at, size, fill_mode):
    """Coordinates outside of the image, moved into it; with CONSTANT, they stay where they are."""
    if fill_mode == "CONSTANT":
        return at
    n = op.Cast(sizes.scalar(op, size), to=D.FLOAT)
    last = op.Sub(n, 1.0)
    if fill_mode == "REFLECT":
        period = op.Mul(n, 2.0)
        wrapped = op.Sub(at, op.Mul(op.Floor(op.Div(at, period)), period))
        at = op.Where(op.Less(wrapped, n), wrapped, op.Sub(op.Sub(period, wrapped), 1.0))
    elif fill_mode == "WRAP":
        span = op.Max(last, 1.0)
        below = op.Add(at, op.Mul(n, op.Add(op.Floor(op.Div(op.Neg(at), span)), 1.0)))
        above = op.Sub(at, op.Mul(n, op.Floor(op.Div(at, span))))
        at = op.Where(op.Less(at, 0.0), below, op.Where(op.Greater(at, last), above, at))
    return op.Max(op.Min(at, last), 0.0)


def _source_points(op, transforms, rows, columns):
    """Where each output pixel comes from: y and x, [batch, rows, columns], and whether it is not at infinity."""
    y = op.Unsqueeze(op.Cast(arange(op, rows), to=D.FLOAT), [1])
    x = op.Cast(arange(op, columns), to=D.FLOAT)
    a = [op.Unsqueeze(op.Gather(transforms, np.int64(i), axis=1), [1, 2]) for i in range(8)]

    def combined(i):
        return op.Add(op.Mul(a[i], x), op.Mul(a[i + 1], y))

    depth = op.Add(combined(6), 1.0)
    finite = op.Not(op.Equal(depth, 0.0))
    divisor = op.Where(finite, depth, 1.0)
    return *(op.Div(op.Add(combined(i), a[i + 2]), divisor) for i in (3, 0)), finite


@rule("ImageProjectiveTransformV3")
def image_projective_transform_v3(
    op, images, transforms, output_shape, fill_value, *, interpolation, fill_mode="CONSTANT"
):
    """Each row of the transforms maps the points (x, y) of the output to those of the input."""
    rows, columns = sizes.elements(op, output_shape, 2)
    batch, height, width = (op.size(images, i) for i in range(3))
    y, x, finite = _source_points(op, transforms, rows, columns)
    y, x = _filled(op, y, height, fill_mode), _filled(op, x, width, fill_mode)
    shape = op.dims([batch, rows, columns])
    image = op.Reshape(arange(op, batch), [-1, 1, 1])
    fill = op.Reshape(cast(op, fill_value, images.dtype), [])
    kind = D.FLOAT if interpolation == "BILINEAR" else images.dtype

    def pixels(y, x):
        """The pixels at whole coordinates, the fill value outside of the image."""
        inside = finite
        for at, size in ((y, height), (x, width)):
            inside = op.And(inside, op.And(op.GreaterOrEqual(at, 0.0), op.Less(at, op.Cast(sizes.scalar(op, size), to=D.FLOAT))))
        index = op.Concat(*(
            op.Unsqueeze(op.Expand(i, shape), [3])
            for i in (image, *(op.Cast(op.Where(inside, v, 0.0), to=D.INT64) for v in (y, x)))
        ), axis=3)  # fmt: skip
        return op.Where(op.Unsqueeze(inside, [3]), cast(op, op.GatherND(images, index), kind), cast(op, fill, kind))

    if interpolation == "NEAREST":
        half_up = [op.Mul(op.Sign(v), op.Floor(op.Add(op.Abs(v), 0.5))) for v in (y, x)]
        return pixels(*half_up)
    low = [op.Floor(v) for v in (y, x)]
    high = [op.Add(v, 1.0) for v in low]
    share = [op.Unsqueeze(op.Sub(v, f), [3]) for v, f in zip((y, x), low, strict=True)]
    top, bottom = (
        op.Add(op.Mul(op.Sub(1.0, share[1]), pixels(row, low[1])), op.Mul(share[1], pixels(row, high[1])))
        for row in (low[0], high[0])
    )
    result = op.Add(op.Mul(op.Sub(1.0, share[0]), top), op.Mul(share[0], bottom))
    result = op.Where(op.Unsqueeze(finite, [3]), result, cast(op, fill, D.FLOAT))
    return cast(op, result, images.dtype)


@rule("ImageProjectiveTransformV2")
def image_projective_transform_v2(op, images, transforms, output_shape, *, interpolation, fill_mode="CONSTANT"):
    zero = op.constant(np.float32(0))
    return image_projective_transform_v3(
        op, images, transforms, output_shape, zero, interpolation=interpolation, fill_mode=fill_mode
    )
