"""Gather, scatter, slices, segments and selections."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow.ops import counting, rearrange
from onnxbridge.frontends.tensorflow.ops import indexing as tf
from onnxbridge.frontends.tensorflow.ops import rule as tensorflow_rules
from onnxbridge.frontends.tensorflow.sizes import int64
from onnxbridge.frontends.tflite.ops import rule
from onnxbridge.hub.ir.values import cast, rank
from onnxbridge.rules import Float


@rule("GATHER", kind="move")
def gather(op, params, indices, *, axis=0, batch_dims=0):
    return tf.gather_v2(op, params, indices, axis, batch_dims=batch_dims)


@rule("GATHER_ND", kind="move")
def gather_nd(op, params, indices):
    return tf.gather_nd(op, params, indices)


@rule("EMBEDDING_LOOKUP")
def embedding_lookup(op, lookup, value):
    return op.Gather(value, lookup, axis=0)


@rule("SCATTER_ND")
def scatter_nd(op, indices, updates, shape):
    return tf.scatter_nd(op, indices, updates, shape)


@rule("SLICE", kind="move")
def slice_(op, input, begin, size):
    return tf.slice_(op, input, begin, size)


@rule("STRIDED_SLICE", kind="move")
def strided_slice(
    op, input, begin, end, strides, *, begin_mask=0, end_mask=0, ellipsis_mask=0, new_axis_mask=0, shrink_axis_mask=0,
    offset=False,
):  # fmt: skip
    """With `offset`, `end` is relative to `begin`."""
    if offset:
        end = op.Add(begin, end)
    return tf.strided_slice(
        op, input, begin, end, strides, begin_mask=begin_mask, end_mask=end_mask, ellipsis_mask=ellipsis_mask,
        new_axis_mask=new_axis_mask, shrink_axis_mask=shrink_axis_mask,
    )  # fmt: skip


@rule("DYNAMIC_UPDATE_SLICE", kind="move")
def dynamic_update_slice(op, operand, update, start_indices):
    return tf.dynamic_update_slice(op, operand, update, start_indices)


@rule("ONE_HOT")
def one_hot(op, indices, depth, on_value, off_value, *, axis=0):
    return tf.one_hot(op, indices, depth, on_value, off_value, axis=axis)


@rule("REVERSE_V2", kind="move")
def reverse_v2(op, tensor, axis):
    return rearrange.reverse_v2(op, tensor, axis)


@rule("REVERSE_SEQUENCE", kind="move")
def reverse_sequence(op, input, seq_lengths, *, seq_dim=0, batch_dim=0):
    return rearrange.reverse_sequence(op, input, seq_lengths, seq_dim=seq_dim, batch_dim=batch_dim)


@rule("WHERE")
def where(op, condition):
    return tf.where(op, condition)


def _segments(name, tf_name):
    segments_of = tensorflow_rules[tf_name].lower

    @rule(name)
    def segments(op, input, segment_ids, num_segments):
        return segments_of(op, input, segment_ids, num_segments)


for _kind in ("Sum", "Prod", "Max", "Min"):
    _segments(f"UNSORTED_SEGMENT_{_kind.upper()}", f"UnsortedSegment{_kind}")


@rule("SEGMENT_SUM")
def segment_sum(op, data, segment_ids):
    return tensorflow_rules["SegmentSum"].lower(op, data, segment_ids)


@rule("BUCKETIZE")
def bucketize(op, input, *, boundaries):
    return counting.bucketize(op, input, boundaries=boundaries)


@rule("UNIQUE")
def unique(op, input, *, idx_out_type=ir.DataType.INT32):
    """In the order of the first occurrences. Runtimes have kernels for int64 among the integers."""
    values, _, inverse, _ = op.Unique(int64(op, input) if input.dtype.is_integer() else input, sorted=0, outputs=4)
    return cast(op, values, input.dtype), inverse if idx_out_type == ir.DataType.INT64 else op.Cast(inverse, to=idx_out_type)


@rule("SPARSE_TO_DENSE")
def sparse_to_dense(op, indices, output_shape, values, default_value):
    """The indices are a scalar, a vector for one dimension, or [n, dimensions]."""
    shape = op.Reshape(int64(op, output_shape), [-1])
    indices = int64(op, indices)
    if rank(indices) < 2:
        indices = op.Reshape(indices, [-1, 1])
    count = op.Shape(indices, end=1)
    values = op.Expand(op.Reshape(values, [1]) if rank(values) == 0 else values, count)
    return op.ScatterND(op.Expand(op.Reshape(default_value, []), shape), indices, values)


@rule("NON_MAX_SUPPRESSION_V4", limits="hard suppression")
def non_max_suppression_v4(op, boxes, scores, max_output_size, iou_threshold, score_threshold):
    chosen, _, count = _suppressed(op, boxes, scores, max_output_size, iou_threshold, score_threshold)
    return chosen, count


@rule("NON_MAX_SUPPRESSION_V5", limits="hard suppression")
def non_max_suppression_v5(op, boxes, scores, max_output_size, iou_threshold, score_threshold, soft_nms_sigma: Float):
    if soft_nms_sigma:
        raise Unsupported(f"soft suppression (soft_nms_sigma={soft_nms_sigma})")
    return _suppressed(op, boxes, scores, max_output_size, iou_threshold, score_threshold)


def _suppressed(op, boxes, scores, max_output_size, iou_threshold, score_threshold):
    """Indices and scores of the chosen boxes, padded with zeros up to `max_output_size`, and their number."""
    limit = op.Reshape(int64(op, max_output_size), [1])
    thresholds = [op.Reshape(t, [1]) for t in (iou_threshold, score_threshold)]
    chosen = op.NonMaxSuppression(op.Unsqueeze(boxes, [0]), op.Unsqueeze(scores, [0, 1]), limit, *thresholds)
    indices = op.Gather(chosen, np.array(2), axis=1)
    count = op.Shape(indices)
    pads = op.Concat(np.zeros(1, np.int64), op.Sub(limit, count), axis=0)
    found = op.Pad(op.Gather(scores, indices), pads)
    return op.Cast(op.Pad(indices, pads), to=ir.DataType.INT32), found, op.Cast(op.Reshape(count, []), to=ir.DataType.INT32)
