"""Non-maximum suppression, a model type that follows a detector in a pipeline."""

import numpy as np

from onnxbridge.errors import UnsafeFileError, Unsupported
from onnxbridge.formats.coreml.estimators.ops import rule


@rule("nonMaximumSuppression", limits="thresholds must be constants of the file")
def non_maximum_suppression(
    mil, *xs, names, pickTop=None, iouThreshold=0.0, confidenceThreshold=0.0, confidenceInputFeatureName,
    coordinatesInputFeatureName, iouThresholdInputFeatureName="", confidenceThresholdInputFeatureName="",
    confidenceOutputFeatureName, coordinatesOutputFeatureName, stringClassLabels=None, int64ClassLabels=None,
):  # fmt: skip
    """Selects from confidences (boxes, classes) and coordinates (boxes, 4: center, width, height)."""
    input_names, output_names = names
    given = dict(zip(input_names, xs, strict=True))
    if confidenceInputFeatureName not in given or coordinatesInputFeatureName not in given:
        raise UnsafeFileError("the suppression refers to inputs that the model does not have")
    if pickTop is None:
        raise Unsupported("a suppression without a method")
    if {iouThresholdInputFeatureName, confidenceThresholdInputFeatureName} & set(given):
        raise Unsupported("thresholds that are inputs", "remove these inputs to use the thresholds of the file")
    scores, boxes = (
        mil.expand_dims(x=mil.cast(x=given[n], dtype="fp32"), axes=np.array([0]))
        for n in (confidenceInputFeatureName, coordinatesInputFeatureName)
    )
    max_boxes_ = next((v.type.shape[0] for v in given.values() if v.type is not None and v.type.shape), None)
    if max_boxes_ is None:
        raise Unsupported("a dynamic number of boxes")
    selected_boxes, selected_scores, _, count = mil.non_maximum_suppression(
        boxes=boxes, scores=scores, iou_threshold=np.float32(iouThreshold), score_threshold=np.float32(confidenceThreshold),
        max_boxes=int(max_boxes_), per_class_suppression=bool(pickTop.perClass), outputs=4,
    )  # fmt: skip
    outputs = {}
    for name, value in ((confidenceOutputFeatureName, selected_scores), (coordinatesOutputFeatureName, selected_boxes)):
        end = mil.concat(values=[mil.cast(x=count, dtype="int32"), np.zeros(1, np.int32)], axis=0)
        flat = mil.squeeze(x=value, axes=np.array([0]))
        outputs[name] = mil.slice_by_index(
            x=flat, begin=np.zeros(2, np.int32), end=end, begin_mask=np.array([True, True]), end_mask=np.array([False, True])
        )
    return tuple(mil.cast(x=outputs[name], dtype="fp64") for name in output_names)
