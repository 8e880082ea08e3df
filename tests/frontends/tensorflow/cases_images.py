# ruff: noqa: E501  one operator per line
"""Samples of boxes, crops, colors, pools and normalization."""

import numpy as np

from tests.frontends.tensorflow.samples import S, const, f32, f64, fed, i32, u8

_rng = np.random.default_rng(3)
_low = _rng.uniform(0, 8, (12, 2))
BOXES = fed(np.concatenate([_low, _low + _rng.uniform(1, 4, (12, 2))], axis=1))
SCORES = fed(_rng.permutation(12) / 12)
for _op, _more in (("NonMaxSuppressionV3", {}), ("NonMaxSuppressionV4", {}), ("NonMaxSuppressionV4", {"pad_to_max_output_size": True}), ("NonMaxSuppressionV5", {"soft_nms_sigma": np.float32(0)})):
    for _limit in (5, fed(20, np.int32)):
        S(_op, boxes=BOXES, scores=SCORES, max_output_size=_limit, iou_threshold=np.float32(0.3), score_threshold=np.float32(0.2), **_more)
S("NonMaxSuppressionV2", boxes=BOXES, scores=SCORES, max_output_size=6, iou_threshold=np.float32(0.3))
S("NonMaxSuppression", boxes=BOXES, scores=SCORES, max_output_size=6, iou_threshold=0.3)
for _sigma in (0.5, 0.1):
    S("NonMaxSuppressionV5", boxes=BOXES, scores=SCORES, max_output_size=8, iou_threshold=np.float32(0.9), score_threshold=np.float32(0.1), soft_nms_sigma=np.float32(_sigma), pad_to_max_output_size=True)
S("NonMaxSuppressionV5", boxes=BOXES, scores=SCORES, max_output_size=8, iou_threshold=fed(0.3), score_threshold=fed(0.1), soft_nms_sigma=fed(0.0), label="sigma fed")
S("NonMaxSuppressionWithOverlaps", overlaps=f32(7, 7, low=0, high=1), scores=fed(_rng.permutation(7) / 7), max_output_size=5, overlap_threshold=np.float32(0.6), score_threshold=np.float32(0.1))
for _classes in (1, 3):
    for _more in ({}, {"clip_boxes": False}, {"pad_per_class": True}):
        S("CombinedNonMaxSuppression", boxes=f32(2, 6, _classes, 4, low=-0.2, high=1.2), scores=fed(_rng.permutation(36).reshape(2, 6, 3) / 36), max_output_size_per_class=2, max_total_size=5, iou_threshold=np.float32(0.3), score_threshold=np.float32(0.2), **_more)
S("CombinedNonMaxSuppression", boxes=f32(1, 2, 1, 4, low=0, high=1), scores=f32(1, 2, 1, low=0, high=1), max_output_size_per_class=4, max_total_size=9, iou_threshold=np.float32(0.3), score_threshold=np.float32(0.2))
CROPS = fed([[0, 0, 1, 1], [0.2, -0.3, 0.7, 0.9], [0.8, 0.9, 0.1, 0.2]])
for _method in ("bilinear", "nearest"):
    for _size in ([3, 4], [1, 5], fed([2, 2], np.int32)):
        S("CropAndResize", image=f32(2, 5, 6, 3), boxes=CROPS, box_ind=fed([0, 1, 1], np.int32), crop_size=_size, method=_method, extrapolation_value=2.0)
S("CropAndResize", image=u8(2, 5, 6, 3, dynamic=(0, 1, 2)), boxes=fed(np.zeros((0, 4)), np.float32, dynamic=(0,)), box_ind=fed([], np.int32, dynamic=(0,)), crop_size=[3, 3], label="none")

for _padding in ("SAME", "VALID"):
    for _batch in (False, True):
        S("MaxPoolWithArgmax", input=f32(2, 7, 8, 3), ksize=[1, 3, 2, 1], strides=[1, 2, 2, 1], padding=_padding, include_batch_in_index=_batch)
S("MaxPoolWithArgmax", input=f32(2, 7, 8, 3, dynamic=(0, 1, 2)), ksize=[1, 2, 2, 1], strides=[1, 1, 1, 1], padding="VALID", Targmax="int32")
for _dtype in (np.int32, np.int16, np.int8, np.float64):
    S("MaxPool", input=i32(1, 5, 5, 2, dtype=_dtype), ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID")

for _factor in (1.0, 0.3):
    S("FusedBatchNormV3", x=f32(2, 3, 4, 5), scale=const(5, low=0.5), offset=const(5), mean=const(5), variance=const(5, low=0.5, high=2), is_training=True, epsilon=1e-3, exponential_avg_factor=_factor, outputs=(0, 1, 2))

S("RGBToHSV", images=f32(2, 4, 5, 3, low=0, high=1))
S("RGBToHSV", images=fed([[0, 0, 0], [1, 1, 1], [0.5, 0.5, 0.2], [0.2, 0.5, 0.5], [0.5, 0.2, 0.5]]))
S("HSVToRGB", images=f32(2, 4, 5, 3, low=0, high=1))
for _delta in (0.3, -0.7, 1.0):
    S("AdjustHue", images=f32(2, 4, 5, 3, low=0, high=1), delta=np.float32(_delta))
for _scale in (0.4, 1.7):
    S("AdjustSaturation", images=f32(2, 4, 5, 3, low=0, high=1), scale=np.float32(_scale))
for _corners in (False, True):
    for _size in ([3, 7], [8, 2], [1, 1], fed([4, 5], np.int32)):
        S("ResizeArea", images=f32(2, 6, 5, 3), size=_size, align_corners=_corners)
S("ResizeArea", images=u8(1, 6, 5, 3, dynamic=(1, 2)), size=[3, 4])
for _padding in ("SAME", "VALID"):
    S("ExtractImagePatches", images=f32(2, 7, 8, 3, dynamic=(0, 1, 2)), ksizes=[1, 3, 2, 1], strides=[1, 2, 1, 1], rates=[1, 1, 2, 1], padding=_padding)
    S("ExtractImagePatches", images=i32(2, 7, 8, 3), ksizes=[1, 3, 2, 1], strides=[1, 2, 3, 1], rates=[1, 1, 1, 1], padding=_padding)
    S("ExtractVolumePatches", input=f32(1, 4, 5, 6, 2), ksizes=[1, 2, 3, 2, 1], strides=[1, 1, 2, 2, 1], padding=_padding)
    S("Dilation2D", input=f32(2, 7, 8, 3), filter=const(3, 2, 3), strides=[1, 2, 1, 1], rates=[1, 1, 2, 1], padding=_padding)
    S("Dilation2D", input=f64(1, 5, 5, 2, dynamic=(1, 2)), filter=f64(2, 2, 2), strides=[1, 1, 1, 1], rates=[1, 1, 1, 1], padding=_padding)
