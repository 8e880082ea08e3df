"""Quantization; each value comes with the range that its integers represent.

The ranges are symmetric around 0, halves go to the even neighbour, and what is outside is cut off. quantize_v2 and dequantize
count half a step more than the integers hold, as MXNet with oneDNN does.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.mxnet.ops import rule

FLOAT, INT8, UINT8 = ir.DataType.FLOAT, ir.DataType.INT8, ir.DataType.UINT8
ENDS = {"int8": (-128.0, 127.0), "uint8": (0.0, 255.0)}


def _span(op, low, high):
    return op.Max(op.Abs(low), op.Abs(high))


def _quantized(op, data, low, high, out_type, steps):
    """The integers and their range; `steps` is the integer for the larger bound."""
    if out_type not in ENDS:
        raise Unsupported(f"out_type={out_type!r} is not supported")
    span = _span(op, low, high)
    rounded = op.Round(op.Mul(data, op.Div(steps, span)))
    integers = op.Cast(op.Clip(rounded, *ENDS[out_type]), to=INT8 if out_type == "int8" else UINT8)
    return (integers, op.Neg(span), span) if out_type == "int8" else (integers, op.Identity(low), op.Identity(high))


@rule("_contrib_quantize_v2")
def quantize_v2(op, data, *, out_type="int8", min_calib_range=None, max_calib_range=None):
    if min_calib_range is None or max_calib_range is None:
        low, high = (op.Reshape(f(data, keepdims=0), [1]) for f in (op.ReduceMin, op.ReduceMax))
    else:
        low, high = (op.constant(np.array([v], np.float32)) for v in (min_calib_range, max_calib_range))
    if out_type == "auto":
        out_type = "uint8" if min_calib_range is not None and min_calib_range >= 0 else "int8"
    return _quantized(op, data, low, high, out_type, 127.5 if out_type == "int8" else 255.5)


@rule("_contrib_quantize")
def quantize(op, data, min_range, max_range, *, out_type="uint8"):
    return _quantized(op, data, min_range, max_range, out_type, 127.0 if out_type == "int8" else 255.0)


@rule("_contrib_dequantize")
def dequantize(op, data, min_range, max_range, *, out_type="float32"):
    return op.Mul(op.Cast(data, to=FLOAT), op.Div(_span(op, min_range, max_range), 127.5 if data.dtype == INT8 else 255.5))


@rule("_contrib_requantize")
def requantize(op, data, min_range, max_range, *, out_type="int8", min_calib_range=None, max_calib_range=None):
    if out_type != "int8" or min_calib_range is None or max_calib_range is None:
        raise Unsupported("only int8 with a calibrated range is supported")
    values = op.Mul(op.Cast(data, to=FLOAT), op.Div(_span(op, min_range, max_range), float(2**31 - 1)))
    low, high = (op.constant(np.array([v], np.float32)) for v in (min_calib_range, max_calib_range))
    return _quantized(op, values, low, high, "int8", 127.0)
