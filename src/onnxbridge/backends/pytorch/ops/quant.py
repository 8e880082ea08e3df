"""Quantization."""

from __future__ import annotations

import onnx_ir as ir
import torch

from onnxbridge.backends.pytorch import dtypes
from onnxbridge.backends.pytorch.ops import rule
from onnxbridge.backends.pytorch.ops.arithmetic import converted
from onnxbridge.errors import Unsupported

_BOUNDS = {
    "INT2": (-2, 1), "UINT2": (0, 3), "INT4": (-8, 7), "UINT4": (0, 15), "INT8": (-128, 127), "UINT8": (0, 255),
    "INT16": (-32768, 32767), "UINT16": (0, 65535), "INT32": (-(1 << 31), (1 << 31) - 1),
}  # fmt: skip


def broadcastable(scale, x, axis, block_size):
    """A scale or zero point (per tensor, per axis or per block) shaped to broadcast with `x`."""
    if scale.ndim == 0 or (scale.ndim == 1 and scale.shape[0] == 1 and not block_size):
        return scale.reshape([])
    if block_size:
        return torch.repeat_interleave(scale, block_size, axis).narrow(axis, 0, x.shape[axis])
    return scale.reshape([-1 if d == axis % x.ndim else 1 for d in range(x.ndim)])


@rule("QuantizeLinear")
def quantize_linear(x, y_scale, y_zero_point=None, *, axis=1, block_size=0, output_dtype=0, precision=0, saturate=1):
    hub = y_zero_point.hub_dtype if y_zero_point is not None else ir.DataType(output_dtype) if output_dtype else ir.DataType.UINT8
    kind = ir.DataType(precision) if precision else y_scale.hub_dtype
    if kind not in (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16):
        raise Unsupported(f"a scale of {kind.name.lower()}")
    scale = broadcastable(y_scale, x, axis, block_size).to(dtypes.inside(kind))
    scaled = x.to(scale.dtype) / scale
    if hub.name not in _BOUNDS:
        if not hub.name.startswith(("FLOAT8E4", "FLOAT8E5", "FLOAT4")):
            raise Unsupported(f"QuantizeLinear to {hub.name.lower()}")
        if y_zero_point is not None:
            scaled = scaled + broadcastable(y_zero_point, x, axis, block_size).to(scaled.dtype)
        scaled.hub_dtype = kind
        return converted(scaled, hub, saturate)
    low, high = _BOUNDS[hub.name]
    wide = torch.round(scaled).to(torch.float32 if scaled.dtype != torch.float64 else torch.float64)
    if y_zero_point is not None:
        wide = wide + broadcastable(y_zero_point, x, axis, block_size).to(wide.dtype)
    if hub == ir.DataType.INT32:
        wide = wide.to(torch.float64)
    return torch.clamp(wide, low, high).to(dtypes.inside(hub))


@rule("DequantizeLinear")
def dequantize_linear(x, x_scale, x_zero_point=None, *, axis=1, block_size=0, output_dtype=0):
    dtype = dtypes.attribute(output_dtype) if output_dtype else x_scale.dtype
    scale = broadcastable(
        x_scale.to(torch.float32) if x_scale.hub_dtype == ir.DataType.FLOAT8E8M0 else x_scale, x, axis, block_size
    )
    if x_zero_point is not None and x.hub_dtype.name in _BOUNDS:
        wide = x.to(torch.int64) - broadcastable(x_zero_point, x, axis, block_size).to(torch.int64)
    elif x_zero_point is not None:
        wide = x.to(torch.float32) - broadcastable(x_zero_point, x, axis, block_size).to(torch.float32)
    else:
        wide = x
    return (wide.to(scale.dtype) * scale).to(dtype)
