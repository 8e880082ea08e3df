"""Gradients of convolutions, pools, normalizations, resizing and slices: explanations of classifiers need them."""

import numpy as np
import onnx_ir as ir

from onnxbridge.frontends.tensorflow import sizes
from onnxbridge.frontends.tensorflow.channels_last import first, last, spatial
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.frontends.tensorflow.ops.conv import known_shape, transposed_convolution
from onnxbridge.frontends.tensorflow.ops.indexing import strided_slice
from onnxbridge.frontends.tensorflow.ops.rearrange import mirror_pad
from onnxbridge.frontends.tensorflow.ops.resampling import resized_gradient
from onnxbridge.frontends.tensorflow.padding import padded, window
from onnxbridge.frontends.tensorflow.sizes import int64
from onnxbridge.hub.decompositions.standard.dynamic_axis import arange
from onnxbridge.hub.ir.values import cast, rank
from onnxbridge.rules import Ints


def _like(x, number):
    return np.array(number, x.dtype.numpy())


# convolutions


def _filter_gradient(op, input, filter_sizes, out_backprop, strides, padding, explicit, data_format, dilations):
    """A convolution of the input with the gradient as its filter, batch and channels swapped, strides and dilations too."""
    n = len(data_format) - 2
    kernel = sizes.elements(op, filter_sizes, n + 2)[:n]
    strides, dilations = spatial(strides, data_format), spatial(dilations, data_format)
    swap = [1, 0, *range(2, n + 2)]
    x, attrs = padded(op, first(op, input, data_format), kernel, strides, dilations, padding, explicit, data_format)
    x, g = op.Transpose(x, perm=swap), op.Transpose(first(op, out_backprop, data_format), perm=swap)
    attrs |= {"strides": list(dilations), "dilations": list(strides)}
    y = op.Slice(op.Conv(x, g, **attrs), [0] * n, op.dims(kernel), list(range(2, n + 2)))
    return op.Transpose(y, perm=[*range(2, n + 2), 0, 1])


@rule("Conv2DBackpropFilter")
def conv2d_backprop_filter(
    op, input, filter_sizes, out_backprop, *, strides, padding, explicit_paddings=(), data_format="NHWC", dilations=(1, 1, 1, 1)
):
    return _filter_gradient(op, input, filter_sizes, out_backprop, strides, padding, explicit_paddings, data_format, dilations)


@rule("Conv3DBackpropFilterV2")
def conv3d_backprop_filter_v2(
    op, input, filter_sizes, out_backprop, *, strides, padding, data_format="NDHWC", dilations=(1, 1, 1, 1, 1)
):
    return _filter_gradient(op, input, filter_sizes, out_backprop, strides, padding, (), data_format, dilations)


@rule("DepthwiseConv2dNativeBackpropInput")
def depthwise_conv2d_native_backprop_input(
    op, input_sizes, filter, out_backprop, *, strides, padding, explicit_paddings=(), data_format="NHWC", dilations=(1, 1, 1, 1)
):
    height, width, channels, multiplier = known_shape(filter.shape)
    weight = op.Reshape(op.Transpose(filter, perm=[2, 3, 0, 1]), [channels * multiplier, 1, height, width])
    return transposed_convolution(
        op, input_sizes, weight, out_backprop, strides, padding, explicit_paddings, data_format, dilations, channels
    )


@rule("DepthwiseConv2dNativeBackpropFilter")
def depthwise_conv2d_native_backprop_filter(
    op, input, filter_sizes: Ints, out_backprop, *, strides, padding, explicit_paddings=(), data_format="NHWC",
    dilations=(1, 1, 1, 1),
):  # fmt: skip
    """The images of the batch are the input channels of a group for each channel."""
    height, width, channels, multiplier = filter_sizes
    kernel, strides, dilations = [height, width], spatial(strides, data_format), spatial(dilations, data_format)
    x, attrs = padded(op, first(op, input, data_format), kernel, strides, dilations, padding, explicit_paddings, data_format)
    g = first(op, out_backprop, data_format)
    x = op.Reshape(op.Transpose(x, perm=[1, 0, 2, 3]), op.dims([1, -1, *(op.size(x, i) for i in (2, 3))]))
    attrs |= {"strides": list(dilations), "dilations": list(strides)}
    y = op.Slice(op.Conv(x, op.Transpose(g, perm=[1, 0, 2, 3]), group=channels, **attrs), [0, 0], kernel, [2, 3])
    return op.Transpose(op.Reshape(y, [channels, multiplier, *kernel]), perm=[2, 3, 0, 1])


