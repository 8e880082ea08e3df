"""Resizing of images as products with a [new, old] matrix for each spatial axis, which has TensorFlow's own weights."""

import math

import numpy as np
import onnx_ir as ir

from onnxbridge.frontends.tensorflow import sizes
from onnxbridge.frontends.tensorflow.channels_last import first, last
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.hub.decompositions.standard.dynamic_axis import arange
from onnxbridge.hub.ir.values import cast

FLOAT = ir.DataType.FLOAT
_LEAST_TOTAL = 1000 * np.finfo(np.float32).tiny
"""Weights whose sum is smaller are not normalized by it."""


def _interpolated(op, images, rows, columns):
    x = first(op, cast(op, images, FLOAT), "NHWC")
    return last(op, op.MatMul(op.MatMul(rows, x), op.Transpose(columns, perm=[1, 0])), "NHWC")


def _both_axes(op, images, size, weigh):
    """`weigh(axis, old, new)` returns the matrix of an axis; matrices of known sizes are computed at conversion."""
    with op.folding_any_size():
        matrices = [weigh(i, op.size(images, i + 1), n) for i, n in enumerate(sizes.elements(op, size, 2))]
    return _interpolated(op, images, *matrices)


def _float(op, size):
    return op.Cast(sizes.scalar(op, size), to=FLOAT)


def _range(op, size):
    """0, 1, ... as floats."""
    return op.Cast(arange(op, size), to=FLOAT)


def _scale(op, old, new, align_corners):
    """The distance of two new pixels, in old ones."""
    scale = op.Div(_float(op, old), _float(op, new))
    if not align_corners:
        return scale
    steps = sizes.maximum(op, sizes.subtract(op, new, 1), 1)
    by_corner = op.Div(_float(op, sizes.subtract(op, old, 1)), _float(op, steps))
    return op.Where(op.Greater(sizes.scalar(op, new), 1), by_corner, scale)


_STEPS = 1024
"""TensorFlow takes the cubic kernel from a table with this many entries between two pixels."""


def _cubic_table(a):
    """The weights of the near and of the far neighbor, by the distance in steps of the table."""
    x = np.arange(_STEPS + 1, dtype=np.float64) / _STEPS
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = x + 1
    return near.astype(np.float32), (((a * far - 5 * a) * far + 8 * a) * far - 4 * a).astype(np.float32)


def _cubic(op, old, new, align_corners, half_pixel_centers):
    """Coefficient -0.5 with weights renormalized at the border for half pixels, otherwise -0.75."""
    scale, i = _scale(op, old, new, align_corners), _range(op, new)
    at = op.Sub(op.Mul(op.Add(i, 0.5), scale), 0.5) if half_pixel_centers else op.Mul(i, scale)
    base = op.Floor(at)
    step = op.Cast(op.Round(op.Mul(op.Sub(at, base), float(_STEPS))), to=ir.DataType.INT64)
    near, far = (op.constant(t) for t in _cubic_table(-0.5 if half_pixel_centers else -0.75))
    back = op.Sub(_STEPS, step)
    weights = [op.Gather(table, k) for table, k in ((far, step), (near, step), (near, back), (far, back))]
    pixels = [op.Add(op.Cast(base, to=ir.DataType.INT64), k) for k in range(-1, 3)]
    if half_pixel_centers:
        inside = [op.And(op.GreaterOrEqual(p, 0), op.Less(p, sizes.scalar(op, old))) for p in pixels]
        weights = [op.Where(i, w, 0.0) for i, w in zip(inside, weights, strict=True)]
        weights = _normalized(op, weights, op.Sum(*weights))
    edge = op.Sub(sizes.scalar(op, old), 1)
    columns = [op.Unsqueeze(op.Min(op.Max(p, 0), edge), [1]) for p in pixels]
    return op.Sum(*(
        op.Where(op.Equal(arange(op, old), c), op.Unsqueeze(w, [1]), 0.0) for c, w in zip(columns, weights, strict=True)
    ))  # fmt: skip


def _normalized(op, weights, total):
    used = op.GreaterOrEqual(op.Abs(total), float(_LEAST_TOTAL))
    return [op.Div(w, op.Where(used, total, 1.0)) for w in weights]


@rule("ResizeBicubic")
def resize_bicubic(op, images, size, *, align_corners=False, half_pixel_centers=False):
    return _both_axes(op, images, size, lambda _, old, new: _cubic(op, old, new, align_corners, half_pixel_centers))


def _linear(op, old, new, align_corners, half_pixel_centers):
    scale, i, edge = _scale(op, old, new, align_corners), _range(op, new), op.Sub(_float(op, old), 1.0)
    at = op.Sub(op.Mul(op.Add(i, 0.5), scale), 0.5) if half_pixel_centers else op.Mul(i, scale)
    base = op.Floor(at)
    share, pixel = op.Unsqueeze(op.Sub(at, base), [1]), _range(op, old)
    low, high = (op.Unsqueeze(op.Min(op.Max(v, 0.0), edge), [1]) for v in (base, op.Add(base, 1.0)))
    return op.Add(op.Where(op.Equal(pixel, low), op.Sub(1.0, share), 0.0), op.Where(op.Equal(pixel, high), share, 0.0))


def _nearest(op, old, new, align_corners, half_pixel_centers):
    scale, i = _scale(op, old, new, align_corners), _range(op, new)
    at = op.Mul(op.Add(i, 0.5), scale) if half_pixel_centers else op.Mul(i, scale)
    at = op.Floor(op.Add(at, 0.5) if align_corners else at)
    at = op.Unsqueeze(op.Min(at, op.Sub(_float(op, old), 1.0)), [1])
    return op.Cast(op.Equal(_range(op, old), at), to=FLOAT)


