"""Selection of boxes, and crops of images."""

import numpy as np
import onnx_ir as ir

from onnxbridge.frontends.tensorflow import sizes
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.frontends.tensorflow.sizes import int64, known_array
from onnxbridge.hub.decompositions.standard.dynamic_axis import arange
from onnxbridge.hub.ir.values import cast

D = ir.DataType


def _suppressed(op, boxes, scores, max_output_size, iou_threshold, score_threshold):
    """The indices of the selected boxes as int64, at most max_output_size."""
    limit = op.Reshape(int64(op, max_output_size), [1])
    boxes, scores = (cast(op, x, D.FLOAT) for x in (boxes, scores))
    thresholds = [None if t is None else op.Reshape(cast(op, t, D.FLOAT), [1]) for t in (iou_threshold, score_threshold)]
    chosen = op.NonMaxSuppression(op.Unsqueeze(boxes, [0]), op.Unsqueeze(scores, [0, 1]), limit, *thresholds)
    return op.Gather(chosen, np.array(2), axis=1)


def _to_length(op, x, limit, pad):
    """A vector filled with zeros up to a length, if `pad`."""
    if not pad:
        return x
    missing = op.Sub(op.Reshape(int64(op, limit), [1]), op.Shape(x))
    return op.Pad(x, op.Concat([0], op.Max(missing, np.zeros(1, np.int64)), axis=0))


def _int32(op, x):
    return op.Cast(x, to=D.INT32)


@rule("NonMaxSuppressionV2")
def non_max_suppression_v2(op, boxes, scores, max_output_size, iou_threshold):
    return _int32(op, _suppressed(op, boxes, scores, max_output_size, iou_threshold, None))


@rule("NonMaxSuppression")
def non_max_suppression(op, boxes, scores, max_output_size, *, iou_threshold=0.5):
    return non_max_suppression_v2(op, boxes, scores, max_output_size, op.constant(np.float32(iou_threshold)))


@rule("NonMaxSuppressionV3")
def non_max_suppression_v3(op, boxes, scores, max_output_size, iou_threshold, score_threshold):
    return _int32(op, _suppressed(op, boxes, scores, max_output_size, iou_threshold, score_threshold))


@rule("NonMaxSuppressionV4")
def non_max_suppression_v4(
    op, boxes, scores, max_output_size, iou_threshold, score_threshold, *, pad_to_max_output_size=False
):
    chosen = _suppressed(op, boxes, scores, max_output_size, iou_threshold, score_threshold)
    padded = _to_length(op, chosen, max_output_size, pad_to_max_output_size)
    return _int32(op, padded), _int32(op, op.Size(chosen))


@rule("NonMaxSuppressionV5")
def non_max_suppression_v5(
    op, boxes, scores, max_output_size, iou_threshold, score_threshold, soft_nms_sigma, *, pad_to_max_output_size=False
):
    sigma = known_array(soft_nms_sigma)
    if sigma is not None and sigma == 0:
        chosen = _suppressed(op, boxes, scores, max_output_size, iou_threshold, score_threshold)
        chosen_scores = op.Gather(scores, chosen, axis=0)
    else:
        chosen, chosen_scores = _softly_suppressed(
            op, scores, max_output_size, iou_threshold, score_threshold, soft_nms_sigma, lambda i: _overlaps(op, boxes, i)
        )
    padded = [_to_length(op, x, max_output_size, pad_to_max_output_size) for x in (chosen, chosen_scores)]
    return _int32(op, padded[0]), padded[1], _int32(op, op.Size(chosen))


@rule("NonMaxSuppressionWithOverlaps")
def non_max_suppression_with_overlaps(op, overlaps, scores, max_output_size, overlap_threshold, score_threshold):
    sigma = op.constant(np.array(0, scores.dtype.numpy()))
    overlap = lambda i: op.Gather(overlaps, i, axis=1)  # noqa: E731
    return _int32(op, _softly_suppressed(op, scores, max_output_size, overlap_threshold, score_threshold, sigma, overlap)[0])


