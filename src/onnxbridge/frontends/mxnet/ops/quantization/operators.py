"""Quantized operators that stand alone in a graph."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.frontends.mxnet.ops.conv import convolution, fully_connected
from onnxbridge.frontends.mxnet.ops.pooling import pooling
from onnxbridge.frontends.mxnet.ops.quantization.ranges import (
    INT8,
    INT32,
    PRODUCT_STEPS,
    STEPS,
    UINT8,
    float32,
    need_range,
    over,
    product_range,
    span,
    step,
    symmetric,
    times,
    to_integers,
    to_real,
)
from onnxbridge.hub.ir.values import cast, rank

FLOAT = ir.DataType.FLOAT
OUT_TYPES = {"int8": INT8, "uint8": UINT8}
ONE = np.float32(1)


def _out_type(out_type, min_calib_range, max_calib_range):
    """The dtype of the integers; "auto" is uint8 if nothing is negative."""
    if out_type == "auto":
        calibrated = min_calib_range is not None and max_calib_range is not None
        return UINT8 if calibrated and min_calib_range >= 0 else INT8
    if out_type not in OUT_TYPES:
        raise Unsupported(f"out_type={out_type!r} is not supported")
    return OUT_TYPES[out_type]


def _range_of(op, dtype, low, high):
    """The range that MXNet gives to integers: symmetric for int8, as given for uint8."""
    return symmetric(op, span(op, low, high)) if dtype == INT8 else (op.Identity(low), op.Identity(high))


@rule("_contrib_quantize_v2")
def quantize_v2(op, data, *, out_type="int8", min_calib_range=None, max_calib_range=None):
    dtype = _out_type(out_type, min_calib_range, max_calib_range)
    calibrated = min_calib_range is not None and max_calib_range is not None
    if data.dtype in (INT8, UINT8):  # passed through
        ends = (0.0 if data.dtype == UINT8 else -STEPS[INT8], STEPS[data.dtype])
        return op.Identity(data), *float32(op, *((min_calib_range, max_calib_range) if calibrated else ends))
    if calibrated:
        low, high = float32(op, min_calib_range, max_calib_range)
    else:
        low, high = (op.Reshape(f(data, keepdims=0), [1]) for f in (op.ReduceMin, op.ReduceMax))
    return to_integers(op, data, step(op, dtype, low, high), dtype), *_range_of(op, dtype, low, high)


@rule("_contrib_quantize")
def quantize(op, data, min_range, max_range, *, out_type="uint8"):
    dtype = _out_type(out_type, None, None)
    integers = to_integers(op, data, step(op, dtype, min_range, max_range, PRODUCT_STEPS), dtype)
    return integers, *_range_of(op, dtype, min_range, max_range)


@rule("_contrib_dequantize")
def dequantize(op, data, min_range, max_range, *, out_type="float32"):
    return to_real(op, data, step(op, data.dtype, min_range, max_range))


@rule("_contrib_requantize")
def requantize(op, data, min_range, max_range, *, out_type="int8", min_calib_range=None, max_calib_range=None):
    dtype = _out_type(out_type, min_calib_range, max_calib_range)
    values = to_real(op, data, step(op, INT32, min_range, max_range))
    if min_calib_range is not None and max_calib_range is not None:
        size = span(op, float(min_calib_range), float(max_calib_range))
    else:
        size = op.ReduceMax(op.Abs(values), keepdims=0)
    scale = over(op, size, np.float32(PRODUCT_STEPS[dtype]))
    low, high = symmetric(op, size)
    return to_integers(op, values, scale, dtype), low if dtype == INT8 else float32(op, 0.0)[0], high


def _product(op, data, weight, data_range, weight_range, steps=PRODUCT_STEPS):
    """The factors of a product as real numbers, and the scale of its int32 result."""
    scales = step(op, data.dtype, *data_range, steps), step(op, INT8, *weight_range, steps)
    return to_real(op, data, scales[0]), to_real(op, weight, scales[1]), times(op, *scales)


@rule("_contrib_quantized_conv")
def quantized_conv(
    op, *inputs, kernel, stride=(), dilate=(), pad=(), num_filter, num_group=1, no_bias=False, layout=None
):  # fmt: skip
    """MXNet gives uint8 data the range of int8, and adds the integers of the bias to the sums without regard to its range."""
    data, weight, *rest = inputs
    bias, (low, high, weight_low, weight_high) = (None, rest[:4]) if no_bias else (rest[0], rest[1:5])
    as_int8 = dict.fromkeys((INT8, UINT8), PRODUCT_STEPS[INT8])
    x, w, scale = _product(op, data, weight, (low, high), (weight_low, weight_high), as_int8)
    b = None if bias is None else op.Mul(cast(op, bias, FLOAT), scale)
    y = convolution(
        op, x, w, b, kernel=kernel, stride=stride, dilate=dilate, pad=pad, num_filter=num_filter, num_group=num_group,
        no_bias=no_bias, layout=layout,
    )  # fmt: skip
    return to_integers(op, y, scale, INT32), *product_range(op, scale)


@rule("_contrib_quantized_fully_connected")
def quantized_fully_connected(op, *inputs, num_hidden, no_bias=False, flatten=True):
    """The bias is rescaled to int32 and truncated, with other scales than those of the result."""
    data, weight, *rest = inputs
    bias, rest = (None, rest) if no_bias else (rest[0], rest[1:])
    x, w, scale = _product(op, data, weight, rest[:2], rest[2:4])
    b = None
    if bias is not None:
        # in the order of MXNet's products, because the result is truncated
        per_unit = [over(op, np.float32(STEPS[x.dtype]), span(op, *e)) for x, e in ((data, rest[:2]), (weight, rest[2:4]))]
        factor = over(op, times(op, times(op, *per_unit), span(op, *rest[4:6])), np.float32(STEPS[INT8]))
        whole = op.Cast(op.Mul(cast(op, bias, FLOAT), factor), to=INT32)  # truncates
        b = op.Mul(cast(op, whole, FLOAT), scale)
    y = fully_connected(op, x, w, b, num_hidden=num_hidden, no_bias=no_bias, flatten=flatten)
    return to_integers(op, y, scale, INT32), *product_range(op, scale)


@rule("_contrib_quantized_pooling")
def quantized_pooling(
    op, data, min_data, max_data, *, kernel=(), pool_type="max", global_pool=False, pooling_convention="valid", stride=(), pad=(),
    p_value=None, count_include_pad=None, layout=None,
):  # fmt: skip
    """On the integers themselves, so that the averages that end in .5 round as MXNet's."""
    y = pooling(
        op, to_real(op, data, ONE), kernel=kernel, pool_type=pool_type, global_pool=global_pool,
        pooling_convention=pooling_convention, stride=stride, pad=pad, p_value=p_value, count_include_pad=count_include_pad,
        layout=layout,
    )  # fmt: skip
    return to_integers(op, y, ONE, data.dtype), op.Identity(min_data), op.Identity(max_data)


