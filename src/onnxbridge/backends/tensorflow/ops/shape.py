"""Shape queries, reshaping, concatenation, slicing, tiling and padding."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import tensorflow as tf

from onnxbridge.backends.tensorflow import dtypes
from onnxbridge.backends.tensorflow.ops import channels_last, rule
from onnxbridge.backends.tensorflow.ops.arithmetic import quotient
from onnxbridge.backends.tensorflow.ops.conv import last, second
from onnxbridge.backends.tensorflow.padding import padded
from onnxbridge.backends.tensorflow.sizes import axis_of, is_fixed, known, packed, rank, reshaped, size, sizes
from onnxbridge.errors import Unsupported

_FAR = (1 << 31) - 1


@rule("Identity")
def identity(input):
    return tf.identity(input) if isinstance(input, tf.Tensor) else input


@rule("Constant")
def constant(
    *, value=None, value_float=None, value_floats=None, value_int=None, value_ints=None, value_string=None, value_strings=None
):
    for given, dtype in ((value_float, np.float32), (value_floats, np.float32), (value_int, np.int64), (value_ints, np.int64)):
        if given is not None:
            return tf.constant(np.array(given, dtype))
    given = value_string if value_string is not None else value_strings
    return tf.constant(given if given is not None else value)


@rule("Shape")
def shape(data, *, start=0, end=None):
    return tf.shape(data, tf.int64)[start:end]


@rule("Size")
def size_(data):
    return tf.size(data, tf.int64)


@rule("Reshape")
def reshape(data, shape, *, allowzero=0):
    target = known(shape)
    if allowzero:
        return tf.reshape(data, shape)
    if isinstance(target, tuple):
        return tf.reshape(data, packed([size(data, i) if n == 0 else n for i, n in enumerate(target)]))
    if shape.shape[0] is None:
        raise Unsupported("Reshape to a rank that is known only at run time")
    own = tf.shape(data, tf.int64)
    own = tf.concat([own, tf.zeros([max(shape.shape[0] - rank(data), 0)], tf.int64)], 0)[: shape.shape[0]]
    return tf.reshape(data, tf.where(shape == 0, own, shape))


@rule("Transpose")
def transpose(data, *, perm=None):
    return tf.transpose(data, perm)


@rule("Flatten")
def flatten(input, *, axis=1):
    axis = axis_of(input, axis)
    dims = sizes(input)

    def product(part):
        if is_fixed(*part):
            return int(np.prod(part, dtype=np.int64))
        return tf.reduce_prod(packed(part))

    return tf.reshape(input, packed([product(dims[:axis]), product(dims[axis:])]))


@rule("Squeeze")
def squeeze(data, axes=None):
    axes = known(axes)
    if axes is None:
        return tf.squeeze(data)
    if isinstance(axes, tuple):
        return tf.squeeze(data, list(axes)) if axes else tf.identity(data)
    mask = tf.reduce_all(tf.range(rank(data))[:, None] != tf.cast(axes, tf.int32) % rank(data), 1)
    return tf.reshape(data, tf.boolean_mask(tf.shape(data), mask))


@rule("Unsqueeze")
def unsqueeze(data, axes):
    target = known(axes)
    if isinstance(target, tuple):
        if min(target, default=0) < 0 <= max(target, default=0):
            total = rank(data) + len(target)
            target = [a % total for a in target]
        for axis in sorted(target, key=abs):  # outermost first, from either end
            data = tf.expand_dims(data, axis)
        return tf.identity(data)
    if axes.shape[0] is None:
        raise Unsupported("Unsqueeze of a number of axes that is known only at run time")
    total = rank(data) + axes.shape[0]
    new = tf.reduce_any(tf.range(total)[:, None] == tf.cast(axes, tf.int32) % total, 1)
    old = tf.cumsum(tf.cast(~new, tf.int32)) - 1
    own = tf.concat([tf.shape(data), [1]], 0)
    return tf.reshape(data, tf.where(new, 1, tf.gather(own, tf.maximum(old, 0))))


@rule("Expand")
def expand(input, shape):
    return tf.broadcast_to(input, tf.broadcast_dynamic_shape(tf.shape(input, tf.int64), shape))


@rule("Concat")
def concat(*inputs, axis):
    return tf.concat(inputs, axis)


@rule("Split")
def split(input, split=None, *, axis=0, num_outputs=None):
    if split is not None:
        parts = known(split)
        return tuple(tf.split(input, list(parts) if isinstance(parts, tuple) else parts, axis, num=split.shape[0]))
    total = size(input, axis)
    chunk = -(-total // num_outputs)
    lengths = [chunk] * (num_outputs - 1) + [total - chunk * (num_outputs - 1)]
    if is_fixed(*lengths):
        lengths = [max(min(chunk, total - i * chunk), 0) for i in range(num_outputs)]
    return tuple(tf.split(input, lengths if is_fixed(*lengths) else packed(lengths), axis))


@rule("Slice")
def slice_(data, starts, ends, axes=None, steps=None):
    where = known(axes)
    begin, end, step = known(starts), known(ends), known(steps)
    if isinstance(where, tf.Tensor) or any(isinstance(v, tf.Tensor) and v.shape[0] is None for v in (starts, ends)):
        return _slice_at(data, starts, ends, axes, steps)
    count = len(begin) if isinstance(begin, tuple) else starts.shape[0]
    where = range(count) if where is None else where
    cuts = [slice(None)] * rank(data)
    for i, axis in enumerate(where):
        by = 1 if step is None else step[i]
        parts = [_first(begin[i], by, size(data, axis)), end[i], by]
        cuts[axis % rank(data)] = slice(*(max(min(p, _FAR), -_FAR) if isinstance(p, int) else _near(p) for p in parts))
    return data[tuple(cuts)]


def _first(begin, step, length):
    """The start of a slice; backwards, it is at least the first element, which TensorFlow and Python would skip."""
    if isinstance(begin, int) and begin >= 0 or isinstance(step, int) and step > 0:
        return begin
    if is_fixed(begin, step, length):
        return max(begin, -length)
    begin = tf.cast(begin, tf.int64)
    return tf.where(step < 0, tf.maximum(begin, -tf.cast(length, tf.int64)), begin)


def _near(bound):
    return tf.cast(tf.clip_by_value(tf.cast(bound, tf.int64), -_FAR, _FAR), tf.int32)


def _slice_at(data, starts, ends, axes, steps):
    """A slice on axes that are known only at run time."""
    if axes is None:
        axes = tf.range(tf.size(starts))
    where = (tf.cast(axes, tf.int32) % rank(data))[:, None]
    steps = tf.ones_like(starts) if steps is None else steps
    starts = _first(starts, steps, tf.gather(tf.shape(data), where[:, 0]))
    full = (tf.zeros([rank(data)], tf.int32), tf.shape(data), tf.ones([rank(data)], tf.int32))
    parts = [tf.tensor_scatter_nd_update(f, where, _near(p)) for f, p in zip(full, (starts, ends, steps), strict=True)]
    return tf.strided_slice(data, *parts)


@rule("Tile")
def tile(input, repeats):
    if input.dtype == tf.uint16:
        return tf.cast(tf.tile(tf.cast(input, tf.int32), repeats), tf.uint16)
    return tf.tile(input, repeats)


@rule("ConstantOfShape")
def constant_of_shape(input, *, value=None):
    value = np.zeros(1, np.float32) if value is None else value
    dtype = dtypes.of(ir.DataType.from_numpy(value.dtype))
    return tf.broadcast_to(tf.reshape(tf.constant(value, dtype), []), input)


@rule("Range")
def range_(start, limit, delta):
    start, limit, delta = (reshaped(v, []) for v in (start, limit, delta))
    if start.dtype.is_floating or start.dtype == tf.int16:
        count = tf.math.ceil(quotient(tf.cast(limit, tf.float64) - tf.cast(start, tf.float64), tf.cast(delta, tf.float64)))
        steps = tf.range(tf.cast(tf.maximum(count, 0), tf.int64))
        wide = tf.cast(start, tf.float64) + tf.cast(steps, tf.float64) * tf.cast(delta, tf.float64)
        return tf.cast(wide, start.dtype)
    limit = tf.where((limit - start > 0) == (delta > 0), limit, start)
    return tf.range(start, limit, delta)


@rule("EyeLike")
def eye_like(input, *, dtype=None, k=0):
    rows, columns = sizes(input)
    hot = tf.range(rows)[:, None] + k == tf.range(columns)[None]
    return tf.cast(hot, input.dtype if dtype is None else dtypes.attribute(dtype))


@rule("Trilu")
def trilu(input, k=None, *, upper=1):
    rows, columns = tf.range(size(input, -2))[:, None], tf.range(size(input, -1))[None]
    shift = 0 if k is None else tf.cast(tf.reshape(k, []), tf.int32)
    mask = columns - rows >= shift if upper else columns - rows <= shift
    return tf.where(mask, input, tf.zeros_like(input))


@rule("DepthToSpace")
def depth_to_space(input, *, blocksize, mode="DCR"):
    n, c, h, w = sizes(input)
    b, rest = blocksize, c // blocksize**2
    if mode == "DCR":
        blocks = tf.transpose(tf.reshape(input, packed([n, b, b, rest, h, w])), [0, 3, 4, 1, 5, 2])
    else:
        blocks = tf.transpose(tf.reshape(input, packed([n, rest, b, b, h, w])), [0, 1, 4, 2, 5, 3])
    return tf.reshape(blocks, packed([n, rest, h * b, w * b]))


@rule("SpaceToDepth")
def space_to_depth(input, *, blocksize):
    n, c, h, w = sizes(input)
    b = blocksize
    blocks = tf.reshape(input, packed([n, c, h // b, b, w // b, b]))
    return tf.reshape(tf.transpose(blocks, [0, 3, 5, 1, 2, 4]), packed([n, c * b * b, h // b, w // b]))


@channels_last("DepthToSpace")
def depth_to_space_last(input, *, blocksize, mode="DCR"):
    return last(depth_to_space(second(input), blocksize=blocksize, mode=mode))


@channels_last("SpaceToDepth")
def space_to_depth_last(input, *, blocksize):
    return last(space_to_depth(second(input), blocksize=blocksize))


@rule("Pad")
def pad(data, pads, constant_value=None, axes=None, *, mode="constant"):
    where = known(axes)
    given = known(pads)
    if isinstance(where, tf.Tensor):
        raise Unsupported("Pad on axes that are known only at run time", "make axes a constant")
    where = [a % rank(data) for a in (range(rank(data)) if where is None else where)]
    count = len(where)
    before, after = [0] * rank(data), [0] * rank(data)
    for i, axis in enumerate(where):
        ends = given[i], given[count + i]
        before[axis], after[axis] = ends if isinstance(given, tuple) else (tf.cast(e, tf.int32) for e in ends)
    if mode == "constant":
        value = tf.zeros([], data.dtype) if constant_value is None else tf.reshape(constant_value, [])
        if data.dtype == tf.bool:
            return tf.cast(padded(tf.cast(data, tf.int32), before, after, tf.cast(value, tf.int32), start=0), tf.bool)
        return tf.identity(padded(data, before, after, value, start=0))
    for axis in where:
        n = size(data, axis)
        index = tf.range(-before[axis], n + after[axis])
        if mode == "edge":
            index = tf.clip_by_value(index, 0, n - 1)
        elif mode == "wrap":
            index = index % n
        else:
            period = tf.maximum(2 * (n - 1), 1)
            index = index % period
            index = tf.where(index >= n, period - index, index)
        data = tf.gather(data, index, axis=axis)
    return data


@rule("CenterCropPad")
def center_crop_pad(input_data, shape, *, axes=None):
    before, after = [0] * rank(input_data), [0] * rank(input_data)
    for i, axis in enumerate(range(rank(input_data)) if axes is None else axes):
        missing = tf.cast(shape[i], tf.int32) - tf.shape(input_data)[axis]
        before[axis] = tf.where(missing > 0, missing // 2, -((-missing) // 2))
        after[axis] = missing - before[axis]
    return padded(input_data, before, after, start=0)


@rule("ReverseSequence")
def reverse_sequence(input, sequence_lens, *, batch_axis=1, time_axis=0):
    return tf.reverse_sequence(input, sequence_lens, seq_axis=time_axis, batch_axis=batch_axis)
