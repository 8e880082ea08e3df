"""Reshaping, concatenation, splitting, padding, and sizes as values."""

import numpy as np
import onnx_ir as ir

from onnxbridge.frontends.tensorflow.ops import rearrange
from onnxbridge.frontends.tensorflow.ops import shape as tf
from onnxbridge.frontends.tensorflow.sizes import int64
from onnxbridge.frontends.tflite.ops import rule, windows
from onnxbridge.hub.ir import fold
from onnxbridge.hub.ir.values import rank, static_shape
from onnxbridge.rules import Int, Ints


@rule("RESHAPE", kind="move")
def reshape(op, input, shape=None, *, new_shape=None):
    known = fold.known_sizes(shape) if shape is not None else list(new_shape or ())
    if known is None or None in known:
        return tf.reshape(op, input, shape)
    if known == [0] and new_shape in (None, (), (0,)):  # how old converters write a scalar
        known = []
    return op.reshape(input, known)


@rule("SQUEEZE", kind="move")
def squeeze(op, input, *, squeeze_dims=()):
    return tf.squeeze(op, input, squeeze_dims=squeeze_dims or ())


@rule("EXPAND_DIMS", kind="move")
def expand_dims(op, input, axis: Int):
    return op.Unsqueeze(input, [axis])


@rule("TRANSPOSE", kind="move")
def transpose(op, input, perm: Ints):
    return op.Transpose(input, perm=[p % len(perm) for p in perm])


@rule("CONCATENATION", kind="move")
def concatenation(op, *values, axis=0):
    return op.Concat(*values, axis=axis) if len(values) > 1 else values[0]


@rule("PACK", kind="move")
def pack(op, *values, axis=0):
    return tf.pack(op, values, axis=axis)


@rule("UNPACK", kind="move")
def unpack(op, input, *, num, axis=0):
    return tf.unpack(op, input, num=num, axis=axis)


@rule("SPLIT", kind="move")
def split(op, split_dim: Int, value, *, num_splits=0):
    return tf.split(op, split_dim, value, num_split=num_splits)


@rule("SPLIT_V", kind="move")
def split_v(op, value, size_splits, split_dim: Int, *, num_splits=0):
    return tf.split_v(op, value, size_splits, split_dim, num_split=static_shape(size_splits)[0])


@rule("TILE", kind="move")
def tile(op, input, multiples):
    return tf.tile(op, input, multiples)


@rule("SHAPE")
def shape(op, input, *, out_type=ir.DataType.INT32):
    return tf.shape(op, input, out_type=out_type)


@rule("RANK")
def rank_(op, input):
    return op.constant(np.array(rank(input), np.int32))


@rule("FILL", kind="move")
def fill(op, dims, value):
    return op.Expand(value, int64(op, dims))


@rule("BROADCAST_TO", kind="move")
def broadcast_to(op, input, shape):
    return op.Expand(input, int64(op, shape))


@rule("BROADCAST_ARGS")
def broadcast_args(op, shape1, shape2):
    return tf.broadcast_args(op, shape1, shape2)


@rule("PAD")
def pad(op, input, paddings):
    return rearrange.pad(op, input, paddings)


@rule("PADV2", kind="move")
def padv2(op, input, paddings, constant_values):
    return rearrange.pad_v2(op, input, paddings, op.Reshape(constant_values, []))


@rule("MIRROR_PAD", kind="move")
def mirror_pad(op, input, paddings, *, mode="REFLECT"):
    return rearrange.mirror_pad(op, input, paddings, mode=mode)


@rule("SPACE_TO_DEPTH")
def space_to_depth(op, input, *, block_size=0):
    return rearrange.space_to_depth(op, input, block_size=block_size)


@rule("DEPTH_TO_SPACE")
def depth_to_space(op, input, *, block_size=0):
    return rearrange.depth_to_space(op, input, block_size=block_size)


@rule("SPACE_TO_BATCH_ND")
def space_to_batch_nd(op, input, block_shape, paddings):
    return rearrange.space_to_batch_nd(op, input, block_shape, paddings)


@rule("BATCH_TO_SPACE_ND", kind="move")
def batch_to_space_nd(op, input, block_shape, crops):
    return rearrange.batch_to_space_nd(op, input, block_shape, crops)


@rule("RANGE")
def range_(op, start, limit, delta):
    return op.Range(*(op.Reshape(v, []) for v in (start, limit, delta)))


@rule("DENSIFY", kind="move")
def densify(op, input):
    """A sparse constant, which is made dense when it is read."""
    return input


@rule("DILATE", kind="bits")
def dilate(op, input, dilations: Ints, padding_value):
    return windows.dilated(op, input, dilations, padding_value)
