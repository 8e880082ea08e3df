"""Random operators: TensorFlow's distributions, with new samples in every run."""

import math

import numpy as np
import onnx_ir as ir

from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.frontends.tensorflow.sizes import int64, known_ints
from onnxbridge.hub.ir.values import cast

D = ir.DataType
SAMPLES = "other samples of the same distribution than TensorFlow's"


def _sample(op, name, shape, dtype, **attrs):
    """Samples of a distribution of ONNX; float32 where ONNX does not have the dtype."""
    kind = dtype if dtype in (D.FLOAT, D.DOUBLE, D.FLOAT16) else D.FLOAT
    known = known_ints(shape)
    if known is not None:
        return cast(op, op.call(name, shape=known, dtype=kind, **attrs), dtype)
    zeros = op.Expand(np.zeros((), kind.numpy()), int64(op, shape))
    return cast(op, op.call(f"{name}Like", zeros, **attrs), dtype)


def uniform(op, shape, dtype=D.FLOAT):
    return _sample(op, "RandomUniform", shape, dtype)


def normal(op, shape, dtype=D.FLOAT):
    return _sample(op, "RandomNormal", shape, dtype)


def truncated_normal(op, shape, dtype=D.FLOAT):
    """By the inverse of the distribution between -2 and 2 standard deviations, as sqrt(2) erfinv(u)."""
    from onnxbridge.hub.decompositions.special.error_functions import erfinv

    u = _sample(op, "RandomUniform", shape, D.DOUBLE, low=-1.0, high=1.0)
    y = op.Mul(erfinv(op, op.Mul(u, math.erf(math.sqrt(2)))), math.sqrt(2))
    return cast(op, y, dtype)


def integers(op, shape, minval, maxval):
    """Integers from minval up to and without maxval."""
    low, high = (op.Cast(v, to=D.DOUBLE) for v in (minval, maxval))
    share = op.Floor(op.Mul(uniform(op, shape, D.DOUBLE), op.Sub(high, low)))
    return op.Add(op.Cast(share, to=minval.dtype), minval)


@rule("RandomUniform", limits=SAMPLES, kind="random")
def random_uniform(op, shape, *, dtype, seed=0, seed2=0):
    return uniform(op, shape, dtype)


@rule("RandomStandardNormal", limits=SAMPLES, kind="random")
def random_standard_normal(op, shape, *, dtype, seed=0, seed2=0):
    return normal(op, shape, dtype)


@rule("TruncatedNormal", limits=SAMPLES, kind="random")
def random_truncated_normal(op, shape, *, dtype, seed=0, seed2=0):
    return truncated_normal(op, shape, dtype)


@rule("RandomUniformInt", limits=SAMPLES, kind="random")
def random_uniform_int(op, shape, minval, maxval, *, seed=0, seed2=0):
    return integers(op, shape, minval, maxval)


@rule("RandomShuffle", limits=SAMPLES, kind="random")
def random_shuffle(op, value, *, seed=0, seed2=0):
    count = op.Shape(value, start=0, end=1)
    return op.Gather(value, op.TopK(uniform(op, count), count, outputs=2)[1], axis=0)


@rule("Multinomial", limits=SAMPLES, kind="random")
def multinomial(op, logits, num_samples, *, seed=0, seed2=0, output_dtype=D.INT64):
    """The class with the largest logit after Gumbel noise is added."""
    expanded = op.Unsqueeze(cast(op, logits, D.FLOAT), [1])
    count = op.Reshape(int64(op, num_samples), [1])
    shape = op.Concat(op.Shape(expanded, start=0, end=1), count, op.Shape(expanded, start=2), axis=0)
    noise = op.Neg(op.Log(op.Neg(op.Log(op.Sub(1.0, uniform(op, shape))))))
    return cast(op, op.ArgMax(op.Add(expanded, noise), axis=2, keepdims=0), output_dtype)


