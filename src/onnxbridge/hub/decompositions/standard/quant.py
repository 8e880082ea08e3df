"""Quantized operators in integer arithmetic, and integer convolution in float arithmetic whose sums are exact."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.standard import decompose
from onnxbridge.hub.decompositions.standard.dynamic_axis import arange, broadcast_along
from onnxbridge.hub.ir.values import cast, rank, static_shape
from onnxbridge.hub.opset.known_values import known

_FLOAT, _INT32 = ir.DataType.FLOAT, ir.DataType.INT32
_LIMITS = {
    "INT2": (-2, 1), "UINT2": (0, 3), "INT4": (-8, 7), "UINT4": (0, 15), "INT8": (-128, 127), "UINT8": (0, 255),
    "INT16": (-32768, 32767), "UINT16": (0, 65535),
}  # fmt: skip


def _broadcast_parameter(op, scale, x, axis, block):
    """Reshapes a per-tensor, per-axis or blockwise scale or zero point so that it broadcasts against x."""
    if not rank(scale):
        return scale
    if not block:
        return broadcast_along(op, scale, axis % rank(x), rank(x)) if rank(scale) == 1 else scale
    axis %= rank(x)
    return op.Gather(scale, op.Div(arange(op, op.size(x, axis)), np.int64(block)), axis=axis)


@decompose("QuantizeLinear")
def quantize_linear(
    op, x, y_scale, y_zero_point=None, *, axis=1, block_size=0, output_dtype=0, precision=0, saturate=1,
):  # fmt: skip
    dtype = y_zero_point.dtype if y_zero_point is not None else ir.DataType(output_dtype or ir.DataType.UINT8)
    inner = ir.DataType(precision) if precision else y_scale.dtype
    y = op.Div(cast(op, x, inner), cast(op, _broadcast_parameter(op, y_scale, x, axis, block_size), inner))
    if dtype.name not in _LIMITS:
        if _is_used(y_zero_point):
            y = op.Add(y, cast(op, _broadcast_parameter(op, y_zero_point, x, axis, block_size), inner))
        return op.Cast(y, to=dtype, saturate=saturate)
    y = cast(op, op.Round(y), _FLOAT)
    if y_zero_point is not None:
        y = op.Add(y, op.Cast(_broadcast_parameter(op, y_zero_point, x, axis, block_size), to=_FLOAT))
    return op.Cast(op.Clip(y, *map(float, _LIMITS[dtype.name])), to=dtype)


@decompose("DequantizeLinear")
def dequantize_linear(op, x, x_scale, x_zero_point=None, *, axis=1, block_size=0, output_dtype=0):
    scale = _broadcast_parameter(op, x_scale, x, axis, block_size)
    quantized_dtype = x.dtype.name in (*_LIMITS, "INT32")
    if x_zero_point is not None and quantized_dtype:
        x = op.Sub(cast(op, x, _INT32), cast(op, _broadcast_parameter(op, x_zero_point, x, axis, block_size), _INT32))
    elif _is_used(x_zero_point):
        x = op.Sub(cast(op, x, _FLOAT), cast(op, _broadcast_parameter(op, x_zero_point, x, axis, block_size), _FLOAT))
    y = op.Mul(op.Cast(x, to=x_scale.dtype), scale)
    return cast(op, y, ir.DataType(output_dtype)) if output_dtype else y


def _is_used(zero_point):
    """Whether a zero point of 8-bit floating point, which is zero in nearly all models, may be another number."""
    values = None if zero_point is None else known(zero_point)
    return zero_point is not None and (values is None or bool(np.any(np.asarray(values) != 0)))


@decompose("DynamicQuantizeLinear")
def dynamic_quantize_linear(op, x):
    """Where all elements are zero, the scale is 1, as ONNX Runtime has it; the standard's function divides by zero."""
    low, high = op.ReduceMin(x, keepdims=0), op.ReduceMax(x, keepdims=0)
    low.shape = high.shape = ir.Shape([])  # as shape inference cannot know it of an unknown rank
    low, high = op.Min(low, 0.0), op.Max(high, 0.0)
    scale = op.Div(op.Sub(high, low), 255.0)
    scale = op.Where(op.Equal(scale, 0.0), 1.0, scale)
    zero = op.Cast(op.Round(op.Clip(op.Div(op.Neg(low), scale), 0.0, 255.0)), to=ir.DataType.UINT8)
    return op.QuantizeLinear(x, scale, zero), scale, zero