def _overlaps(op, boxes, i):
    """The intersection of box i with each box over their union; 0 for boxes without area."""
    one = op.Gather(boxes, i, axis=0)

    def sides(x, axis):
        a, b = op.Gather(x, np.int64(axis), axis=-1), op.Gather(x, np.int64(axis + 2), axis=-1)
        return op.Min(a, b), op.Max(a, b)

    zero = np.array(0, boxes.dtype.numpy())
    shared, area, own = None, None, None
    for axis in (0, 1):
        (low, high), (one_low, one_high) = sides(boxes, axis), sides(one, axis)
        length = op.Max(op.Sub(op.Min(high, one_high), op.Max(low, one_low)), zero)
        shared = length if shared is None else op.Mul(shared, length)
        area = op.Sub(high, low) if area is None else op.Mul(area, op.Sub(high, low))
        own = op.Sub(one_high, one_low) if own is None else op.Mul(own, op.Sub(one_high, one_low))
    empty = op.Or(op.LessOrEqual(area, zero), op.LessOrEqual(own, zero))
    union = op.Sub(op.Add(area, own), shared)
    return op.Where(empty, zero, op.Div(shared, op.Where(empty, np.array(1, boxes.dtype.numpy()), union)))


def _softly_suppressed(op, scores, limit, threshold, score_threshold, sigma, overlap):
    """Takes the box with the highest score and lowers the scores of those that overlap, until none is above the threshold.

    Returns the indices and the scores at the time of the choice. With sigma 0, boxes that overlap by more than the threshold are
    removed and others keep their scores.
    """
    dtype = scores.dtype
    lowest, zero = np.array(-np.inf, dtype.numpy()), np.array(0, dtype.numpy())
    soft = op.Greater(sigma, zero)
    scale = op.Where(soft, op.Div(np.array(-0.5, dtype.numpy()), op.Where(soft, sigma, np.array(1, dtype.numpy()))), zero)

    def continues(rest):
        return op.Greater(op.ReduceMax(op.Concat(rest, lowest.reshape(1), axis=0), keepdims=0), score_threshold)

    def body(iteration, condition, rest):
        best = op.ArgMax(rest, axis=0, keepdims=0)
        shared = overlap(best)
        score = op.Gather(rest, best)
        kept = op.Mul(rest, op.Exp(op.Mul(scale, op.Mul(shared, shared))))
        rest = op.Where(op.Greater(shared, threshold), op.Where(soft, op.Mul(rest, zero), lowest), kept)
        rest = op.Where(op.Equal(arange(op, op.size(scores, 0)), best), lowest, rest)
        return continues(rest), rest, op.Unsqueeze(best, [0]), op.Unsqueeze(score, [0])

    trips = op.Reshape(int64(op, limit), [])
    _, chosen, chosen_scores = op.Loop(trips, continues(scores), scores, body=body, outputs=3)
    return op.Reshape(chosen, [-1]), op.Reshape(chosen_scores, [-1])


@rule("CombinedNonMaxSuppression")
def combined_non_max_suppression(
    op, boxes, scores, max_output_size_per_class, max_total_size, iou_threshold, score_threshold, *, pad_per_class=False,
    clip_boxes=True,
):  # fmt: skip
    """Boxes are [batch, boxes, 1 or classes, 4]. Those selected in each class are sorted by score across the classes."""
    batch, count, classes = (op.size(scores, i) for i in range(3))
    own = boxes.shape[2] != 1  # each class has its own boxes
    if not isinstance(boxes.shape[2], int):  # or maybe not
        boxes = op.Expand(boxes, op.dims([batch, count, classes, 4]))
    by_class = op.Transpose(scores, perm=[0, 2, 1])
    flat_boxes = op.Transpose(boxes, perm=[0, 2, 1, 3]) if own else boxes
    groups = sizes.multiply(op, batch, classes) if own else batch
    flat_boxes = op.Reshape(flat_boxes, op.dims([groups, count, 4]), allowzero=1)
    flat_scores = op.Reshape(by_class, op.dims([groups, 1 if own else classes, count]), allowzero=1)
    limits = [op.Reshape(x, [1]) for x in (int64(op, max_output_size_per_class), iou_threshold, score_threshold)]
    chosen = op.NonMaxSuppression(flat_boxes, flat_scores, *limits)
    lowest = op.Expand(np.float32(-np.inf), op.Shape(flat_scores))
    table = op.ScatterND(lowest, chosen, op.GatherND(flat_scores, chosen))
    table = op.Reshape(table, op.dims([batch, sizes.multiply(op, count, classes)]), allowzero=1)

    total = op.Reshape(int64(op, max_total_size), [1])
    if pad_per_class:
        total = op.Min(total, op.Mul(limits[0], classes))
    available = op.Shape(table, start=1)
    found, index = op.TopK(table, op.Min(total, available), axis=1, outputs=2)
    missing = op.Concat([0, 0, 0], op.Max(op.Sub(total, available), np.zeros(1, np.int64)), axis=0)
    found, index = op.Pad(found, missing, np.float32(-np.inf)), op.Pad(index, missing)
    valid = op.Greater(found, np.float32(-np.inf))
    class_, box = op.Div(index, count), op.Mod(index, count)
    at = op.Concat(*(op.Unsqueeze(i, [2]) for i in ((box, class_) if own else (box, op.Mul(box, 0)))), axis=2)
    picked = op.GatherND(boxes, at, batch_dims=1)
    picked = op.Clip(picked, 0.0, 1.0) if clip_boxes else picked
    picked = op.Where(op.Unsqueeze(valid, [2]), picked, 0.0)
    classes_found = op.Where(valid, op.Cast(class_, to=D.FLOAT), 0.0)
    return picked, op.Where(valid, found, 0.0), classes_found, op.ReduceSum(_int32(op, valid), [1], keepdims=0)


