"""Resizing, sampling at computed coordinates, and regions of interest."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.frontends.mxnet.ops.types import as_tuple
from onnxbridge.hub.ir.values import rank, static_shape


@rule("UpSampling")
def up_sampling(op, *data, scale, sample_type, num_filter=0, multi_input_mode="concat"):
    """Several inputs are upsampled to the size of the first upsampled one. "bilinear" takes its kernel as an input."""
    if sample_type == "bilinear":
        pad, size = (scale - 1 + 1) // 2, 2 * scale - scale % 2
        groups = num_filter or static_shape(data[0], [1])[0]
        return op.ConvTranspose(*data, kernel_shape=[size, size], strides=[scale, scale], pads=[pad] * 4, group=groups)
    if sample_type != "nearest":
        raise Unsupported(f"sample_type={sample_type!r} is not supported")
    height = static_shape(data[0], [2])[0] * scale if len(data) > 1 else 0
    scaled = [_repeated(op, x, height // static_shape(x, [2])[0] if height else scale) for x in data]
    if len(scaled) == 1:
        return scaled[0]
    return op.Sum(*scaled) if multi_input_mode == "sum" else op.Concat(*scaled, axis=1)


def _repeated(op, x, scale):
    shape = {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
    return op.Resize(x, None, [1.0, 1.0, float(scale), float(scale)], **shape)


@rule("_contrib_BilinearResize2D")
def bilinear_resize_2d(
    op, data, like=None, *, height=1, width=1, scale_height=None, scale_width=None, mode="size", align_corners=True
):  # fmt: skip
    size = _resized(op, data, like, (height, width), (scale_height, scale_width), mode)
    coordinates = "align_corners" if align_corners else "pytorch_half_pixel"
    target = op.dims([op.size(data, 0), op.size(data, 1), *size])
    return op.Resize(data, None, None, target, mode="linear", coordinate_transformation_mode=coordinates)


def _resized(op, data, like, size, scales, mode):
    """The height and width of the result. With a scale of the height, MXNet expects one of the width, too."""
    if mode == "like":
        return [op.size(like, a) for a in (2, 3)]
    if mode == "size" and scales[0] is None:
        return size
    sizes = static_shape(data, [2, 3])
    if mode == "size":
        return [int(np.float32(s) * np.float32(n)) for n, s in zip(sizes, scales, strict=True)]
    if mode == "odd_scale":
        return [int(np.float32(s) * np.float32(n - n % 2)) + n % 2 for n, s in zip(sizes, scales, strict=True)]
    if mode in ("to_even_down", "to_even_up", "to_odd_down", "to_odd_up"):
        odd, step = "odd" in mode, 1 if mode.endswith("up") else -1
        return [n if n % 2 == odd else n + step for n in sizes]
    raise Unsupported(f"mode={mode!r} is not supported")


@rule("GridGenerator")
def grid_generator(op, data, *, transform_type, target_shape=(0, 0)):
    """The sampling grid: x and y from -1 to 1, as two channels."""
    kind = data.dtype.numpy()
    if transform_type == "affine":
        height, width = target_shape
        coordinates = np.stack([_grid(height, width)[1], _grid(height, width)[0], np.ones((height, width))])
        flat = op.MatMul(op.Reshape(data, [-1, 2, 3]), coordinates.reshape(3, -1).astype(kind))
        return op.Reshape(flat, [-1, 2, height, width])
    height, width = static_shape(data, [2, 3])
    half = np.array([(width - 1) / 2, (height - 1) / 2], kind).reshape(1, 2, 1, 1)
    base = np.stack(np.meshgrid(np.arange(width), np.arange(height)))[None].astype(kind)
    return op.Sub(op.Div(op.Add(data, base), half), 1.0)


def _grid(height, width):
    return np.meshgrid(np.linspace(-1, 1, height), np.linspace(-1, 1, width), indexing="ij")


@rule("BilinearSampler")
def bilinear_sampler(op, data, grid):
    coordinates = op.Transpose(grid, perm=[0, 2, 3, 1])
    return op.GridSample(data, coordinates, mode="linear", padding_mode="zeros", align_corners=1)


@rule("SpatialTransformer")
def spatial_transformer(op, data, loc, *, target_shape=(0, 0), transform_type, sampler_type):
    target = as_tuple(target_shape) if any(as_tuple(target_shape)) else static_shape(data, [2, 3])
    grid = grid_generator(op, op.Flatten(loc, axis=1) if rank(loc) > 2 else loc, transform_type="affine", target_shape=target)
    return bilinear_sampler(op, data, grid)


@rule("ROIPooling", "_npx_roi_pooling")
def roi_pooling(op, data, rois, *, pooled_size, spatial_scale):
    return op.MaxRoiPool(data, rois, pooled_shape=as_tuple(pooled_size), spatial_scale=spatial_scale)


@rule("_contrib_ROIAlign")
def roi_align(op, data, rois, *, pooled_size, spatial_scale, sample_ratio=-1, position_sensitive=False, aligned=False):
    """A region with a negative index of its image is all zeros."""
    height, width = as_tuple(pooled_size)
    batch = op.Slice(rois, [0], [1], [1])
    image = op.Reshape(op.Cast(op.Relu(batch), to=np.int64), [-1])
    found = op.RoiAlign(
        data, op.Slice(rois, [1], [5], [1]), image, output_height=height, output_width=width, spatial_scale=spatial_scale,
        sampling_ratio=max(sample_ratio, 0), mode="avg",
        coordinate_transformation_mode="half_pixel" if aligned else "output_half_pixel",
    )  # fmt: skip
    if position_sensitive:  # each bin has channels of its own: the diagonal of channels by bins
        bins = height * width
        own = op.Gather(op.Reshape(found, [0, -1, bins * bins]), np.arange(bins) * (bins + 1), axis=2)
        found = op.Reshape(own, [0, 0, height, width])
    return op.Where(op.Less(op.Unsqueeze(batch, [2, 3]), 0.0), 0.0, found)


@rule("_contrib_PSROIPooling")
def ps_roi_pooling(op, data, rois, *, spatial_scale, output_dim, pooled_size, group_size=0):
    """Means over the bins of regions, for each group of bins of channels of its own; regions are rounded to pixels.

    The sums of rectangles are differences of cumulative sums, in double precision.
    """
    groups, (height, width) = group_size or pooled_size, static_shape(data, [2, 3])
    group = np.clip(np.arange(pooled_size) * groups // pooled_size, 0, groups - 1)
    maps = op.Reshape(op.Cast(data, to=np.float64), [0, output_dim, groups * groups, height, width])
    maps = op.Transpose(maps, perm=[0, 2, 3, 4, 1])
    sums = op.CumSum(op.CumSum(maps, np.int64(2)), np.int64(3))
    sums = op.Pad(sums, [0, 0, 1, 1, 0, 0, 0, 0, 0, 0])

    dtype = np.float64 if data.dtype == ir.DataType.DOUBLE else np.float32
    steps = np.arange(pooled_size, dtype=dtype)[:, None]
    rois = op.Cast(rois, to=dtype)
    corners = op.Slice(rois, [1], [5], [1])
    away = op.Mul(op.Sign(corners), op.Floor(op.Add(op.Abs(corners), 0.5)))  # halves are rounded away from 0
    low, high = op.Split(away, axis=1, num_outputs=2, outputs=2)
    low, high = (op.Mul(op.Unsqueeze(v, [1]), float(spatial_scale)) for v in (low, op.Add(high, 1.0)))
    bins = op.Div(op.Max(op.Sub(high, low), 0.1), float(pooled_size))  # [region, 1, across and down]
    size = np.array([width, height], dtype)
    first = op.Floor(op.Add(op.Mul(bins, steps), low))
    last = op.Ceil(op.Add(op.Mul(bins, steps + 1), low))
    first, last = (op.Cast(op.Max(op.Min(v, size), 0.0), to=np.int64) for v in (first, last))
    last = op.Max(last, first)

    shape = op.dims([op.size(rois, 0), pooled_size, pooled_size, 1])

    def axis(bounds, i):
        return op.Expand(op.Unsqueeze(op.Gather(bounds, np.int64(i), axis=2), [1, 3] if i == 0 else [2, 3]), shape)

    image = op.Expand(op.Reshape(op.Cast(op.Slice(rois, [0], [1], [1]), to=np.int64), [-1, 1, 1, 1]), shape)
    channel = op.Expand((group[:, None] * groups + group).reshape(1, pooled_size, pooled_size, 1), shape)
    left, right, top, bottom = axis(first, 0), axis(last, 0), axis(first, 1), axis(last, 1)

    def total(y, x):
        return op.GatherND(sums, op.Concat(image, channel, y, x, axis=3))

    inside = op.Sub(op.Sub(total(bottom, right), total(top, right)), op.Sub(total(bottom, left), total(top, left)))
    area = op.Mul(op.Sub(bottom, top), op.Sub(right, left))
    mean = op.Div(inside, op.Cast(op.Max(area, 1), to=np.float64))
    return op.Transpose(op.Cast(mean, to=data.dtype), perm=[0, 3, 1, 2])


@rule("Correlation")
def correlation(op, data1, data2, *, kernel_size=1, max_displacement=1, stride1=1, stride2=1, pad_size=0, is_multiply=True):
    """The mean over windows and channels of products, or absolute differences, with the second image moved, for each movement."""
    height, width = (n + 2 * pad_size for n in static_shape(data1, [2, 3]))
    border = max_displacement + (kernel_size - 1) // 2
    spans = [(-(-(n - 2 * border) // stride1) - 1) * stride1 + kernel_size for n in (height, width)]
    pads = [0, 0, pad_size, pad_size] * 2
    first, second = op.Pad(data1, pads), op.Pad(data2, pads)
    first = op.Slice(first, [max_displacement] * 2, [max_displacement + n for n in spans], [2, 3])
    reach = max_displacement // stride2
    starts = max_displacement + np.arange(-reach, reach + 1) * stride2
    starts = np.stack(np.meshgrid(starts, starts, indexing="ij"), -1).reshape(-1, 2)

    def step(i, condition):
        start = op.Gather(starts, i, axis=0)
        moved = op.Slice(second, start, op.Add(start, np.array(spans)), [2, 3])
        both = op.Mul(first, moved) if is_multiply else op.Abs(op.Sub(first, moved))
        return op.Identity(condition), op.ReduceMean(both, [1], keepdims=0)

    found = op.Loop(len(starts), op.constant(np.bool_(True)), body=step)
    found = op.Transpose(found, perm=[1, 0, 2, 3])
    if kernel_size == stride1 == 1:
        return found
    return op.AveragePool(found, kernel_shape=[kernel_size] * 2, strides=[stride1] * 2)


@rule("im2col")
def im2col(op, data, *, kernel, stride=(), dilate=(), pad=()):
    """The elements of each window as a column: a convolution with one-hot kernels."""
    kernel, (channels,) = as_tuple(kernel), static_shape(data, [1])
    count, size = len(kernel), int(np.prod(kernel))
    picks = np.tile(np.eye(size, dtype=data.dtype.numpy()).reshape(size, 1, *kernel), (channels, *[1] * (count + 1)))
    columns = op.Conv(
        data, picks, kernel_shape=kernel, strides=as_tuple(stride) or (1,) * count, group=channels,
        dilations=as_tuple(dilate) or (1,) * count, pads=(as_tuple(pad) or (0,) * count) * 2,
    )  # fmt: skip
    return op.Reshape(columns, [0, channels * size, -1])


@rule("col2im")
def col2im(op, data, *, output_size, kernel, stride=(), dilate=(), pad=()):
    count = len(as_tuple(kernel))
    return op.Col2Im(
        data, list(as_tuple(output_size)), list(as_tuple(kernel)), strides=as_tuple(stride) or (1,) * count,
        dilations=as_tuple(dilate) or (1,) * count, pads=(as_tuple(pad) or (0,) * count) * 2,
    )  # fmt: skip
