"""Resizing, sampling at computed coordinates, and regions of interest."""

from __future__ import annotations

import numpy as np

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
    size = _resized(data, like, (height, width), (scale_height, scale_width), mode)
    coordinates = "align_corners" if align_corners else "half_pixel"
    target = op.dims([op.size(data, 0), op.size(data, 1), *size])
    return op.Resize(data, None, None, target, mode="linear", coordinate_transformation_mode=coordinates)


def _resized(data, like, size, scales, mode):
    if mode == "like":
        return static_shape(like, [2, 3])
    if mode == "size" and scales == (None, None):
        return size
    if mode == "size":
        return [int(n * s) for n, s in zip(static_shape(data, [2, 3]), scales, strict=True)]
    if mode in ("to_even_down", "to_even_up", "to_odd_down", "to_odd_up"):
        odd, step = "odd" in mode, 1 if mode.endswith("up") else -1
        return [n if n % 2 == odd else n + step for n in static_shape(data, [2, 3])]
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
    if position_sensitive:
        raise Unsupported("position_sensitive=True is not supported")
    height, width = as_tuple(pooled_size)
    batch = op.Cast(op.Reshape(op.Slice(rois, [0], [1], [1]), [-1]), to=np.int64)
    return op.RoiAlign(
        data, op.Slice(rois, [1], [5], [1]), batch, output_height=height, output_width=width, spatial_scale=spatial_scale,
        sampling_ratio=max(sample_ratio, 0), mode="avg",
        coordinate_transformation_mode="half_pixel" if aligned else "output_half_pixel",
    )  # fmt: skip


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


# detection: boxes are [left, top, right, bottom] ("corner") or [center x, center y, width, height] ("center")


def corners(op, boxes, form):
    """The four edges, each without the last dimension."""
    a, b, c, d = (op.Squeeze(p, [-1]) for p in op.Split(boxes, axis=-1, num_outputs=4, outputs=4))
    if form == "corner":
        return a, b, c, d
    half_width, half_height = op.Div(c, 2.0), op.Div(d, 2.0)
    return op.Sub(a, half_width), op.Sub(b, half_height), op.Add(a, half_width), op.Add(b, half_height)


def overlap(op, first, second):
    """Intersection over union of boxes given by their edges; 0 for empty unions."""
    width = op.Max(op.Sub(op.Min(first[2], second[2]), op.Max(first[0], second[0])), 0.0)
    height = op.Max(op.Sub(op.Min(first[3], second[3]), op.Max(first[1], second[1])), 0.0)
    both = op.Mul(width, height)
    areas = [op.Mul(op.Sub(e[2], e[0]), op.Sub(e[3], e[1])) for e in (first, second)]
    inverted = [op.Or(op.Less(e[2], e[0]), op.Less(e[3], e[1])) for e in (first, second)]
    areas = [op.Where(t, 0.0, a) for t, a in zip(inverted, areas, strict=True)]
    union = op.Sub(op.Add(*areas), both)
    empty = op.LessOrEqual(union, 0.0)
    return op.Where(empty, 0.0, op.Div(both, op.Where(empty, 1.0, union)))


@rule("_contrib_box_iou")
def box_iou(op, lhs, rhs, *, format="corner"):
    left, right = corners(op, lhs, format), corners(op, rhs, format)
    wide = [op.Reshape(e, op.Concat(op.Shape(e), np.ones(rank(rhs) - 1, np.int64), axis=0)) for e in left]
    return overlap(op, wide, right)


def suppressed(op, edges, classes, selected, count, threshold):
    """Greedy suppression: which of the boxes, [batch, box] in descending order, overlap no earlier selected one."""

    def step(i, condition, selected):
        at = op.Reshape(i, [1])
        one = [op.Gather(e, at, axis=1) for e in edges]
        hit = op.Greater(overlap(op, one, edges), threshold)
        if classes is not None:
            hit = op.And(hit, op.Equal(op.Gather(classes, at, axis=1), classes))
        hit = op.And(op.And(hit, op.Gather(selected, at, axis=1)), op.Greater(op.Range(0, count, 1), at))
        return op.Identity(condition), op.And(selected, op.Not(hit))

    return op.Loop(count, op.constant(np.bool_(True)), selected, body=step)


@rule("_contrib_box_nms", "_contrib_box_non_maximum_suppression")
def box_nms(
    op, data, *, overlap_thresh=0.5, valid_thresh=0.0, topk=-1, coord_start=2, score_index=1, id_index=-1, background_id=-1,
    force_suppress=False, in_format="corner", out_format="corner",
):  # fmt: skip
    """Selected boxes come first, in descending order of scores; the other rows are -1."""
    rows = data if rank(data) == 3 else op.Reshape(data, op.Concat([-1], op.Shape(data, start=-2), axis=0))
    size = op.Shape(rows, start=1, end=2)
    count = op.Squeeze(size, [0])

    def column(x, i):
        return op.Squeeze(op.Slice(x, [i], [i + 1], [2]), [2])

    valid = op.Greater(column(rows, score_index), valid_thresh)
    if id_index >= 0 and background_id >= 0:
        valid = op.And(valid, op.Not(op.Equal(column(rows, id_index), float(background_id))))
    _, order = op.TopK(op.Where(valid, column(rows, score_index), -np.inf), size, axis=1, outputs=2)
    rows, selected = (op.GatherND(v, op.Unsqueeze(order, [2]), batch_dims=1) for v in (rows, valid))
    if topk > 0:
        selected = op.And(selected, op.Less(op.Range(0, count, 1), topk))
    boxes = op.Slice(rows, [coord_start], [coord_start + 4], [2])
    edges = corners(op, boxes, in_format)
    classes = None if force_suppress or id_index < 0 else column(rows, id_index)
    selected = suppressed(op, edges, classes, selected, count, overlap_thresh)
    if in_format != out_format:
        rows = _replaced(op, rows, coord_start, edges if out_format == "corner" else _centers(op, edges))
    rows = op.Where(op.Unsqueeze(selected, [2]), rows, -1.0)
    _, order = op.TopK(op.Cast(selected, to=np.float32), size, axis=1, outputs=2)
    return op.Reshape(op.GatherND(rows, op.Unsqueeze(order, [2]), batch_dims=1), op.Shape(data))