@rule("_contrib_quantized_act")
def quantized_act(op, data, min_data, max_data, *, act_type):
    """MXNet reads the bits of uint8 as int8."""
    if act_type != "relu":
        raise Unsupported(f"act_type={act_type!r} is not supported: MXNet computes no other activation on integers than relu")
    kept = op.Cast(data, to=INT8) if data.dtype == UINT8 else to_integers(op, op.Relu(to_real(op, data, ONE)), ONE, INT8)
    return kept, op.Identity(min_data), op.Identity(max_data)


@rule("_contrib_quantized_flatten")
def quantized_flatten(op, data, min_data, max_data):
    return op.Flatten(data, axis=1), op.Identity(min_data), op.Identity(max_data)


@rule("_contrib_quantized_embedding")
def quantized_embedding(
    op, data, weight, min_weight, max_weight, *, input_dim, output_dim, dtype="float32", sparse_grad=False
):  # fmt: skip
    rows = op.Clip(cast(op, data, ir.DataType.INT64), np.int64(0), np.int64(input_dim - 1))
    return op.Gather(weight, rows, axis=0), op.Identity(min_weight), op.Identity(max_weight)


@rule("_contrib_quantized_batch_norm")
def quantized_batch_norm(
    op, data, gamma, beta, moving_mean, moving_var, min_data, max_data, *, eps=1e-3, fix_gamma=True, use_global_stats=False,
    output_mean_var=False, axis=1, min_calib_range=None, max_calib_range=None,
):  # fmt: skip
    """MXNet's kernel uses gamma even if it is fixed, and divides by sqrt(1 + eps) once more."""
    ends = need_range(min_calib_range, max_calib_range, "quantized BatchNorm")
    unit = step(op, INT8, min_data, max_data)
    if data.dtype == UINT8:
        data = to_integers(op, to_real(op, data, ONE), np.float32(STEPS[UINT8] / STEPS[INT8]), INT8)
    deviation = op.Sqrt(op.Add(moving_var, np.float32(eps)))
    factor = op.Div(gamma, deviation)
    shift = op.Sub(beta, op.Mul(moving_mean, factor))
    shape = [-1] + [1] * (rank(data) - 1 - axis % rank(data))
    factor = op.Div(factor, np.float32(np.sqrt(1 + eps)))
    y = op.Add(op.Mul(to_real(op, data, unit), op.Reshape(factor, shape)), op.Reshape(shift, shape))
    return to_integers(op, y, step(op, INT8, *ends), INT8), *float32(op, *ends)


