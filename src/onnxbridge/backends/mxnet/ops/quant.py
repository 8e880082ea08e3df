"""Quantization in plain arithmetic."""

from __future__ import annotations

import numpy as np

from onnxbridge.backends.mxnet.ops import rule
from onnxbridge.backends.mxnet.ops.types import cast, rank, reshaped
from onnxbridge.errors import Unsupported

ENDS = {"int8": (-128.0, 127.0), "uint8": (0.0, 255.0)}


def _along(sym, x, v, axis, block_size):
    """A scale or zero point, per tensor or per axis, shaped to broadcast."""
    if block_size:
        raise Unsupported("block_size is not supported")
    if not rank(v) or v.shape == (1,):
        return v
    return reshaped(sym, v, [-1 if i == axis % rank(x) else 1 for i in range(rank(x))])


@rule("QuantizeLinear")
def quantize_linear(
    sym, x, y_scale, y_zero_point=None, *, axis=1, block_size=0, output_dtype=0, precision=0, saturate=1
):  # fmt: skip
    kind = np.dtype(np.uint8) if y_zero_point is None else y_zero_point.dtype
    if kind.name not in ENDS or output_dtype not in (0, 2, 3):
        raise Unsupported(f"{kind.name} is not supported")
    y = sym._npi_around(sym._npi_true_divide(x, cast(sym, _along(sym, x, y_scale, axis, block_size), x.dtype)))
    if y_zero_point is not None:
        y = sym._npi_add(y, cast(sym, _along(sym, x, y_zero_point, axis, block_size), x.dtype))
    low, high = ENDS[kind.name]
    return cast(sym, sym.clip(y, a_min=low, a_max=high), kind)


@rule("DequantizeLinear")
def dequantize_linear(sym, x, x_scale, x_zero_point=None, *, axis=1, block_size=0, output_dtype=0):
    if output_dtype:
        raise Unsupported("output_dtype is not supported")
    y = cast(sym, x, x_scale.dtype)
    if x_zero_point is not None:
        y = sym._npi_subtract(y, cast(sym, _along(sym, x, x_zero_point, axis, block_size), x_scale.dtype))
    return sym._npi_multiply(y, _along(sym, x, x_scale, axis, block_size))