@rule("SampleDistortedBoundingBoxV2", limits=SAMPLES, kind="random")
def sample_distorted_bounding_box_v2(
    op, image_size, bounding_boxes, min_object_covered, *, seed=0, seed2=0, aspect_ratio_range=(0.75, 1.33),
    area_range=(0.05, 1.0), max_attempts=100, use_image_if_no_bounding_boxes=False,
):  # fmt: skip
    """Draws max_attempts boxes at once and takes the first that covers enough of one bounding box, else the whole image."""
    size = op.Cast(op.Slice(image_size, [0], [2]), to=D.FLOAT)
    height, width = (op.Gather(size, np.int64(i)) for i in (0, 1))
    area = op.Mul(height, width)
    n = op.constant(np.array([max_attempts]))
    u = [uniform(op, n) for _ in range(4)]
    low, high = aspect_ratio_range
    ratio = op.Add(op.Mul(u[0], float(high - low)), float(low))
    # a box of this ratio fits with at most this height
    most = op.Min(op.Min(height, op.Div(width, ratio)), op.Sqrt(op.Div(op.Mul(area, float(area_range[1])), ratio)))
    least = op.Min(op.Sqrt(op.Div(op.Mul(area, float(area_range[0])), ratio)), most)
    tall = op.Max(op.Floor(op.Add(least, op.Mul(u[1], op.Add(op.Sub(most, least), 1.0)))), 1.0)
    tall = op.Min(tall, height)
    wide = op.Min(op.Max(op.Round(op.Mul(tall, ratio)), 1.0), width)
    top = op.Floor(op.Mul(u[2], op.Add(op.Sub(height, tall), 1.0)))
    left = op.Floor(op.Mul(u[3], op.Add(op.Sub(width, wide), 1.0)))
    covered = op.Div(op.Mul(tall, wide), area)
    right_size = op.And(op.GreaterOrEqual(covered, float(area_range[0])), op.LessOrEqual(covered, float(area_range[1])))
    boxes = op.Reshape(bounding_boxes, [1, -1, 4])
    sides = [op.Squeeze(op.Slice(boxes, [i], [i + 1], [2]), [2]) for i in range(4)]
    ends = [op.Unsqueeze(op.Div(v, s), [1]) for v, s in (
        (top, height), (left, width), (op.Add(top, tall), height), (op.Add(left, wide), width))]  # fmt: skip
    shared = [op.Max(op.Sub(op.Min(ends[i + 2], sides[i + 2]), op.Max(ends[i], sides[i])), 0.0) for i in (0, 1)]
    own = op.Mul(op.Sub(sides[2], sides[0]), op.Sub(sides[3], sides[1]))
    enough = op.GreaterOrEqual(op.Mul(*shared), op.Mul(own, min_object_covered))
    any_box = op.ReduceMax(op.Cast(op.Or(enough, op.LessOrEqual(min_object_covered, 0.0)), to=D.INT32), [1], keepdims=0)
    usable = op.Cast(op.And(op.Cast(any_box, to=D.BOOL), right_size), to=D.INT32)
    usable = op.Concat(usable, np.array([1], np.int32), axis=0)  # the last is the whole image
    best = op.ArgMax(usable, axis=0, keepdims=0)
    choice = [
        op.Gather(op.Concat(v, op.Reshape(whole, [1]), axis=0), best)
        for v, whole in ((top, op.constant(np.float32(0))), (left, op.constant(np.float32(0))), (tall, height), (wide, width))
    ]
    top, left, tall, wide = (op.Reshape(v, [1]) for v in choice)
    kind = image_size.dtype
    begin = op.Concat(cast(op, top, kind), cast(op, left, kind), np.array([0], kind.numpy()), axis=0)
    extent = op.Concat(cast(op, tall, kind), cast(op, wide, kind), np.array([-1], kind.numpy()), axis=0)
    ends = op.Div(op.Add(top, tall), height), op.Div(op.Add(left, wide), width)
    corners = op.Concat(op.Div(top, height), op.Div(left, width), *ends, axis=0)
    return begin, extent, op.Reshape(corners, [1, 1, 4])