_MATRICES = {"nearest": _nearest, "linear": _linear, "cubic": _cubic}


def resized_gradient(op, grads, old_sizes, mode, align_corners, half_pixel_centers):
    """The gradient of a resizing from these sizes: the products with the transposed matrices."""
    with op.folding_any_size():
        matrices = [
            _MATRICES[mode](op, old, op.size(grads, i + 1), align_corners, half_pixel_centers)
            for i, old in enumerate(old_sizes)
        ]
    return cast(op, _interpolated(op, grads, *(op.Transpose(m, perm=[1, 0]) for m in matrices)), grads.dtype)


def _sinc(op, x):
    """sin(pi x) / (pi x)."""
    angle = op.Mul(x, math.pi)
    zero = op.Equal(angle, 0.0)
    return op.Where(zero, 1.0, op.Div(op.Sin(angle), op.Where(zero, 1.0, angle)))


def _polynomial(op, x, *coefficients):
    """The polynomial with these coefficients, the highest power first."""
    y = op.constant(np.float32(coefficients[0]))
    for c in coefficients[1:]:
        y = op.Add(op.Mul(y, x), float(c))
    return y


def _lanczos(op, x, radius):
    return op.Mul(_sinc(op, x), _sinc(op, op.Mul(x, 1 / radius)))


def _cubic_pieces(op, x, near, far):
    return op.Where(op.Less(x, 1.0), _polynomial(op, x, *near), _polynomial(op, x, *far))


_KERNELS = {  # radius, and the weight of a distance that is less
    "triangle": (1.0, lambda op, x: op.Sub(1.0, x)),
    "box": (0.5, lambda op, x: op.Where(op.Less(x, 0.5), np.float32(1), np.float32(0.5))),
    "lanczos1": (1.0, lambda op, x: _lanczos(op, x, 1)),
    "lanczos3": (3.0, lambda op, x: _lanczos(op, x, 3)),
    "lanczos5": (5.0, lambda op, x: _lanczos(op, x, 5)),
    "gaussian": (1.5, lambda op, x: op.Where(op.Less(x, 1.5), op.Exp(op.Mul(op.Mul(x, x), -2.0)), 0.0)),
    "keyscubic": (2.0, lambda op, x: _cubic_pieces(op, x, (1.5, -2.5, 0, 1), (-0.5, 2.5, -4, 2))),
    "mitchellcubic": (2.0, lambda op, x: _cubic_pieces(op, x, (7 / 6, -2, 0, 8 / 9), (-7 / 18, 2, -10 / 3, 16 / 9))),
}  # fmt: skip


def _spans(op, old, new, scale, translation, kernel, antialias):
    """The kernel of each new pixel, widened when downscaling, at the old pixels.

    In float32 as in TensorFlow, since rounding decides whether a pixel on the edge of a kernel is included.
    """
    radius, weigh = _KERNELS[kernel]
    inverse = op.Reciprocal(scale)
    stretch = op.Max(inverse, 1.0) if antialias else op.constant(np.float32(1))
    at = op.Add(op.Mul(op.Add(_range(op, new), 0.5), inverse), op.Mul(op.Neg(inverse), translation))
    reach = op.Mul(stretch, radius)
    low = op.Ceil(op.Sub(op.Sub(at, reach), 0.5))
    high = op.Floor(op.Sub(op.Add(at, reach), 0.5))
    pixel = _range(op, old)
    at, low, high = (op.Unsqueeze(v, [1]) for v in (at, low, high))
    distance = op.Mul(op.Abs(op.Sub(op.Add(pixel, 0.5), at)), op.Reciprocal(stretch))
    reached = op.And(op.And(op.GreaterOrEqual(pixel, low), op.LessOrEqual(pixel, high)), op.LessOrEqual(distance, radius))
    inside = op.And(op.GreaterOrEqual(at, 0.0), op.LessOrEqual(at, _float(op, old)))
    weights = op.Where(op.And(reached, inside), weigh(op, distance), 0.0)
    total = op.ReduceSum(weights, [1], keepdims=1)
    kept = op.GreaterOrEqual(op.Abs(total), float(_LEAST_TOTAL))
    return op.Where(kept, op.Div(weights, op.Where(kept, total, 1.0)), 0.0)


@rule("ScaleAndTranslate")
def scale_and_translate(op, images, size, scale, translation, *, kernel_type="lanczos3", antialias=True):
    def weigh(axis, old, new):
        own = (op.Gather(v, np.int64(axis)) for v in (scale, translation))
        return _spans(op, old, new, *own, kernel_type, antialias)

    return _both_axes(op, images, size, weigh)


def _area(op, old, new, align_corners):
    """The share of each old pixel in the interval that a new pixel covers."""
    scale = _scale(op, old, new, align_corners)
    start = op.Unsqueeze(op.Mul(_range(op, new), scale), [1])
    end = op.Unsqueeze(op.Mul(op.Add(_range(op, new), 1.0), scale), [1])
    pixel = _range(op, old)
    is_last = op.Equal(pixel, op.Sub(_float(op, old), 1.0))
    pixel_end = op.Where(is_last, np.float32(np.inf), op.Add(pixel, 1.0))  # the edge is repeated
    return op.Div(op.Max(op.Sub(op.Min(pixel_end, end), op.Max(pixel, start)), 0.0), scale)


@rule("ResizeArea")
def resize_area(op, images, size, *, align_corners=False):
    return _both_axes(op, images, size, lambda _, old, new: _area(op, old, new, align_corners))
