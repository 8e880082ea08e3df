"""MediaPipe's own operators: transposed convolution, and the regions of a face that its landmarks choose."""

import math

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tflite.custom_options import options_of, transposed_conv_options
from onnxbridge.frontends.tflite.ops import rule
from onnxbridge.frontends.tflite.ops.conv import transpose_conv
from onnxbridge.hub.ir.values import static_shape

_F = np.float32


@rule("Convolution2DTransposeBias")
def convolution_2d_transpose_bias(op, input, weights, bias, *, custom_options):
    """MediaPipe's transposed convolution."""
    padding, stride_w, stride_h = transposed_conv_options(custom_options)
    height, width = static_shape(input, [1, 2])
    out, kernel_h, kernel_w, _ = static_shape(weights)
    sizes = [
        s * step if padding == "SAME" else (s - 1) * step + k
        for s, step, k in ((height, stride_h, kernel_h), (width, stride_w, kernel_w))
    ]
    shape = op.dims([op.size(input, 0), *sizes, out])
    return transpose_conv(op, shape, weights, input, bias, padding=padding, stride_w=stride_w, stride_h=stride_h)


def _of_version_2(custom_options):
    """The options of an operator, whose first version has others: a map in FlexBuffers, or nothing."""
    options = options_of(custom_options) if custom_options else {}
    if found := sorted({"input_hw", "output_hw", "output_size", "dimensions"} & set(options)):
        raise Unsupported(f"version 1 of the operator ({', '.join(found)})")
    return options


def _moved(op, points, matrix):
    """Points [batch, n, 2] under transforms [batch, 4, 4]."""
    rows = op.Slice(matrix, [0], [2], [1])
    linear = op.Slice(rows, [0], [2], [2])
    shift = op.Transpose(op.Slice(rows, [3], [4], [2]), perm=[0, 2, 1])
    return op.Add(op.MatMul(points, op.Transpose(linear, perm=[0, 2, 1])), shift)


@rule("Landmarks2TransformMatrix", limits="version 2, one image at a time")
def landmarks_to_transform_matrix(op, landmarks, *, custom_options):
    """The transform [1, 4, 4] from an output of `output_width` and `output_height` to the box around the landmarks of
    `subset_idxs`, scaled and rotated: the line between two landmarks gets the angle `target_rotation_radians`."""
    options = _of_version_2(custom_options)
    batch, count, _ = static_shape(landmarks)
    ends = [int(options[f"{side}_rotation_idx"]) for side in ("left", "right")]
    subset = np.asarray(options["subset_idxs"], np.int64)
    size = np.array([options["output_width"], options["output_height"]], _F)
    if batch != 1:
        raise Unsupported("landmarks of several images")
    if not subset.size or subset.max() >= count or subset.min() < 0 or not 0 <= min(ends) <= max(ends) < count or size.min() <= 0:
        raise Unsupported("options that do not fit its landmarks", "get the file again")
    points = op.Slice(landmarks, [0], [2], [2])
    left, right = (op.Gather(points, np.array(i), axis=1) for i in ends)
    line = op.Sub(right, left)
    length = op.ReduceL2(line, [1], keepdims=1)
    unit = op.Where(op.Equal(length, _F(0)), np.array([[1, 0]], _F), op.Div(line, length))  # cosine and sine of its angle
    cos, sin = math.cos(options["target_rotation_radians"]), math.sin(options["target_rotation_radians"])
    turn = np.array([[cos, sin, -sin, cos], [sin, -cos, cos, sin]], _F)  # of the target's angle minus that of the line
    back = op.Reshape(op.MatMul(unit, turn), [1, 2, 2])
    turned = op.MatMul(op.Gather(points, subset, axis=1), back)
    low, high = op.ReduceMin(turned, [1], keepdims=1), op.ReduceMax(turned, [1], keepdims=1)
    center = op.MatMul(back, op.Transpose(op.Mul(op.Add(low, high), _F(0.5)), perm=[0, 2, 1]))
    scale = np.array([options["scale_x"], options["scale_y"]], _F) / size
    linear = op.Mul(back, op.Mul(op.Sub(high, low), scale))
    shift = op.Sub(center, op.MatMul(linear, (size / 2).reshape(2, 1)))
    rest = np.array([[[0, 0, 1, 0], [0, 0, 0, 1]]], _F)
    return op.Concat(op.Concat(linear, np.zeros((1, 2, 1), _F), shift, axis=2), rest, axis=1)


@rule("TransformLandmarks", limits="version 2")
def transform_landmarks(op, landmarks, matrix, *, custom_options=b""):
    """The first two coordinates are transformed, the third is kept."""
    _of_version_2(custom_options)
    moved = _moved(op, op.Slice(landmarks, [0], [2], [2]), matrix)
    axes = static_shape(landmarks, [2])[0]
    return moved if axes == 2 else op.Concat(moved, op.Slice(landmarks, [2], [axes], [2]), axis=2)


@rule("TransformTensorBilinear", limits="version 2")
def transform_tensor_bilinear(op, input, matrix, *, custom_options):
    """Pixels of the input at transformed centers of the output's pixels, interpolated; zero for those outside."""
    options = _of_version_2(custom_options)
    height, width = int(options["output_height"]), int(options["output_width"])
    if not 0 < height * width <= 1 << 24:
        raise Unsupported(f"an output of {height} x {width} pixels", "get the file again")
    size = np.array(static_shape(input, [2, 1]), _F)
    y, x = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    centers = np.stack([x, y], axis=-1).reshape(1, -1, 2).astype(_F) + _F(0.5)
    at = op.Sub(_moved(op, op.constant(centers), matrix), _F(0.5))
    grid = op.Sub(op.Div(op.Add(op.Mul(at, _F(2)), _F(1)), size), _F(1))
    grid = op.Reshape(grid, [-1, height, width, 2])
    taken = op.GridSample(op.Transpose(input, perm=[0, 3, 1, 2]), grid, mode="linear", padding_mode="border", align_corners=0)
    low, high = (op.ReduceMin(v, [2], keepdims=1) for v in (at, op.Sub(size - 1, at)))
    inside = op.Cast(op.GreaterOrEqual(op.Min(low, high), _F(0)), to=taken.dtype)
    return op.Mul(op.Transpose(taken, perm=[0, 2, 3, 1]), op.Reshape(inside, [-1, height, width, 1]))