def _centers(op, edges):
    left, top, right, bottom = edges
    return [
        op.Div(op.Add(left, right), 2.0), op.Div(op.Add(top, bottom), 2.0), op.Sub(right, left), op.Sub(bottom, top),
    ]  # fmt: skip


def _replaced(op, rows, start, columns):
    """The rows with their coordinates replaced."""
    width = static_shape(rows, [2])[0]
    parts = [op.Slice(rows, [0], [start], [2])] if start else []
    parts += [op.Unsqueeze(c, [2]) for c in columns]
    parts += [op.Slice(rows, [start + 4], [width], [2])] if start + 4 < width else []
    return op.Concat(*parts, axis=2)


@rule("_contrib_MultiBoxPrior", "_npx_multibox_prior")
def multi_box_prior(op, data, *, sizes=(1.0,), ratios=(1.0,), clip=False, steps=(-1.0, -1.0), offsets=(0.5, 0.5)):
    """Every size with the first ratio, then the first size with the other ratios, around the center of each pixel."""
    height, width = static_shape(data, [2, 3])
    sizes, ratios = as_tuple(sizes), as_tuple(ratios)
    down, across = (s if s > 0 else 1 / n for s, n in zip(steps, (height, width), strict=True))
    first = ratios[0] ** 0.5
    shapes = [(s * height / width * first / 2, s / first / 2) for s in sizes]
    shapes += [(sizes[0] * height / width * r**0.5 / 2, sizes[0] / r**0.5 / 2) for r in ratios[1:]]
    rows, columns = np.meshgrid((np.arange(height) + offsets[0]) * down, (np.arange(width) + offsets[1]) * across, indexing="ij")
    boxes = np.stack([np.stack([columns - w, rows - h, columns + w, rows + h], -1) for w, h in shapes], 2).reshape(1, -1, 4)
    return op.constant((np.clip(boxes, 0, 1) if clip else boxes).astype(data.dtype.numpy()))


@rule("_contrib_box_decode")
def box_decode(op, data, anchors, *, std0=1.0, std1=1.0, std2=1.0, std3=1.0, clip=-1.0, format="center"):
    """Boxes from offsets to anchors."""
    x, y, w, h = _centers(op, corners(op, anchors, "corner")) if format == "corner" else corners(op, anchors, "corner")
    a, b, c, d = (op.Mul(v, s) for v, s in zip(corners(op, data, "corner"), (std0, std1, std2, std3), strict=True))
    if clip > 0:
        c, d = op.Min(c, clip), op.Min(d, clip)
    x, y = op.Add(op.Mul(a, w), x), op.Add(op.Mul(b, h), y)
    w, h = op.Div(op.Mul(op.Exp(c), w), 2.0), op.Div(op.Mul(op.Exp(d), h), 2.0)
    return op.Concat(*[op.Unsqueeze(e, [-1]) for e in (op.Sub(x, w), op.Sub(y, h), op.Add(x, w), op.Add(y, h))], axis=-1)


@rule("_contrib_MultiBoxDetection", "_npx_multibox_detection")
def multi_box_detection(
    op, cls_prob, loc_pred, anchor, *, clip=True, threshold=0.01, background_id=0, nms_threshold=0.5, force_suppress=False,
    variances=(0.1, 0.1, 0.2, 0.2), nms_topk=-1,
):  # fmt: skip
    """Rows of class, score and box; class indices exclude the background, which is class 0."""
    if background_id != 0 or nms_topk > 0:
        raise Unsupported("background_id other than 0, or nms_topk, is not supported")
    scores = op.Slice(cls_prob, [1], [np.iinfo(np.int64).max], [1])
    best = op.ReduceMax(scores, [1], keepdims=0)
    label = op.Cast(op.ArgMax(scores, axis=1, keepdims=0), to=cls_prob.dtype)
    boxes = box_decode(op, op.Reshape(loc_pred, [0, -1, 4]), anchor, std0=variances[0], std1=variances[1], std2=variances[2],
                       std3=variances[3], format="corner")  # fmt: skip
    boxes = op.Clip(boxes, 0.0, 1.0) if clip else boxes
    rows = op.Concat(op.Unsqueeze(label, [2]), op.Unsqueeze(best, [2]), boxes, axis=2)
    size = op.Shape(rows, start=1, end=2)
    valid = op.GreaterOrEqual(best, threshold)
    _, order = op.TopK(op.Where(valid, best, -np.inf), size, axis=1, outputs=2)
    rows, valid = (op.GatherND(v, op.Unsqueeze(order, [2]), batch_dims=1) for v in (rows, valid))
    edges = corners(op, op.Slice(rows, [2], [6], [2]), "corner")
    classes = op.Squeeze(op.Slice(rows, [0], [1], [2]), [2])
    selected = suppressed(op, edges, None if force_suppress else classes, valid, op.Squeeze(size, [0]), nms_threshold)
    first = op.constant(np.arange(6) == 0)  # a suppressed box only loses its class
    rows = op.Where(op.And(op.Unsqueeze(op.Not(selected), [2]), first), -1.0, rows)
    return op.Where(op.Unsqueeze(valid, [2]), rows, -1.0)
