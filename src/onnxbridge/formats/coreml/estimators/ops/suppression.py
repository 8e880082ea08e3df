"""Boxes of which the best ones stay (a model of its own, as detectors have it at their end)."""

import numpy as np

from onnxbridge.errors import UnsafeFileError, Unsupported
from onnxbridge.formats.coreml.estimators.ops import rule


@rule("nonMaximumSuppression", limits="thresholds in the file")
def non_maximum_suppression(
    mil, *xs, names, pickTop=None, iouThreshold=0.0, confidenceThreshold=0.0, confidenceInputFeatureName,
    coordinatesInputFeatureName, iouThresholdInputFeatureName="", confidenceThresholdInputFeatureName="",
    confidenceOutputFeatureName, coordinatesOutputFeatureName, stringClassLabels=None, int64ClassLabels=None,
):  # fmt: skip
    """Confidences (boxes, classes) and coordinates (boxes, 4: centre, width, height) in, those of the boxes that stay out."""
    takes, gives = names
    given = dict(zip(takes, xs, strict=True))
    if confidenceInputFeatureName not in given or coordinatesInputFeatureName not in given:
        raise UnsafeFileError("the suppression names inputs that the model does not have")
    if pickTop is None:
        raise Unsupported("a suppression without a method")
    if {iouThresholdInputFeatureName, confidenceThresholdInputFeatureName} & set(given):
        raise Unsupported("thresholds that are inputs", "take the inputs out, and the thresholds of the file are used")
    scores, boxes = (
        mil.expand_dims(x=mil.cast(x=given[n], dtype="fp32"), axes=np.array([0]))
        for n in (confidenceInputFeatureName, coordinatesInputFeatureName)
    )
    most = next((v.type.shape[0] for v in given.values() if v.type is not None and v.type.shape), None)
    if most is None:
        raise Unsupported("a number of boxes that is known only when running")
    kept, sure, _, count = mil.non_maximum_suppression(
        boxes=boxes, scores=scores, iou_threshold=np.float32(iouThreshold), score_threshold=np.float32(confidenceThreshold),
        max_boxes=int(most), per_class_suppression=bool(pickTop.perClass), outputs=4,
    )  # fmt: skip
    shown = {}
    for name, value in ((confidenceOutputFeatureName, sure), (coordinatesOutputFeatureName, kept)):
        end = mil.concat(values=[mil.cast(x=count, dtype="int32"), np.zeros(1, np.int32)], axis=0)
        flat = mil.squeeze(x=value, axes=np.array([0]))
        shown[name] = mil.slice_by_index(
            x=flat, begin=np.zeros(2, np.int32), end=end, begin_mask=np.array([True, True]), end_mask=np.array([False, True])
        )
    return tuple(mil.cast(x=shown[name], dtype="fp64") for name in gives)
