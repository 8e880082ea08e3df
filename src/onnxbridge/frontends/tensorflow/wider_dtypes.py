"""Operators on dtypes for which runtimes have no kernels, computed in a wider dtype."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from onnxbridge.hub.ir.values import cast

D = ir.DataType
_WIDER = {D.INT16: D.INT32, D.UINT16: D.INT32}
_FOR_SELECTION = _WIDER | {D.UINT64: D.INT64, D.BOOL: D.UINT8}


def compute(op: Any, name: str, *operands: Any, **attributes: Any) -> Any:
    """An operator on operands of one dtype, which its result has; those of 16 bits are computed as int32."""
    dtype = operands[0].dtype
    wide = _WIDER.get(dtype, dtype)
    return cast(op, op.call(name, *(cast(op, op.constant(v), wide) for v in operands), **attributes), dtype)


def where(op: Any, condition: Any, x: Any, y: Any) -> Any:
    """Where, of any dtype; one of x and y may be an array of the dtype of the other."""
    x, y = op.constant(x), op.constant(y)
    dtype = x.dtype
    wide = _FOR_SELECTION.get(dtype, dtype)
    return cast(op, op.Where(condition, cast(op, x, wide), cast(op, y, wide)), dtype)


def pad(op: Any, x: Any, pads: Any, value: Any = None, **attributes: Any) -> Any:
    """Pad, of any dtype. ONNX Runtime does not pad a scalar, of which nothing can be padded."""
    if x.shape is not None and not x.shape.rank():
        return op.Identity(x)
    wide = _WIDER.get(x.dtype, x.dtype)
    value = None if value is None else cast(op, op.constant(value), wide)
    return cast(op, op.Pad(cast(op, x, wide), pads, value, **attributes), x.dtype)
