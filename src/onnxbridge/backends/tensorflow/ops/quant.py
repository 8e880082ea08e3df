"""Quantization."""

from __future__ import annotations

import tensorflow as tf

from onnxbridge.backends.tensorflow import dtypes
from onnxbridge.backends.tensorflow.ops import rule
from onnxbridge.backends.tensorflow.ops.arithmetic import converted, quotient
from onnxbridge.backends.tensorflow.sizes import axis_of, is_fixed, rank, reshaped, size
from onnxbridge.errors import Unsupported

_BOUNDS = {
    "int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767), "uint16": (0, 65535),
    "int32": (-(1 << 31), (1 << 31) - 1), "int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1), "uint2": (0, 3),
}  # fmt: skip
_SMALL = frozenset({"int4", "uint4", "int2", "uint2"})


def _shaped(scale, x, axis, block_size):
    """A scale or zero point (per tensor, per axis or per block) shaped to broadcast with `x`."""
    if rank(scale) == 0 or (rank(scale) == 1 and scale.shape[0] == 1 and not block_size):
        return reshaped(scale, [])
    axis = axis_of(x, axis)
    if block_size:
        count = size(x, axis)
        known = tf.get_static_value(scale)
        if known is not None and is_fixed(count):
            return tf.constant(known.repeat(block_size, axis).take(range(count), axis), scale.dtype)
        return tf.gather(scale, tf.range(count) // block_size, axis=axis)
    return reshaped(scale, [-1 if d == axis else 1 for d in range(rank(x))])


def _to_int32(x):
    """Convert to int32; four-bit integers convert through int8 only."""
    if x.dtype.name in _SMALL:
        x = tf.cast(x, tf.int8 if x.dtype.name.startswith("int") else tf.uint8)
    return tf.cast(x, tf.int32)


@rule("QuantizeLinear")
def quantize_linear(x, y_scale, y_zero_point=None, *, axis=1, block_size=0, output_dtype=0, precision=0, saturate=1):
    dtype = y_zero_point.dtype if y_zero_point is not None else dtypes.attribute(output_dtype) if output_dtype else tf.uint8
    kind = dtypes.attribute(precision) if precision else y_scale.dtype
    if kind not in (tf.float32, tf.float64, tf.float16, tf.bfloat16):
        raise Unsupported(f"a scale of {kind.name}")
    scaled = quotient(tf.cast(x, kind), tf.cast(_shaped(y_scale, x, axis, block_size), kind))
    if dtype.name not in _BOUNDS:
        if not dtype.name.startswith("float8"):
            raise Unsupported(f"QuantizeLinear to {dtype.name}")
        return converted(scaled, dtype, saturate)
    wide = tf.cast(tf.round(scaled), tf.float64 if dtype == tf.int32 or kind == tf.float64 else tf.float32)
    if y_zero_point is not None:
        wide = wide + tf.cast(_to_int32(_shaped(y_zero_point, x, axis, block_size)), wide.dtype)
    bounded = tf.clip_by_value(wide, *(tf.constant(b, wide.dtype) for b in _BOUNDS[dtype.name]))
    if dtype.name in _SMALL:
        bounded = tf.cast(bounded, tf.int8 if dtype.name.startswith("int") else tf.uint8)
    return tf.cast(bounded, dtype)


@rule("DequantizeLinear")
def dequantize_linear(x, x_scale, x_zero_point=None, *, axis=1, block_size=0, output_dtype=0):
    dtype = dtypes.attribute(output_dtype) if output_dtype else x_scale.dtype
    scale = _shaped(x_scale, x, axis, block_size)
    wide = x
    if x.dtype.name in _BOUNDS:
        wide = _to_int32(x)
        if x_zero_point is not None:
            wide = wide - _to_int32(_shaped(x_zero_point, x, axis, block_size))
    return tf.cast(tf.cast(wide, scale.dtype) * scale, dtype)
