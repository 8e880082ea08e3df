"""Slice, gather, scatter, sort and non-maximum suppression layers."""

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.formats.coreml.neural_network.ops import rule
from onnxbridge.formats.coreml.neural_network.ops.arithmetic import float32
from onnxbridge.formats.coreml.neural_network.ops.shape import to_int32


def _flags(values):
    return np.array([bool(v) for v in values]) if len(values) else None


@rule("slice")
def slice_(mil, x, *, startIndex=0, endIndex=0, stride=1, axis="CHANNEL_AXIS"):
    """The end is clamped to the axis; a negative one is relative to its size."""
    if endIndex == 0:
        raise Unsupported("an endIndex of 0, which gives an empty result")
    axis_index = {"CHANNEL_AXIS": -3, "HEIGHT_AXIS": -2, "WIDTH_AXIS": -1}[axis]
    size = mil.squeeze(x=mil.gather(x=mil.shape(x=x), indices=np.array([axis_index], np.int32), axis=0))
    end = mil.minimum(x=size, y=np.int32(endIndex)) if endIndex > 0 else mil.add(x=size, y=np.int32(endIndex))
    return mil.gather(x=x, indices=mil.range_1d(start=np.int32(startIndex), end=end, step=np.int32(int(stride))), axis=axis_index)


@rule("sliceStatic")
def slice_static(mil, x, *, beginIds, beginMasks=(), endIds, endMasks=(), strides=(), squeezeMasks=()):
    result = mil.slice_by_index(
        x=x, begin=np.array(beginIds), end=np.array(endIds), stride=np.array(strides) if len(strides) else None,
        begin_mask=_flags(beginMasks), end_mask=_flags(endMasks), squeeze_mask=_flags(squeezeMasks),
    )  # fmt: skip
    return mil.at_least_rank(x=result, rank=1)


@rule("sliceDynamic", limits="strides and masks must be constants of the file")
def slice_dynamic(mil, x, begin, end=None, *, beginMasks=(), endIds=(), endMasks=(), strides=(), squeezeMasks=()):
    result = mil.slice_by_index(
        x=x, begin=to_int32(mil, begin), end=np.array(endIds) if end is None else to_int32(mil, end),
        stride=np.array(strides) if len(strides) else None, begin_mask=_flags(beginMasks), end_mask=_flags(endMasks),
        squeeze_mask=_flags(squeezeMasks),
    )  # fmt: skip
    return mil.at_least_rank(x=result, rank=1)


@rule("gather")
def gather(mil, x, indices, *, axis=0):
    return mil.gather(x=x, indices=to_int32(mil, indices), axis=axis)


@rule("gatherND")
def gather_nd(mil, x, indices):
    return mil.at_least_rank(x=mil.gather_nd(x=x, indices=to_int32(mil, indices)), rank=1)


@rule("gatherAlongAxis")
def gather_along_axis(mil, x, indices, *, axis=0):
    return mil.gather_along_axis(x=x, indices=to_int32(mil, indices), axis=axis)


def _mode(mode):
    return mode.removeprefix("SCATTER_").lower()


@rule("scatter")
def scatter(mil, data, indices, updates, *, axis=0, mode="SCATTER_UPDATE"):
    return mil.scatter(data=data, indices=to_int32(mil, indices), updates=updates, axis=axis, mode=_mode(mode))


@rule("scatterND")
def scatter_nd(mil, data, indices, updates, *, mode="SCATTER_UPDATE"):
    return mil.scatter_nd(data=data, indices=to_int32(mil, indices), updates=updates, mode=_mode(mode))


@rule("scatterAlongAxis")
def scatter_along_axis(mil, data, indices, updates, *, axis=0, mode="SCATTER_UPDATE"):
    return mil.scatter_along_axis(data=data, indices=to_int32(mil, indices), updates=updates, axis=axis, mode=_mode(mode))


@rule("topK")
def top_k(mil, x, k=None, *, axis=0, K=0, useBottomK=False):
    count = int(K) if k is None else to_int32(mil, mil.squeeze(x=k))
    values, indices = mil.topk(x=x, k=count, axis=axis, ascending=useBottomK, outputs=2)
    return values, mil.cast(x=indices, dtype="fp32")


@rule("argSort")
def arg_sort(mil, x, *, axis=0, descending=False):
    return mil.cast(x=mil.argsort(x=x, axis=axis, ascending=not descending), dtype="fp32")


@rule("whereNonZero")
def where_non_zero(mil, x):
    return mil.cast(x=mil.non_zero(x=x), dtype="fp32")


@rule("oneHot")
def one_hot(mil, indices, size=None, *, oneHotVectorSize=0, axis=0, onValue=1.0, offValue=0.0):
    count = int(oneHotVectorSize) if size is None else to_int32(mil, mil.squeeze(x=size))
    return mil.one_hot(
        indices=to_int32(mil, indices), one_hot_vector_size=count, axis=axis, on_value=float32(onValue),
        off_value=float32(offValue),
    )  # fmt: skip


@rule("sliceBySize")
def slice_by_size(mil, x, begin, *, size=0, axis=0):
    starts = to_int32(mil, mil.reshape(x=begin, shape=np.array([1])))
    indices = mil.add(x=starts, y=np.arange(size, dtype=np.int32))
    return mil.gather(x=x, indices=indices, axis=axis)


@rule("NonMaximumSuppression")
def non_maximum_suppression(
    mil, boxes, scores, iou=None, least=None, most=None, *, iouThreshold=0.0, scoreThreshold=0.0, maxBoxes=0,
    perClassSuppression=False,
):  # fmt: skip
    """The thresholds and the number of boxes are constants of the file or blobs."""
    boxes, scores, indices, count = mil.non_maximum_suppression(
        boxes=boxes, scores=scores, iou_threshold=float32(iouThreshold) if iou is None else mil.squeeze(x=iou),
        score_threshold=float32(scoreThreshold) if least is None else mil.squeeze(x=least),
        max_boxes=int(maxBoxes) if most is None else to_int32(mil, mil.squeeze(x=most)),
        per_class_suppression=perClassSuppression, outputs=4,
    )  # fmt: skip
    return boxes, scores, mil.cast(x=indices, dtype="fp32"), mil.cast(x=count, dtype="fp32")
