"""ONNX element types as NumPy dtypes, and the dtypes in which rules compute."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
F = TypeVar("F", bound=Callable[..., Any])

FLOAT, UINT8, INT64, BOOL = 1, 2, 7, 9  # ONNX type codes that are defaults of attributes
NARROW = frozenset({np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)})


def dtype_of(code: int) -> np.dtype[Any]:
    """The NumPy dtype of an ONNX type code."""
    import onnx_ir as ir  # most operators have no such attribute

    return np.dtype(ir.DataType(code).numpy())


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether elements are real numbers; ml_dtypes' own floats are of kind V, its integers too."""
    return dtype.kind == "f" or (dtype.kind == "V" and "int" not in dtype.name)


def wide(x: Any) -> Any:
    """float16 and bfloat16 as float32, everything else as it is."""
    return x.astype(np.float32) if getattr(x, "dtype", None) in NARROW else x


def widened(function: F) -> F:
    """Compute with float16 and bfloat16 inputs in float32, and round the float results once, to the first input's type."""

    @functools.wraps(function)
    def run(*args: Any, **attrs: Any) -> Any:
        narrow: Any = getattr(args[0], "dtype", None) if args else None
        result = function(*map(wide, args), **attrs)
        if narrow not in NARROW:
            return _settled(result, narrow)
        if isinstance(result, tuple):
            return tuple(_narrowed(r, narrow) for r in result)
        return _narrowed(result, narrow)

    return run  # type: ignore[return-value]


def _settled(x: Any, dtype: np.dtype[Any] | None) -> Any:
    """Before NumPy 2 the result of a float32 scalar and a Python number was float64."""
    single = dtype == np.float32 and getattr(x, "dtype", None) == np.float64 and x.ndim == 0
    return x.astype(dtype) if single else x


def _narrowed(x: Any, dtype: np.dtype[Any]) -> Any:
    x = _settled(x, np.dtype(np.float32))
    return x.astype(dtype) if getattr(x, "dtype", None) == np.float32 else x