def _subtract_zero_point(op, values, zero_point, point, dtype):
    """values - zero_point in a dtype that represents them exactly; `point` reshapes the zero point so that it broadcasts."""
    values = op.Cast(values, to=dtype)
    return values if zero_point is None else op.Sub(values, op.Cast(point(zero_point), to=dtype))


@decompose("MatMulInteger")
def mat_mul_integer(op, A, B, a_zero_point=None, b_zero_point=None):
    """Zero points are per row of A and per column of B."""

    def rows(v):
        return op.Unsqueeze(v, [-1]) if rank(v) == 1 and rank(A) > 1 and v.shape[0] != 1 else v

    return op.MatMul(
        _subtract_zero_point(op, A, a_zero_point, rows, _INT32), _subtract_zero_point(op, B, b_zero_point, lambda v: v, _INT32)
    )


_EXACT_LIMIT = 1 << 24


@decompose("ConvInteger")
def conv_integer(
    op, x, w, x_zero_point=None, w_zero_point=None, *, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, pads=None,
    strides=None,
):  # fmt: skip
    """Convolves in float32, which is exact for sums below 2**24.

    If larger sums are possible, the weights are split into high and low bits and the channels into slices.
    """
    names = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    attrs = dict(zip(names, (auto_pad, dilations, group, kernel_shape, pads, strides), strict=True))
    channels, *kernel = static_shape(w, range(1, rank(w)))
    taps = int(np.prod(kernel, dtype=np.int64))
    data = _subtract_zero_point(op, x, x_zero_point, lambda v: v, _FLOAT)
    weights = _subtract_zero_point(
        op, w, w_zero_point, lambda v: broadcast_along(op, v, 0, rank(w)) if rank(v) == 1 and v.shape[0] != 1 else v, _FLOAT
    )
    if channels * taps * 255 * 255 < _EXACT_LIMIT:
        return op.Cast(op.Conv(data, weights, **attrs), to=_INT32)
    high = op.Floor(op.Mul(weights, 1 / 16))
    low = op.Sub(weights, op.Mul(high, 16.0))
    each = (_EXACT_LIMIT - 1) // (255 * 16 * taps)
    if group > 1 and each < channels or not each:
        raise Unsupported(f"ConvInteger with groups of {channels} channels, whose sums float32 cannot represent exactly")
    total = None
    for start in range(0, channels, each):
        part = data if each >= channels else op.Slice(data, [start], [start + each], [1])
        for half, factor in ((high, 16), (low, 1)):
            half = half if each >= channels else op.Slice(half, [start], [start + each], [1])
            partial = op.Mul(op.Cast(op.Conv(part, half, **attrs), to=_INT32), factor)
            total = partial if total is None else op.Add(total, partial)
    return total


@decompose("QLinearConv")
def qlinear_conv(
    op, x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, B=None, *, auto_pad="NOTSET",
    dilations=None, group=1, kernel_shape=None, pads=None, strides=None,
):  # fmt: skip
    zeros = known(w_zero_point)
    if zeros is not None and zeros.ndim and (zeros == zeros[0]).all():  # ONNX Runtime's ConvInteger requires one zero point
        w_zero_point = op.constant(zeros[0])
    total = op.ConvInteger(
        x, w, x_zero_point, w_zero_point, auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape,
        pads=pads, strides=strides,
    )  # fmt: skip
    each = [1, -1] + [1] * (rank(x) - 2)
    if B is not None:
        total = op.Add(total, op.Reshape(B, each))
    scale = op.Mul(x_scale, w_scale)
    if w_scale.shape is None or len(w_scale.shape) == 1:
        scale = op.Reshape(scale, each)
    return op.QuantizeLinear(op.Mul(op.Cast(total, to=y_scale.dtype), scale), y_scale, y_zero_point)


@decompose("QLinearMatMul")
def qlinear_mat_mul(op, a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point):
    product = op.MatMulInteger(a, b, a_zero_point, b_zero_point)

    def rows(scale):
        return op.Unsqueeze(scale, [-1]) if scale.shape is not None and len(scale.shape) == 1 else scale

    # rescaled in float32: the product of two float16 scales may overflow or underflow
    scale = op.Mul(op.Cast(rows(a_scale), to=1), op.Cast(b_scale, to=1))
    rescaled = op.Mul(op.Cast(product, to=1), scale)
    return op.QuantizeLinear(rescaled, op.Cast(y_scale, to=1), y_zero_point)
