"""Quantization, each value with the range that its integers stand for."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.mxnet.ops import rule

INT8, UINT8, INT32 = ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT32
LARGEST = {INT8: 127, UINT8: 255, INT32: 2**31 - 1}


def _unsigned(op, data, low, high):
    """Counted from the low end of the range, halves up."""
    scale = op.Div(255.0, op.Sub(high, low))
    return op.Cast(op.Floor(op.Add(op.Mul(op.Sub(data, low), scale), 0.5)), to=UINT8)


def _signed(op, data, low, high):
    """Symmetric around 0, halves away from it, cut off at the ends."""
    span = op.Max(op.Abs(low), op.Abs(high))
    steps = op.Min(op.Floor(op.Add(op.Mul(op.Abs(data), op.Div(127.0, span)), 0.5)), 127.0)
    return op.Cast(op.Mul(op.Sign(data), steps), to=INT8), span


@rule("_contrib_quantize_v2")
def quantize_v2(op, data, *, out_type="int8", min_calib_range=None, max_calib_range=None):
    if min_calib_range is None or max_calib_range is None:
        low, high = (op.Reshape(f(data, keepdims=0), [1]) for f in (op.ReduceMin, op.ReduceMax))
    else:
        low, high = (op.constant(np.array([v], np.float32)) for v in (min_calib_range, max_calib_range))
    if out_type == "auto":
        out_type = "uint8" if min_calib_range is not None and min_calib_range >= 0 else "int8"
    return _quantized(op, data, low, high, out_type)


@rule("_contrib_quantize")
def quantize(op, data, min_range, max_range, *, out_type="uint8"):
    return _quantized(op, data, min_range, max_range, out_type)


def _quantized(op, data, low, high, out_type):
    if out_type == "uint8":
        return _unsigned(op, data, low, high), op.Identity(low), op.Identity(high)
    if out_type != "int8":
        raise Unsupported(f"out_type={out_type!r} is not supported")
    quantized, span = _signed(op, data, low, high)
    return quantized, op.Neg(span), span


@rule("_contrib_dequantize")
def dequantize(op, data, min_range, max_range, *, out_type="float32"):
    wide = op.Cast(data, to=ir.DataType.FLOAT)
    if data.dtype == UINT8:
        return op.Add(op.Mul(wide, op.Div(op.Sub(max_range, min_range), 255.0)), min_range)
    span = op.Max(op.Abs(min_range), op.Abs(max_range))
    return op.Mul(wide, op.Div(span, float(LARGEST[data.dtype])))


@rule("_contrib_requantize")
def requantize(op, data, min_range, max_range, *, out_type="int8", min_calib_range=None, max_calib_range=None):
    if out_type != "int8" or min_calib_range is None or max_calib_range is None:
        raise Unsupported("only int8 with a calibrated range is supported")
    low, high = (op.constant(np.array([v], np.float32)) for v in (min_calib_range, max_calib_range))
    quantized, span = _signed(op, dequantize(op, data, min_range, max_range), low, high)
    return quantized, op.Neg(span), span
