"""Quantized tensors in the hub: integers with their scale, and the floats that they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.formats.tflite.model import Quantization
from onnxbridge.hub.ir import fold

TYPES = frozenset({"INT8", "UINT8", "INT16", "UINT16", "INT4", "UINT4", "INT2", "INT32", "INT64"})
_STORED = frozenset({
    ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16, ir.DataType.UINT16, ir.DataType.INT4, ir.DataType.UINT4,
    ir.DataType.INT2,
})  # fmt: skip


@dataclass
class Quantized:
    """A quantized tensor among the hub's values: its integers, its floats, or both. The other is made when it is used.

    `reusable` is whether the floats may be used again wherever the tensor is: not for a constant, which branches and loop bodies
    dequantize on their own.
    """

    parameters: Quantization
    dtype: ir.DataType
    integers: ir.Value | None = None
    floats: ir.Value | None = None
    reusable: bool = True
    blocks: tuple[Any, Any] | None = field(default=None)
    """Scales and zero points of blocks, which are tensors of the model."""

    def dequantized(self, op: Any) -> Any:
        if self.floats is not None:
            return self.floats
        assert self.integers is not None
        found = dequantize(op, self.integers, self.parameters, self.blocks)
        if self.reusable:
            self.floats = found
        return found

    def stored(self, op: Any) -> Any:
        if self.integers is None:
            assert self.floats is not None
            self.integers = quantize(op, self.floats, self.parameters, self.dtype)
        return self.integers

    def array(self) -> np.ndarray[Any, Any] | None:
        """The floats of a constant, None for other tensors."""
        stored = fold.constant_array(self.integers)
        if stored is None or self.blocks is not None:
            return None
        scale, zero_point = (_along(v, stored.ndim, self.parameters.axis) for v in _pair(self.parameters))
        return np.asarray((stored.astype(np.float32) - zero_point.astype(np.float32)) * scale, np.float32)


def _pair(q: Quantization) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    return q.scale, q.zero_point


def _along(values: np.ndarray[Any, Any], rank: int, axis: int) -> np.ndarray[Any, Any]:
    return values.reshape([-1 if i == axis else 1 for i in range(rank)]) if len(values) > 1 else values.reshape(())


def dequantize(op: Any, x: Any, q: Quantization, blocks: tuple[Any, Any] | None = None) -> Any:
    """The floats of integers."""
    if blocks is not None:
        return _dequantize_blocks(op, x, q, *blocks)
    if x.dtype not in _STORED and (x.dtype != ir.DataType.INT32 or q.zero_point.any()):
        scale, zero_point = (_along(v, len(x.shape), q.axis) for v in _pair(q))
        x = op.Cast(x, to=ir.DataType.FLOAT)
        return op.Mul(op.Sub(x, zero_point.astype(np.float32)) if zero_point.any() else x, scale)
    scale, zero_point = parameters(op, q, x.dtype)
    return op.DequantizeLinear(x, scale, zero_point, axis=q.axis if len(q.scale) > 1 else None)


def quantize(op: Any, x: Any, q: Quantization, dtype: ir.DataType) -> Any:
    """Floats rounded to integers of a dtype.

    Raises:
        Unsupported: for a dtype that ONNX does not quantize to.
    """
    if dtype not in _STORED:
        raise Unsupported(f"a result that is quantized to {dtype.name.lower()}")
    scale, zero_point = parameters(op, q, dtype)
    return op.QuantizeLinear(x, scale, zero_point, axis=q.axis if len(q.scale) > 1 else None)


def parameters(op: Any, q: Quantization, dtype: ir.DataType) -> tuple[Any, Any]:
    """Scale and zero point as ONNX takes them: scalars for a whole tensor, vectors along an axis. int32 has no zero point."""
    single = len(q.scale) == 1
    scale = op.constant(q.scale.reshape(()) if single else q.scale)
    if dtype == ir.DataType.INT32:
        return scale, None
    zero_point = q.zero_point.reshape(()) if single else q.zero_point
    return scale, op.constant(zero_point.astype(dtype.numpy()), dtype=dtype)


def _dequantize_blocks(op: Any, x: Any, q: Quantization, scale: Any, zero_point: Any) -> Any:
    """Weights [..., n] in blocks along the last axis, with scales [..., n / block]."""
    scale = scale if scale.dtype == ir.DataType.FLOAT else op.Cast(scale, to=ir.DataType.FLOAT)
    axis = len(x.shape) - 1
    if zero_point is not None and zero_point.dtype != x.dtype:
        zero_point = op.Cast(zero_point, to=x.dtype)
    return op.DequantizeLinear(x, scale, zero_point, axis=axis, block_size=q.block)


def floats(op: Any, value: Any) -> Any:
    """A value as rules compute with it: a quantized tensor as its floats."""
    if isinstance(value, Quantized):
        return value.dequantized(op)
    if isinstance(value, (tuple, list)):
        return type(value)(floats(op, v) for v in value)
    return value


def stored(op: Any, values: Sequence[Any]) -> list[Any]:
    """Values as the file stores them: a quantized tensor as its integers."""
    return [v.stored(op) if isinstance(v, Quantized) else v for v in values]