# pools


def _scattered(op, index, values, shape, count):
    """A tensor of zeros to which values are added at indices of its flat form."""
    zeros = op.Expand(_like(values, 0), op.Reshape(count, [1]))
    filled = op.ScatterElements(zeros, op.Reshape(index, [-1]), op.Reshape(values, [-1]), axis=0, reduction="add")
    return op.Reshape(filled, shape, allowzero=1)


def _max_pool_gradient(op, x, grad, ksize, strides, padding, explicit, data_format):
    """The gradient goes to the largest element of each window."""
    x, g = first(op, x, data_format), first(op, grad, data_format)
    kernel = spatial(ksize, data_format)
    attrs = window(x, kernel, spatial(strides, data_format), [1] * len(kernel), padding, explicit, data_format)
    _, index = op.MaxPool(x, kernel_shape=list(kernel), outputs=2, **attrs)
    return last(op, _scattered(op, index, g, op.Shape(x), op.Size(x)), data_format)


@rule("MaxPoolGrad")
def max_pool_grad(
    op, orig_input, orig_output, grad, *, ksize, strides, padding, explicit_paddings=(), data_format="NHWC"
):
    return _max_pool_gradient(op, orig_input, grad, ksize, strides, padding, explicit_paddings, data_format)


@rule("MaxPoolGradV2")
def max_pool_grad_v2(op, orig_input, orig_output, grad, ksize: Ints, strides: Ints, *, padding, data_format="NHWC"):
    return _max_pool_gradient(op, orig_input, grad, ksize, strides, padding, (), data_format)


@rule("MaxPool3DGrad")
def max_pool_3d_grad(op, orig_input, orig_output, grad, *, ksize, strides, padding, data_format="NDHWC"):
    return _max_pool_gradient(op, orig_input, grad, ksize, strides, padding, (), data_format)


def _avg_pool_gradient(op, shape, grad, ksize, strides, padding, data_format):
    """Each element of the gradient, divided by the number of elements in its window, goes to all of them."""
    n = len(data_format) - 2
    start = 1 if data_format.endswith("C") else 2
    kernel, strides = spatial(ksize, data_format), spatial(strides, data_format)
    g, dtype = first(op, grad, data_format), grad.dtype.numpy()
    wanted = sizes.elements(op, shape, n + 2)[start : start + n]
    ones = op.Expand(np.ones((1,) * (n + 2), dtype), op.dims([1, 1, *wanted]))
    x, attrs = padded(op, ones, kernel, strides, (1,) * n, padding)
    weight = np.ones((1, 1, *kernel), dtype)
    g = op.Div(g, op.Conv(x, weight, **attrs))
    batch, channels = op.size(g, 0), op.size(g, 1)
    planes = op.Reshape(g, op.dims([sizes.multiply(op, batch, channels), 1, *(op.size(g, i + 2) for i in range(n))]))
    layout = "NC" + "DHW"[-n:]
    y = transposed_convolution(
        op, op.dims(wanted), op.constant(weight), planes, (1, 1, *strides), padding, (), layout, (1,) * (n + 2), 1
    )
    return last(op, op.Reshape(y, op.dims([batch, channels, *wanted])), data_format)


@rule("AvgPoolGrad")
def avg_pool_grad(op, orig_input_shape, grad, *, ksize, strides, padding, data_format="NHWC"):
    return _avg_pool_gradient(op, orig_input_shape, grad, ksize, strides, padding, data_format)


