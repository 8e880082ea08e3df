"""The post-processing of detectors: decoded boxes, chosen by non-maximum suppression."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tflite.custom_options import options_of
from onnxbridge.frontends.tflite.ops import rule
from onnxbridge.hub.ir.values import static_shape

D = ir.DataType
_F = np.float32
_MOST_CATEGORIES = 1000


def _decoded(op, encodings, anchors, options):
    """Corners (ymin, xmin, ymax, xmax) of boxes that are given by center and size relative to their anchors."""
    scales = [float(options[n]) for n in ("y_scale", "x_scale", "h_scale", "w_scale")]
    relative = op.Div(op.Squeeze(encodings, [0]), np.array(scales, _F))
    center, size = (op.Slice(relative, [i], [i + 2], [1]) for i in (0, 2))
    own_center, own_size = (op.Slice(anchors, [i], [i + 2], [1]) for i in (0, 2))
    center = op.Add(op.Mul(center, own_size), own_center)
    half = op.Mul(op.Mul(op.Exp(size), own_size), _F(0.5))
    return op.Concat(op.Sub(center, half), op.Add(center, half), axis=1)


def _filled(op, rows, count):
    """The first `count` rows, with zeros after the last one."""
    inner = static_shape(rows, range(1, len(rows.shape)))
    return op.Slice(op.Concat(rows, np.zeros((count, *inner), _F), axis=0), [0], [count], [0])


@rule("TFLite_Detection_PostProcess", limits="one image at a time")
def detection_postprocess(op, box_encodings, class_predictions, anchors, *, custom_options):
    """Boxes [1, n, 4], classes [1, n], scores [1, n] and the number of detections [1]; zeros stand after the last one."""
    options = options_of(custom_options)
    classes, most = int(options["num_classes"]), int(options["max_detections"])
    if box_encodings.shape[0] != 1:
        raise Unsupported("detections in several images")
    if not 0 < most <= 100_000 or classes < 1:
        raise Unsupported(f"options with {most} detections of {classes} classes", "get the file again")
    offset = static_shape(class_predictions, [2])[0] - classes  # of a class for the background
    scores = op.Slice(op.Squeeze(class_predictions, [0]), [offset], [offset + classes], [1])
    boxes = _decoded(op, box_encodings, anchors, options)
    thresholds = [np.array([options[n]], _F) for n in ("nms_iou_threshold", "nms_score_threshold")]
    choose = _by_class if options.get("use_regular_nms") else _by_best_class
    found, labels, values, number = choose(op, boxes, scores, most, thresholds, options, classes)
    return (
        op.Unsqueeze(found, [0]), op.Unsqueeze(labels, [0]), op.Unsqueeze(values, [0]), op.Cast(number, to=D.FLOAT)
    )  # fmt: skip


def _by_best_class(op, boxes, scores, most, thresholds, options, classes):
    """Boxes suppressed by the score of their best class, each with its best classes."""
    each = min(int(options.get("max_classes_per_detection", 1)), classes)
    if not 0 < each <= _MOST_CATEGORIES:
        raise Unsupported(f"{each} classes of each box", "get the file again")
    best, labels = op.TopK(scores, [each], axis=1, outputs=2)
    first = op.Transpose(op.Slice(best, [0], [1], [1]), perm=[1, 0])
    chosen = op.NonMaxSuppression(op.Unsqueeze(boxes, [0]), op.Unsqueeze(first, [0]), np.array([most]), *thresholds)
    at = op.Gather(chosen, np.int64(2), axis=1)
    repeated = op.Reshape(op.Tile(op.Gather(boxes, at, axis=0), [1, each]), [-1, 4])
    labels = op.Cast(op.Reshape(op.Gather(labels, at, axis=0), [-1]), to=D.FLOAT)
    values = op.Reshape(op.Gather(best, at, axis=0), [-1])
    count = most * each
    return (*(_filled(op, v, count) for v in (repeated, labels, values)), op.Shape(at))


def _by_class(op, boxes, scores, most, thresholds, options, classes):
    """Boxes suppressed within each class, the best of all classes."""
    by_class = op.Transpose(scores, perm=[1, 0])
    limit = np.array([int(options.get("detections_per_class", 100))])
    chosen = op.NonMaxSuppression(op.Unsqueeze(boxes, [0]), op.Unsqueeze(by_class, [0]), limit, *thresholds)
    at = op.Slice(chosen, [1], [3], [1])
    values = op.Concat(op.GatherND(by_class, at), np.full(most, -1, _F), axis=0)
    labels = op.Cast(op.Gather(at, np.int64(0), axis=1), to=D.FLOAT)
    corners = op.Gather(boxes, op.Gather(at, np.int64(1), axis=1), axis=0)
    best, order = op.TopK(values, [most], outputs=2)
    labels, corners = (
        op.Gather(op.Concat(v, np.zeros((most, *s), _F), axis=0), order, axis=0) for v, s in ((labels, ()), (corners, (4,)))
    )
    return corners, labels, op.Max(best, _F(0)), op.Min(op.Shape(chosen, end=1), np.array([most]))
