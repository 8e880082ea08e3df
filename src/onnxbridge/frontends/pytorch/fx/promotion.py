"""PyTorch's type promotion for elementwise operators.

A tensor with dimensions has priority over a zero-dimensional one, which has priority over a Python number. Within a priority the
wider dtype wins; a higher category (bool, integer, floating point, complex) always wins over a lower one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

D = ir.DataType
DEFAULT = D.FLOAT
_SIGNED = (D.INT8, D.INT16, D.INT32, D.INT64)
_UNSIGNED = (D.UINT8, D.UINT16, D.UINT32, D.UINT64)
_FLOATS = (D.FLOAT16, D.BFLOAT16, D.FLOAT, D.DOUBLE)
_COMPLEX = (D.COMPLEX64, D.COMPLEX128)


def category(dtype: ir.DataType | None) -> int:
    """0 for bool, 1 for integers, 2 for floating point, 3 for complex."""
    return 0 if dtype == D.BOOL else 3 if dtype in _COMPLEX else 1 if dtype in _SIGNED + _UNSIGNED else 2


def is_float(value: Any) -> bool:
    """Whether a value or Python number is floating point."""
    return category(value.dtype) == 2 if isinstance(value, ir.Value) else isinstance(value, float)


def promote_types(a: ir.DataType | None, b: ir.DataType | None) -> ir.DataType | None:
    """torch.promote_types; None is neutral.

    Raises:
        TypeError: for dtypes that PyTorch does not promote.
    """
    if a is None or b is None or a == b:
        return a or b
    if category(a) != category(b):
        high, low = (a, b) if category(a) > category(b) else (b, a)
        return D.COMPLEX128 if high == D.COMPLEX64 and low == D.DOUBLE else high
    if category(a) == 3:
        return D.COMPLEX128
    if category(a) == 2:
        if a not in _FLOATS or b not in _FLOATS:
            raise TypeError(f"PyTorch does not promote {a.name} and {b.name}")
        return D.FLOAT if {a, b} == {D.FLOAT16, D.BFLOAT16} else max(a, b, key=_FLOATS.index)
    if (a in _SIGNED) == (b in _SIGNED):
        return max(a, b, key=lambda d: d.bitwidth)
    signed, unsigned = (a, b) if a in _SIGNED else (b, a)
    if unsigned != D.UINT8:
        raise TypeError(f"PyTorch does not promote {a.name} and {b.name}")
    return D.INT16 if signed == D.INT8 else signed


def result_type(*operands: Any) -> ir.DataType:
    """torch.result_type of any number of values and Python numbers."""
    ranked: list[ir.DataType | None] = [None, None, None]
    for x in operands:
        if isinstance(x, ir.Value):
            rank = 2 if "number" in x.meta else 0 if x.shape is None or len(x.shape) else 1
            dtype = D.FLOAT if rank == 2 and category(x.dtype) == 2 else x.dtype
        elif isinstance(x, np.ndarray):
            rank, dtype = (0 if x.ndim else 1), D.from_numpy(x.dtype)
        elif x is None:
            continue
        else:
            rank, dtype = 2, D.BOOL if isinstance(x, bool) else D.INT64 if isinstance(x, int) else DEFAULT
            dtype = D.COMPLEX64 if isinstance(x, complex) else dtype
        ranked[rank] = promote_types(ranked[rank], dtype)
    result = _combine(ranked[0], _combine(ranked[1], ranked[2]))
    assert result is not None
    return result


def _combine(high: ir.DataType | None, low: ir.DataType | None) -> ir.DataType | None:
    """Combine two priorities: the higher one's dtype unless the lower one has a higher category."""
    if high is None or low is None:
        return high or low
    if category(high) >= category(low):
        return high
    if category(low) == 3 and category(high) == 2:
        return D.COMPLEX128 if high == D.DOUBLE else D.COMPLEX64
    return promote_types(high, low)


def cast(op: Any, x: Any, dtype: ir.DataType) -> Any:
    """Convert a value or number to the dtype with PyTorch's semantics; returns the same value if it has the dtype."""
    if isinstance(x, ir.Value):
        return x if x.dtype == dtype else op.Cast(x, to=dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        return op.constant(np.asarray(x).astype(dtype.numpy()))


def is_half(value: Any) -> bool:
    """Whether a value is float16 or bfloat16, for which runtimes have fewer kernels."""
    return value.dtype in (D.FLOAT16, D.BFLOAT16)


def promote(op: Any, *operands: Any) -> list[Any]:
    """Convert the operands to their common dtype."""
    dtype = result_type(*operands)
    return [None if x is None else cast(op, x, dtype) for x in operands]


def promote_to_float(op: Any, *operands: Any) -> list[Any]:
    """Convert the operands to their common dtype; integers to PyTorch's default floating dtype."""
    dtype = result_type(*operands)
    dtype = dtype if category(dtype) >= 2 else DEFAULT
    return [None if x is None else cast(op, x, dtype) for x in operands]