@rule("AvgPool3DGrad")
def avg_pool_3d_grad(op, orig_input_shape, grad, *, ksize, strides, padding, data_format="NDHWC"):
    return _avg_pool_gradient(op, orig_input_shape, grad, ksize, strides, padding, data_format)


# normalization


@rule("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3")
def fused_batch_norm_grad(
    op, y_backprop, x, scale, reserve_space_1, reserve_space_2, reserve_space_3=None, *, epsilon=1e-4, data_format="NHWC",
    is_training=True,
):  # fmt: skip
    """The reserved values are the mean and the variance that the normalization used."""
    kind, dtype = scale.dtype, x.dtype
    g, x = (cast(op, first(op, v, data_format), kind) for v in (y_backprop, x))
    axes = [i for i in range(rank(x)) if i != 1]
    along = [-1, *[1] * (rank(x) - 2)]
    inverse = op.Reciprocal(op.Sqrt(op.Add(op.Reshape(reserve_space_2, along), float(epsilon))))
    normal = op.Mul(op.Sub(x, op.Reshape(reserve_space_1, along)), inverse)
    factor = op.Mul(op.Reshape(scale, along), inverse)
    product = op.Mul(g, normal)
    rest = g
    if is_training:
        mean = op.ReduceMean(g, axes, keepdims=1)
        rest = op.Sub(op.Sub(g, mean), op.Mul(normal, op.ReduceMean(product, axes, keepdims=1)))
    empty = op.constant(np.zeros(0, np.float32))
    back = last(op, cast(op, op.Mul(factor, rest), dtype), data_format)
    return back, op.ReduceSum(product, axes, keepdims=0), op.ReduceSum(g, axes, keepdims=0), empty, empty


# resizing and slices


@rule("ResizeNearestNeighborGrad")
def resize_nearest_neighbor_grad(op, grads, size, *, align_corners=False, half_pixel_centers=False):
    return resized_gradient(op, grads, sizes.elements(op, size, 2), "nearest", align_corners, half_pixel_centers)


@rule("ResizeBilinearGrad")
def resize_bilinear_grad(op, grads, original_image, *, align_corners=False, half_pixel_centers=False):
    old = [op.size(original_image, i) for i in (1, 2)]
    return cast(op, resized_gradient(op, grads, old, "linear", align_corners, half_pixel_centers), original_image.dtype)


@rule("ResizeBicubicGrad")
def resize_bicubic_grad(op, grads, original_image, *, align_corners=False, half_pixel_centers=False):
    old = [op.size(original_image, i) for i in (1, 2)]
    return cast(op, resized_gradient(op, grads, old, "cubic", align_corners, half_pixel_centers), original_image.dtype)


def _moved_back(op, dy, shape, move):
    """The gradient of an operator that moves elements: it is added where `move` takes each element from."""
    shape = int64(op, shape)
    count = op.ReduceProd(shape, keepdims=0)
    index = move(op.Reshape(arange(op, count), shape, allowzero=1))
    return _scattered(op, index, dy, shape, count)


@rule("StridedSliceGrad")
def strided_slice_grad(
    op, shape, begin, end, strides, dy, *, begin_mask=0, end_mask=0, ellipsis_mask=0, new_axis_mask=0, shrink_axis_mask=0
):
    def move(index):
        return strided_slice(
            op, index, begin, end, strides, begin_mask=begin_mask, end_mask=end_mask, ellipsis_mask=ellipsis_mask,
            new_axis_mask=new_axis_mask, shrink_axis_mask=shrink_axis_mask,
        )  # fmt: skip

    return _moved_back(op, dy, shape, move)


@rule("MirrorPadGrad")
def mirror_pad_grad(op, input, paddings, *, mode):
    around = op.ReduceSum(int64(op, paddings), [1], keepdims=0)
    shape = op.Sub(op.Shape(input), around)
    if input.dtype not in (ir.DataType.FLOAT, ir.DataType.DOUBLE):
        return cast(op, mirror_pad_grad(op, op.Cast(input, to=ir.DataType.FLOAT), paddings, mode=mode), input.dtype)
    return _moved_back(op, input, shape, lambda index: mirror_pad(op, index, paddings, mode=mode))
