"""Boxes of objects: [left, top, right, bottom] ("corner") or [center x, center y, width, height] ("center")."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.frontends.mxnet.ops.types import as_tuple
from onnxbridge.hub.decompositions.standard.dynamic_axis import arange
from onnxbridge.hub.ir.values import cast, rank, static_shape

FLOAT, INT64 = ir.DataType.FLOAT, ir.DataType.INT64
LEAST = float(np.finfo(np.float32).min)


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


def column(op, rows, i):
    """One element of every row."""
    return op.Gather(rows, np.int64(i), axis=-1)


def ordered(op, rows, order):
    """The rows, [batch, box, element], in a given order, [batch, box]."""
    return op.GatherND(rows, op.Unsqueeze(order, [2]), batch_dims=1)


def without_overlaps(op, rows, scores, classes, count, threshold, *, start, form="corner"):
    """What NonMaxSuppression selects of the boxes in rows[:, :, start:start + 4]: triples of batch, class and box.

    `scores` are -inf for boxes that are not considered. `classes`, if boxes suppress only those of their own class, is the class
    of each box and the list of all classes. Boxes with a negative width or height overlap none, so they are written without area.
    """
    if threshold < 0:
        raise Unsupported("a negative threshold of overlaps, by which boxes that do not overlap are removed")
    boxes = cast(op, op.Slice(rows, [start], [start + 4], [2]), FLOAT)
    if form == "corner":
        low, high = op.Split(boxes, axis=2, num_outputs=2, outputs=2)
        boxes = op.Concat(low, op.Max(low, high), axis=2)
    scores = op.Unsqueeze(cast(op, scores, FLOAT), [1])
    if classes is not None:
        ids, kinds = classes
        scores = op.Where(op.Equal(op.Unsqueeze(ids, [1]), op.Reshape(kinds, [-1, 1])), scores, -np.inf)
    limits = op.dims([count]), [min(threshold, 1.0)], [LEAST]
    return op.NonMaxSuppression(boxes, scores, *limits, center_point_box=int(form == "center"))


def scores_of_selected(op, scores, chosen):
    """The scores of the selected boxes, [batch, box]; -inf for the others."""
    at = op.Gather(chosen, [0, 2], axis=1)
    return op.ScatterND(op.Expand(op.constant(-np.inf, dtype=scores.dtype), op.Shape(scores)), at, op.GatherND(scores, at))


@rule("_contrib_box_nms", "_contrib_box_non_maximum_suppression", limits="overlaps of float64 boxes are computed in float32")
def box_nms(
    op, data, *, overlap_thresh=0.5, valid_thresh=0.0, topk=-1, coord_start=2, score_index=1, id_index=-1, background_id=-1,
    force_suppress=False, in_format="corner", out_format="corner",
):  # fmt: skip
    """Selected boxes come first, in descending order of scores; the other rows are -1. `topk` limits the boxes considered."""
    if topk == 0:
        return op.Identity(data)
    rows = data if rank(data) == 3 else op.Reshape(data, op.Concat([-1], op.Shape(data, start=-2), axis=0))
    count = limit = op.size(rows, 1)
    valid = op.Greater(column(op, rows, score_index), valid_thresh)
    if id_index >= 0:
        valid = op.And(valid, op.Not(op.Equal(column(op, rows, id_index), float(background_id))))
    scores = op.Where(valid, column(op, rows, score_index), -np.inf)
    if topk > 0 and not (isinstance(count, int) and count <= topk):
        limit = topk if isinstance(count, int) else op.Min(count, topk)
        scores, order = op.TopK(scores, op.dims([limit]), axis=1, outputs=2)
        rows = ordered(op, rows, order)
    classes = None
    if id_index >= 0 and not force_suppress:
        ids = op.Cast(column(op, rows, id_index), to=INT64)
        classes = ids, op.Unique(ids)
    chosen = without_overlaps(op, rows, scores, classes, limit, overlap_thresh, start=coord_start, form=in_format)
    if classes is None and rows.shape[0] == 1:  # in descending order of scores already
        rows = op.Gather(rows, op.Gather(chosen, np.int64(2), axis=1), axis=1)
        limit = op.size(rows, 1)
    else:
        best, order = op.TopK(scores_of_selected(op, scores, chosen), op.dims([limit]), axis=1, outputs=2)
        rows = op.Where(op.Unsqueeze(op.Greater(best, -np.inf), [2]), ordered(op, rows, order), -1.0)
    if in_format != out_format:
        rows = _converted(op, rows, coord_start, in_format, out_format)
    if limit is not count:
        missing = op.Sub(count, limit) if isinstance(limit, ir.Value) or isinstance(count, ir.Value) else count - limit
        rows = op.Pad(rows, op.dims([0, 0, 0, 0, missing, 0]), -1.0)
    return rows if rank(data) == 3 else op.Reshape(rows, op.Shape(data))


def _centers(op, edges):
    left, top, right, bottom = edges
    return [
        op.Div(op.Add(left, right), 2.0), op.Div(op.Add(top, bottom), 2.0), op.Sub(right, left), op.Sub(bottom, top),
    ]  # fmt: skip


def _converted(op, rows, start, form, wanted):
    """The rows with coordinates of another form, except where the first coordinate is negative, as MXNet does it."""
    boxes = op.Slice(rows, [start], [start + 4], [2])
    edges = corners(op, boxes, form)
    converted = edges if wanted == "corner" else _centers(op, edges)
    same = op.Less(op.Slice(boxes, [0], [1], [2]), 0.0)
    boxes = op.Where(same, boxes, op.Concat(*[op.Unsqueeze(c, [2]) for c in converted], axis=2))
    width = static_shape(rows, [2])[0]
    parts = [op.Slice(rows, [0], [start], [2])] if start else []
    parts += [boxes, *([op.Slice(rows, [start + 4], [width], [2])] if start + 4 < width else [])]
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
    """Rows of class, score and box, by descending scores. Class 0 is the background and not counted; MXNet ignores background_id.

    Suppressed boxes only lose their class, and so do those beyond the first nms_topk, which stay where they are.
    """
    foreground = op.Slice(cls_prob, [1], [np.iinfo(np.int64).max], [1])
    best = op.ReduceMax(foreground, [1], keepdims=0)
    label = op.Cast(op.ArgMax(foreground, axis=1, keepdims=0), to=cls_prob.dtype)
    boxes = box_decode(op, op.Reshape(loc_pred, [0, -1, 4]), anchor, std0=variances[0], std1=variances[1], std2=variances[2],
                       std3=variances[3], format="corner")  # fmt: skip
    boxes = op.Clip(boxes, 0.0, 1.0) if clip else boxes
    rows = op.Concat(op.Unsqueeze(label, [2]), op.Unsqueeze(best, [2]), boxes, axis=2)
    count = op.size(rows, 1)
    valid = op.And(op.GreaterOrEqual(best, threshold), op.Greater(best, -1.0))

    def sorted_by(keys):
        keys, order = op.TopK(keys, op.dims([count]), axis=1, outputs=2)
        return keys, ordered(op, rows, order)

    flags, unsorted = sorted_by(cast(op, valid, FLOAT)) if nms_topk > 0 or not 0 < nms_threshold <= 1 else (None, None)
    if not 0 < nms_threshold <= 1:
        return op.Where(op.Unsqueeze(op.Greater(flags, 0.0), [2]), unsorted, -1.0)
    scores, rows = sorted_by(op.Where(valid, best, -np.inf))
    valid = op.Unsqueeze(op.Greater(scores, -np.inf), [2])
    first = None
    if nms_topk > 0:
        first = op.Less(arange(op, count), nms_topk)
        scores = op.Where(first, scores, -np.inf)
        rows = op.Where(op.Unsqueeze(first, [1]), rows, unsorted)
    ids = cast(op, column(op, rows, 0), INT64)
    kinds = cls_prob.shape[1]
    classes = None if force_suppress else (ids, arange(op, kinds - 1) if isinstance(kinds, int) else op.Unique(ids))
    just_below = float(np.nextafter(np.float32(nms_threshold), np.float32(0)))  # MXNet suppresses at the threshold, ONNX above it
    chosen = without_overlaps(op, rows, scores, classes, count, just_below, start=2)
    selected = op.Greater(scores_of_selected(op, scores, chosen), -np.inf)
    label = op.Where(op.Unsqueeze(selected, [2]), op.Slice(rows, [0], [1], [2]), -1.0)
    return op.Where(valid, op.Concat(label, op.Slice(rows, [1], [6], [2]), axis=2), -1.0)


@rule("_contrib_bipartite_matching")
def bipartite_matching(op, data, *, is_ascend=False, threshold, topk=-1):
    """Matches rows and columns, best scores first: the column of each row and the row of each column, -1 where there is none.

    As in MXNet, `topk` allows one match more.
    """
    rows, columns = static_shape(data, [-2, -1])
    scores = op.Reshape(op.Neg(data) if is_ascend else data, [-1, rows * columns])
    least = -threshold if is_ascend else threshold
    count = min(rows, columns, topk + 1 if topk > 0 else rows)
    of_row, of_column = np.repeat(np.arange(rows), columns), np.tile(np.arange(columns), rows)
    unmatched = [op.Expand(-1.0, op.dims([op.size(scores, 0), n])) for n in (rows, columns)]

    def step(i, condition, scores, row_matches, column_matches):
        best = op.ArgMax(scores, axis=1, keepdims=1)
        found = op.Greater(op.GatherElements(scores, best, axis=1), least)
        row, column = op.Div(best, columns), op.Mod(best, columns)

        def matched(matches, size, at, partner):
            return op.Where(op.And(found, op.Equal(np.arange(size), at)), op.Cast(partner, to=FLOAT), matches)

        used = op.Or(op.Equal(of_row, row), op.Equal(of_column, column))
        scores = op.Where(used, -np.inf, scores)
        row_matches = matched(row_matches, rows, row, column)
        return op.Identity(condition), scores, row_matches, matched(column_matches, columns, column, row)

    _, row_matches, column_matches = op.Loop(count, op.constant(np.bool_(True)), scores, *unmatched, body=step, outputs=3)
    shape = [op.size(data, a) for a in range(rank(data) - 2)]
    return tuple(cast(op, op.reshape(m, [*shape, n]), data.dtype) for m, n in ((row_matches, rows), (column_matches, columns)))


@rule("_contrib_Proposal", "_contrib_MultiProposal")
def proposal(
    op, cls_prob, bbox_pred, im_info, *, rpn_pre_nms_top_n=6000, rpn_post_nms_top_n=300, threshold=0.7, rpn_min_size=16,
    scales=(4.0, 8.0, 16.0, 32.0), ratios=(0.5, 1.0, 2.0), feature_stride=16, output_score=False, iou_loss=False,
):  # fmt: skip
    """Regions of interest [image, left, top, right, bottom] from scores and offsets to anchors; pixels of both edges count.

    If fewer than `rpn_post_nms_top_n` are left, they are repeated.
    """
    height, width = static_shape(cls_prob, [2, 3])
    bases = _anchors(feature_stride, as_tuple(ratios), as_tuple(scales))
    count = len(bases) * height * width
    shifts = np.stack(np.meshgrid(np.arange(width), np.arange(height)), -1).astype(np.float32) * feature_stride
    anchors = (bases + np.tile(shifts, 2)[:, :, None]).reshape(1, count, 4)
    deltas = op.Reshape(op.Transpose(bbox_pred, perm=[0, 2, 3, 1]), [0, count, 4])
    scores = op.Slice(cls_prob, [len(bases)], [2 * len(bases)], [1])
    scores = op.Reshape(op.Transpose(scores, perm=[0, 2, 3, 1]), [0, count])
    sizes = op.Unsqueeze(im_info, [1])  # [image, 1, height and width and scale]
    boxes = op.Add(anchors, deltas) if iou_loss else _moved(op, anchors, deltas)
    last = op.Sub(op.Gather(sizes, [1, 0, 1, 0], axis=2), 1.0)
    boxes = op.Max(op.Min(boxes, last), 0.0)

    cells = np.repeat(shifts[:, :, None] / feature_stride, len(bases), 2).reshape(1, count, 2)
    real = op.Floor(op.Div(op.Gather(sizes, [1, 0], axis=2), float(feature_stride)))
    padded = op.GreaterOrEqual(cells, real)
    least = op.Mul(op.Slice(sizes, [2], [3], [2]), float(rpn_min_size))
    low, high = op.Split(boxes, axis=2, num_outputs=2, outputs=2)
    small = op.Less(op.Add(op.Sub(high, low), 1.0), least)

    def either(flags):
        return op.Or(*(op.Gather(flags, np.int64(i), axis=2) for i in (0, 1)))

    small = either(small)
    half = op.Div(least, 2.0)
    boxes = op.Where(op.Unsqueeze(small, [2]), op.Concat(op.Sub(low, half), op.Add(high, half), axis=2), boxes)
    scores = op.Where(op.Or(small, either(padded)), -1.0, scores)

    limit = min(rpn_pre_nms_top_n, count) if rpn_pre_nms_top_n > 0 else count
    scores, order = op.TopK(scores, [limit], axis=1, outputs=2)
    boxes = ordered(op, boxes, order)
    wanted = min(rpn_post_nms_top_n, limit)
    chosen = without_overlaps(op, op.Add(boxes, np.array([0, 0, 1, 1], np.float32)), scores, None, wanted, threshold, start=0)
    best, order = op.TopK(scores_of_selected(op, scores, chosen), [wanted], axis=1, outputs=2)
    found = op.ReduceSum(op.Cast(op.Greater(best, -np.inf), to=INT64), [1])
    order = op.GatherElements(order, op.Mod(np.arange(rpn_post_nms_top_n)[None], found), axis=1)
    boxes = op.Reshape(ordered(op, boxes, order), [-1, 4])
    images = cast(op, arange(op, op.size(cls_prob, 0)), FLOAT)
    images = op.Reshape(op.Expand(op.Unsqueeze(images, [1]), [1, rpn_post_nms_top_n]), [-1, 1])
    rois = op.Concat(images, boxes, axis=1)
    return rois, op.Reshape(op.GatherElements(scores, order, axis=1), [-1, 1])


def _anchors(stride, ratios, scales):
    """One box for each ratio of height to width and each scale, around the first cell."""
    middle = np.float32(0.5 * (stride - 1))
    boxes = []
    for ratio in np.array(ratios, np.float32):
        wide = np.floor(np.sqrt(np.floor(np.float32(stride * stride) / ratio)) + np.float32(0.5))
        for scale in np.array(scales, np.float32):
            across = wide * scale
            down = np.floor(across / scale * ratio + np.float32(0.5)) * scale
            half = np.array([across - 1, down - 1], np.float32) * np.float32(0.5)
            boxes.append(np.concatenate([middle - half, middle + half]))
    return np.array(boxes, np.float32)


def _moved(op, anchors, deltas):
    """Anchors with moved centers, and sizes multiplied by exponentials."""
    size = anchors[..., 2:] - anchors[..., :2] + 1
    center = anchors[..., :2] + (size - 1) / 2
    move, grow = op.Split(deltas, axis=2, num_outputs=2, outputs=2)
    center = op.Add(op.Mul(move, size), center)
    half = op.Mul(op.Sub(op.Mul(op.Exp(grow), size), 1.0), 0.5)
    return op.Concat(op.Sub(center, half), op.Add(center, half), axis=2)
