"""Quantization."""

from __future__ import annotations

import onnx_ir as ir
import tensorflow as tf

from onnxbridge.backends.tensorflow import dtypes
from onnxbridge.backends.tensorflow.ops import rule
from onnxbridge.backends.tensorflow.ops.arithmetic import converted, quotient
from onnxbridge.backends.tensorflow.sizes import axis_of, is_fixed, rank, reshaped, size
from onnxbridge.errors import Unsupported
from onnxbridge.hub.ir.values import dtype_name

D = ir.DataType

_BOUNDS = {
    D.INT8: (-128, 127), D.UINT8: (0, 255), D.INT16: (-32768, 32767), D.UINT16: (0, 65535),
    D.INT32: (-(1 << 31), (1 << 31) - 1), D.INT4: (-8, 7), D.UINT4: (0, 15), D.INT2: (-2, 1), D.UINT2: (0, 3),
}  # fmt: skip


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


@rule("QuantizeLinear")
def quantize_linear(x, y_scale, y_zero_point=None, *, axis=1, block_size=0, output_dtype=0, precision=0, saturate=1):
    to = dtypes.hub(y_zero_point) if y_zero_point is not None else D(output_dtype) if output_dtype else D.UINT8
    kind = D(precision) if precision else dtypes.hub(y_scale)
    if kind not in (D.FLOAT, D.DOUBLE, D.FLOAT16, D.BFLOAT16):
        raise Unsupported(f"a scale of {dtype_name(kind)}")
    within = dtypes.of(kind)
    scaled = quotient(tf.cast(x, within), tf.cast(_shaped(y_scale, x, axis, block_size), within))
    if to not in _BOUNDS:
        if y_zero_point is not None:
            scaled = scaled + tf.cast(_shaped(y_zero_point, x, axis, block_size), within)
        return converted(scaled, to, saturate)
    wide = tf.cast(tf.round(scaled), tf.float64 if to == D.INT32 or kind == D.DOUBLE else tf.float32)
    if y_zero_point is not None:
        wide = wide + tf.cast(_shaped(y_zero_point, x, axis, block_size), wide.dtype)
    return tf.cast(tf.clip_by_value(wide, *(tf.constant(b, wide.dtype) for b in _BOUNDS[to])), dtypes.of(to))


@rule("DequantizeLinear")
def dequantize_linear(x, x_scale, x_zero_point=None, *, axis=1, block_size=0, output_dtype=0):
    scale = _shaped(x_scale, x, axis, block_size)
    wide = x
    if dtypes.hub(x) in _BOUNDS:
        wide = tf.cast(x, tf.int32)
        if x_zero_point is not None:
            wide = wide - tf.cast(_shaped(x_zero_point, x, axis, block_size), tf.int32)
    elif x_zero_point is not None:
        wide = tf.cast(x, tf.float32) - tf.cast(_shaped(x_zero_point, x, axis, block_size), tf.float32)
    return converted(tf.cast(wide, scale.dtype) * scale, D(output_dtype) if output_dtype else dtypes.hub(x_scale))
