"""Quantization: one scale per tensor at first, later one per channel, later one per block.

Unsupported cases are decomposed into division, rounding to even, addition of the zero point and clipping, and the inverse.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.ir.values import dtype_name
from onnxbridge.hub.opset.adapters import down
from onnxbridge.hub.opset.known_values import dtype_of, fixed_shape, rank_of

_SCALAR = np.zeros(0, np.int64)
_LIMITS = {"INT8": (-128, 127), "UINT8": (0, 255), "INT16": (-32768, 32767), "UINT16": (0, 65535)}


def _broadcastable(op, scale, x, axis, block):
    """A scale or zero point in a shape that broadcasts with the data."""
    if scale is None or scale.shape is None or not len(scale.shape) or all(d == 1 for d in scale.shape):
        return scale if scale is None or scale.shape is None or not len(scale.shape) else op.Reshape(scale, _SCALAR)
    axis %= rank_of(x)
    if not block:
        return op.Reshape(scale, np.array([-1 if i == axis else 1 for i in range(rank_of(x))], np.int64))
    shape, length = fixed_shape(scale), fixed_shape(x)[axis]
    return scale if shape[axis] == length else op.Gather(scale, np.arange(length) // block, axis=axis)


def _quantized(op, x, scale, zero_point, axis, block, dtype):
    if dtype.name not in _LIMITS:
        raise Unsupported(f"there is no decomposition for {dtype_name(dtype)}")
    wide = ir.DataType.FLOAT
    scale = op.Cast(_broadcastable(op, scale, x, axis, block), to=wide)
    y = op.Round(op.Div(op.Cast(x, to=wide), scale))
    if zero_point is not None:
        y = op.Add(y, op.Cast(_broadcastable(op, zero_point, x, axis, block), to=wide))
    low, high = (op.constant(v, dtype=wide) for v in _LIMITS[dtype.name])
    return op.Cast(op.Min(op.Max(y, low), high), to=dtype)


def _dequantized(op, x, scale, zero_point, axis, block):
    if dtype_of(x).name not in (*_LIMITS, "INT32"):
        raise Unsupported(f"there is no decomposition for {dtype_of(x).name.lower()}")
    if zero_point is not None:
        x = op.Sub(*(op.Cast(v, to=ir.DataType.INT32) for v in (x, _broadcastable(op, zero_point, x, axis, block))))
    scales = _broadcastable(op, scale, x, axis, block)
    return op.Mul(op.Cast(x, to=dtype_of(scale)), scales)


@down("QuantizeLinear", to=20)
def quantize_linear(op, x, y_scale, y_zero_point=None, *, axis=1, block_size=0, output_dtype=0, saturate=1):
    """Without a zero point the output dtype was uint8."""
    dtype = dtype_of(y_zero_point) if y_zero_point is not None else ir.DataType(output_dtype or ir.DataType.UINT8)
    if block_size or dtype.name in ("INT16", "UINT16"):
        return _quantized(op, x, y_scale, y_zero_point, axis, block_size, dtype)
    if output_dtype and y_zero_point is None and dtype != ir.DataType.UINT8:
        if y_scale.shape is None or not all(isinstance(d, int) for d in y_scale.shape):
            raise Unsupported("opset 21 added output_dtype", "give a zero point of that dtype")
        y_zero_point = op.constant(np.zeros(fixed_shape(y_scale)), dtype=dtype)
    return op.QuantizeLinear(x, y_scale, y_zero_point, axis=axis, saturate=saturate)


@down("DequantizeLinear", to=20)
def dequantize_linear(op, x, x_scale, x_zero_point=None, *, axis=1, block_size=0):
    if block_size or dtype_of(x).name in ("INT16", "UINT16"):
        return _dequantized(op, x, x_scale, x_zero_point, axis, block_size)
    return op.DequantizeLinear(x, x_scale, x_zero_point, axis=axis)


@down("QuantizeLinear", to=18)
def quantize_single(op, x, y_scale, y_zero_point=None, *, axis=1, saturate=1):
    """Before opset 19 scales were float32; half precision is computed in float32."""
    if dtype_of(y_scale) != ir.DataType.FLOAT:
        x, y_scale = (op.Cast(v, to=ir.DataType.FLOAT) for v in (x, y_scale))
    return op.QuantizeLinear(x, y_scale, y_zero_point, axis=axis)


@down("DequantizeLinear", to=18)
def dequantize_single(op, x, x_scale, x_zero_point=None, *, axis=1):
    dtype = dtype_of(x_scale)
    if dtype == ir.DataType.FLOAT:
        return op.DequantizeLinear(x, x_scale, x_zero_point, axis=axis)
    return op.Cast(op.DequantizeLinear(x, op.Cast(x_scale, to=ir.DataType.FLOAT), x_zero_point, axis=axis), to=dtype)


def _is_one(scale):
    return scale.shape is not None and all(d == 1 for d in scale.shape)


@down("QuantizeLinear", to=12)
def quantize_by_channel(op, x, y_scale, y_zero_point=None, *, axis=1):
    dtype = ir.DataType.UINT8 if y_zero_point is None else dtype_of(y_zero_point)
    if not _is_one(y_scale):
        return _quantized(op, x, y_scale, y_zero_point, axis, 0, dtype)
    return op.QuantizeLinear(x, *(_broadcastable(op, v, x, axis, 0) for v in (y_scale, y_zero_point)))


@down("DequantizeLinear", to=12)
def dequantize_by_channel(op, x, x_scale, x_zero_point=None, *, axis=1):
    if not _is_one(x_scale):
        return _dequantized(op, x, x_scale, x_zero_point, axis, 0)
    return op.DequantizeLinear(x, *(_broadcastable(op, v, x, axis, 0) for v in (x_scale, x_zero_point)))


@down("MatMulInteger", to=9)
def mat_mul_integer(op, A, B, a_zero_point=None, b_zero_point=None):
    """Before opset 9 MatMul did not support integers; float64 is exact for sums of products of 8-bit integers."""
    if any(v is not None and len(v.shape) > 1 for v in (a_zero_point, b_zero_point)):
        raise Unsupported("added in opset 10, and there is no decomposition for zero points of rank above 1")

    def shifted(values, zero_point, shape):
        values = op.Cast(values, to=ir.DataType.DOUBLE)
        if zero_point is None:
            return values
        point = op.Cast(zero_point, to=ir.DataType.DOUBLE)
        return op.Sub(values, op.Reshape(point, np.array(shape, np.int64)) if rank_of(zero_point) else point)

    product = op.MatMul(shifted(A, a_zero_point, [-1, 1]), shifted(B, b_zero_point, [-1]))
    return op.Cast(product, to=ir.DataType.INT32)
