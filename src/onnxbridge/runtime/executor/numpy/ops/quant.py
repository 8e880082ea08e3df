"""Quantization, and products of quantized tensors.

Integer products are summed in floating point wide enough to be exact, because that is what has a fast matrix product.
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

from onnxbridge.runtime.executor.numpy.cast import cast
from onnxbridge.runtime.executor.numpy.dtypes import dtype_of, is_float, wide
from onnxbridge.runtime.executor.numpy.kernels import conv as kernels
from onnxbridge.runtime.executor.numpy.ops import rule
from onnxbridge.runtime.executor.numpy.ops.linalg import matmul_claimed
from onnxbridge.runtime.executor.numpy.padding import claim_output, window


def _spread(v, x, axis, block_size):
    """A scale or zero point in a shape that broadcasts to x: a scalar, one per index of an axis, or one per block."""
    if v is None or v.size == 1 and v.ndim <= 1:
        return None if v is None else v.reshape(())
    if block_size:
        index = np.arange(x.shape[axis]) // block_size
        return np.take(v, index, axis)
    if v.ndim == 1:
        return v.reshape([-1 if d == axis % x.ndim else 1 for d in range(x.ndim)])
    return v


def _number(v):
    """Elements of ml_dtypes types as float32 or int32."""
    return v.astype(np.float32 if is_float(v.dtype) else np.int32) if v.dtype.kind == "V" else v


def _saturated(y, dtype):
    """Integers in floating point, converted to the nearest value of an integer type."""
    info = ml_dtypes.iinfo(dtype) if dtype.kind == "V" else np.iinfo(dtype)
    y = np.clip(y, float(info.min), float(info.max))
    return y.astype(np.int8 if info.min < 0 else np.uint8).astype(dtype) if dtype.kind == "V" else y.astype(dtype)


@rule("QuantizeLinear")
def quantize_linear(x, y_scale, y_zero_point=None, *, axis=1, block_size=0, output_dtype=0, precision=0, saturate=1):
    requested = dtype_of(output_dtype) if output_dtype else None
    to = requested or (np.dtype(np.uint8) if y_zero_point is None else y_zero_point.dtype)
    scale, zero = _spread(y_scale, x, axis, block_size), _spread(y_zero_point, x, axis, block_size)
    within = dtype_of(precision) if precision else y_scale.dtype
    if not is_float(within) or within.name.startswith("float8"):
        within = np.dtype(np.float32)
    ratio = wide(np.asarray(x.astype(within) / scale.astype(within)))
    if is_float(to):
        return cast(ratio if zero is None else ratio + _number(zero).astype(ratio.dtype), to, saturate=bool(saturate))
    rounded = np.rint(ratio)
    return _saturated(rounded if zero is None else rounded + _number(zero).astype(rounded.dtype), to)


@rule("DequantizeLinear")
def dequantize_linear(x, x_scale, x_zero_point=None, *, axis=1, block_size=0, output_dtype=0):
    to = dtype_of(output_dtype) if output_dtype else x_scale.dtype
    scale, zero = _spread(x_scale, x, axis, block_size), _spread(x_zero_point, x, axis, block_size)
    within = np.float64 if to == np.float64 else np.float32
    y = _number(x)
    if zero is not None:
        exact = np.float32 if is_float(x.dtype) else np.int64
        y = y.astype(exact) - _number(zero).astype(exact)
    return (y.astype(within) * scale.astype(within)).astype(to)


@rule("DynamicQuantizeLinear")
def dynamic_quantize_linear(x):
    """The range is that of the elements that are not NaN; NaN becomes 0."""
    low, high = np.fmin.reduce(x, axis=None, initial=0), np.fmax.reduce(x, axis=None, initial=0)
    scale = np.asarray((high - low) / x.dtype.type(255), x.dtype)
    if scale == 0:
        scale = np.ones((), x.dtype)  # all zeros: any scale will do
    zero = np.nan_to_num(np.rint(np.clip(-low / scale, 0, 255)))
    y = _saturated(np.nan_to_num(np.rint(x / scale) + zero), np.dtype(np.uint8))
    return y, scale, np.asarray(zero).astype(np.uint8)


def _exact(terms):
    """The float type in which a sum of so many products of 8-bit numbers is exact."""
    return np.float32 if terms * 255 * 255 < 1 << 24 else np.float64


def _centred(x, zero, dtype):
    return x.astype(dtype) if zero is None else x.astype(dtype) - zero.astype(dtype)


def _by_row(v):
    """A value for each row of the left factor."""
    return v.reshape(-1, 1) if v is not None and v.ndim == 1 and v.size > 1 else v


def _integer_matmul(a, a_zero, b, b_zero):
    exact = _exact(a.shape[-1])
    return matmul_claimed(_centred(a, _by_row(a_zero), exact), _centred(b, b_zero, exact))


def _requantized(total, factor, zero):
    if is_float(zero.dtype):
        return cast(total.astype(factor.dtype) * factor + _number(zero).astype(factor.dtype), zero.dtype)
    return _saturated(np.rint(total.astype(factor.dtype) * factor) + zero.astype(factor.dtype), zero.dtype)


@rule("MatMulInteger")
def matmul_integer(A, B, a_zero_point=None, b_zero_point=None):
    return _integer_matmul(A, a_zero_point, B, b_zero_point).astype(np.int32)


@rule("QLinearMatMul")
def qlinear_matmul(a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point):
    total = _integer_matmul(a, a_zero_point, b, b_zero_point)
    factor = wide(_by_row(a_scale)) * wide(b_scale) / wide(_by_row(y_scale))
    return _requantized(total, np.asarray(factor), _by_row(y_zero_point))


def _integer_conv(x, x_zero, w, w_zero, group, kernel_shape, strides, pads, dilations, auto_pad):
    exact = _exact(math.prod(w.shape[1:]))
    if w_zero is not None and w_zero.size > 1:
        w_zero = w_zero.reshape(-1, *(1,) * (w.ndim - 1))
    elif w_zero is not None:
        w_zero = w_zero.reshape(())
    data = _centred(x, None if x_zero is None else x_zero.reshape(()), exact)
    moves = window(data, kernel_shape or w.shape[2:], strides, pads, dilations, auto_pad)
    claim_output(data, w.shape[0], moves)
    return kernels.conv(data, _centred(w, w_zero, exact), groups=group, **moves.moves)


@rule("ConvInteger")
def conv_integer(
    x,
    w,
    x_zero_point=None,
    w_zero_point=None,
    *,
    auto_pad="NOTSET",
    dilations=None,
    group=1,
    kernel_shape=None,
    pads=None,
    strides=None,
):
    total = _integer_conv(x, x_zero_point, w, w_zero_point, group, kernel_shape, strides, pads, dilations, auto_pad)
    return total.astype(np.int32)


@rule("QLinearConv")
def qlinear_conv(
    x,
    x_scale,
    x_zero_point,
    w,
    w_scale,
    w_zero_point,
    y_scale,
    y_zero_point,
    B=None,
    *,
    auto_pad="NOTSET",
    dilations=None,
    group=1,
    kernel_shape=None,
    pads=None,
    strides=None,
):
    total = _integer_conv(x, x_zero_point, w, w_zero_point, group, kernel_shape, strides, pads, dilations, auto_pad)
    per_channel = (-1, *(1,) * (x.ndim - 2))
    if B is not None:
        total = total.astype(np.float64) + B.reshape(per_channel)
    factor = x_scale.reshape(()) * w_scale / y_scale.reshape(())
    if factor.size > 1:
        factor = factor.reshape(per_channel)
    return _requantized(total, np.asarray(factor), y_zero_point.reshape(()))