@rule("CropAndResize")
def crop_and_resize(op, image, boxes, box_ind, crop_size, *, method="bilinear", extrapolation_value=0.0):
    """The corners of a box [y1, x1, y2, x2] are at 0 and 1 in the centers of the first and the last pixel of its image."""
    height, width = op.size(image, 1), op.size(image, 2)
    x = cast(op, image, D.FLOAT)
    rows, columns = sizes.elements(op, crop_size, 2)
    axes = [_sampled(op, boxes, i, size, n) for i, (size, n) in enumerate(((height, rows), (width, columns)))]
    base = op.Mul(op.Reshape(int64(op, box_ind), [-1, 1, 1]), sizes.multiply(op, height, width))
    flat = op.Reshape(x, op.dims([_product(op, image), op.size(image, 3)]), allowzero=1)

    def pixels(y, x):
        at = op.Add(op.Mul(op.Unsqueeze(y, [2]), width), op.Unsqueeze(x, [1]))
        return op.Gather(flat, op.Add(base, at), axis=0)

    (y, inside_y), (x, inside_x) = axes
    if method == "nearest":
        result = pixels(*(op.Cast(op.Floor(op.Add(v, 0.5)), to=D.INT64) for v in (y, x)))
    else:
        low, high = (tuple(op.Cast(op.call(f, v), to=D.INT64) for v in (y, x)) for f in ("Floor", "Ceil"))
        across = op.Unsqueeze(op.Sub(x, op.Floor(x)), [1, 3])
        top = _between(op, pixels(low[0], low[1]), pixels(low[0], high[1]), across)
        bottom = _between(op, pixels(high[0], low[1]), pixels(high[0], high[1]), across)
        result = _between(op, top, bottom, op.Unsqueeze(op.Sub(y, op.Floor(y)), [2, 3]))
    inside = op.And(op.Unsqueeze(inside_y, [2, 3]), op.Unsqueeze(inside_x, [1, 3]))
    return op.Where(inside, result, float(extrapolation_value))


def _product(op, image):
    """The number of pixels of a batch of images."""
    return sizes.multiply(op, op.size(image, 0), sizes.multiply(op, op.size(image, 1), op.size(image, 2)))


def _between(op, a, b, share):
    return op.Add(a, op.Mul(op.Sub(b, a), share))


def _sampled(op, boxes, axis, size, count):
    """Where the pixels of each crop are in the image, [boxes, count], and whether that is inside of it; outside, 0."""
    low, high = (op.Unsqueeze(op.Gather(boxes, np.int64(i), axis=1), [1]) for i in (axis, axis + 2))
    last = op.Cast(op.Sub(sizes.scalar(op, size), 1), to=D.FLOAT)
    steps = op.Cast(op.Sub(sizes.scalar(op, count), 1), to=D.FLOAT)
    one = op.Equal(steps, 0.0)
    step = op.Div(op.Mul(op.Sub(high, low), last), op.Max(steps, 1.0))
    at = op.Add(op.Mul(low, last), op.Mul(op.Cast(arange(op, count), to=D.FLOAT), step))
    at = op.Where(one, op.Mul(op.Mul(op.Add(low, high), 0.5), last), at)
    inside = op.And(op.GreaterOrEqual(at, 0.0), op.LessOrEqual(at, last))
    return op.Where(inside, at, 0.0), inside