@rule("_contrib_quantized_elemwise_add")
def quantized_elemwise_add(op, lhs, rhs, lhs_min, lhs_max, rhs_min, rhs_max, *, min_calib_range=None, max_calib_range=None):
    """Of int8 and uint8, the uint8 numbers are first rounded to int8 with the scale of the result."""
    sides = [(lhs, lhs_min, lhs_max), (rhs, rhs_min, rhs_max)]
    values = [to_real(op, x, step(op, x.dtype, *ends)) for x, *ends in sides]
    if lhs.dtype == rhs.dtype and (min_calib_range is None or max_calib_range is None):
        size = op.Add(*[op.Max(op.Abs(low), op.Abs(high)) for _, low, high in sides])
        low, high = symmetric(op, size)
        return to_integers(op, op.Add(*values), step(op, INT32, low, high), INT32), low, high
    ends = need_range(min_calib_range, max_calib_range, "a sum of int8 and uint8")
    dtype = lhs.dtype if lhs.dtype == rhs.dtype else INT8
    scale = step(op, dtype, *ends)
    if lhs.dtype != rhs.dtype:
        values = [
            to_real(op, to_integers(op, v, scale, INT8), scale) if x.dtype == UINT8 else v
            for v, (x, *_) in zip(values, sides, strict=True)
        ]
    return to_integers(op, op.Add(*values), scale, dtype), *float32(op, *ends)


@rule("_contrib_quantized_elemwise_mul")
def quantized_elemwise_mul(
    op, lhs, rhs, lhs_min, lhs_max, rhs_min, rhs_max, *, min_calib_range=None, max_calib_range=None, enable_float_output=False
):  # fmt: skip
    """The integers are truncated, not rounded; what is outside of int8 wraps around."""
    both = op.Mul(to_real(op, lhs, ONE), to_real(op, rhs, ONE))
    unit = times(op, step(op, INT8, lhs_min, lhs_max), step(op, INT8, rhs_min, rhs_max))
    if enable_float_output:
        return op.Mul(both, unit)
    if min_calib_range is None or max_calib_range is None:
        scales = [step(op, INT8, *ends, PRODUCT_STEPS) for ends in ((lhs_min, lhs_max), (rhs_min, rhs_max))]
        return op.Cast(both, to=INT32), *product_range(op, times(op, *scales))
    scale = step(op, INT8, float(min_calib_range), float(max_calib_range))
    integers = op.Cast(op.Cast(op.Mul(both, over(op, unit, scale)), to=INT32), to=INT8)
    return integers, *float32(op, min_calib_range, max_calib_range)


@rule("_contrib_quantized_concat")
def quantized_concat(op, *data, dim=1):
    """The result's range holds those of all parts; parts with another scale are rounded again."""
    parts, ends = data[: len(data) // 3], data[len(data) // 3 :]
    lows, highs = ends[::2], ends[1::2]
    zero = np.zeros(1, np.float32)
    low, high = op.Min(*lows, zero), op.Max(*highs, zero)
    dtype = INT8 if any(p.dtype == INT8 for p in parts) else UINT8
    scale = step(op, dtype, low, high)
    again = [
        to_integers(op, to_real(op, p, step(op, p.dtype, *e)), scale, dtype)
        for p, e in zip(parts, zip(lows, highs, strict=True), strict=True)
    ]
    return op.Concat(*again, axis=dim), low, high
