"""Constants of a symbol: trained parameters keep their names, other constants are written as operators where possible.

MXNet trains every argument of a symbol but its inputs. What is no parameter is therefore written as an operator (`_npi_full`,
`_npi_arange`), or, where none computes it, as an argument that only `BlockGrad` uses, with multipliers 0 of learning rate and
weight decay. Trainers accept floating-point arguments only: integers and bools are stored as floats that represent them exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_FILLED = frozenset({"float16", "float32", "float64", "uint8", "int8", "int32", "int64", "bool"})
"""Dtypes that MXNet's operators create."""


@dataclass(eq=False)
class Constant:
    """The content of a constant. `variable` and `state` are its variables, None if they were not needed yet.

    `parts` are the names of the parameters of which the weight of a recurrent layer is made in the source, if they are recorded.
    `source` is the parameter that it is a reshaped view of, or with `transposed` the transpose, if that is another one.
    """

    array: Array
    name: str = ""
    trained: bool = False
    parts: tuple[str, ...] = ()
    source: Constant | None = None
    transposed: bool = False
    variable: int | None = None
    state: int | None = None


def creating_operator(array: Array) -> tuple[str, dict[str, Any]] | None:
    """The operator without inputs, and its attributes, that creates an array; None if there is none."""
    if array.dtype.name not in _FILLED:
        return None
    if not array.size:
        return "_npi_zeros", {"shape": array.shape, "dtype": array.dtype}
    first = array.reshape(-1)[0]
    if array.dtype.kind in "iu" and not _is_exact(array):
        return None
    if _is_uniform(array):
        return "_npi_full", {"shape": array.shape or (1,), "value": _number(first), "dtype": array.dtype}
    if array.ndim == 1 and array.dtype.name in ("int32", "int64") and len(array) > 2:
        step = int(array[1]) - int(array[0])
        if step and np.array_equal(array, int(first) + step * np.arange(len(array))):
            stop = int(first) + step * len(array)
            return "_npi_arange", {"start": int(first), "stop": stop, "step": step, "dtype": array.dtype}
    return None


def stored_dtype(array: Array) -> np.dtype[Any]:
    """The floating-point dtype that an array of integers or bools is stored in; its own if none is exact."""
    own: np.dtype[Any] = array.dtype
    if own.kind not in "iub":
        return own
    if array.dtype.kind == "b" or not array.size or max(abs(int(array.min())), abs(int(array.max()))) <= 1 << 24:
        return np.dtype(np.float32)
    return np.dtype(np.float64) if _is_exact(array) else own


def _is_exact(array: Array) -> bool:
    """Whether float64 represents all integers of an array."""
    return not array.size or max(abs(int(array.min())), abs(int(array.max()))) <= 1 << 53


def _is_uniform(array: Array) -> bool:
    """Whether all elements are one number that MXNet fills arrays with: not NaN, nor -0, which it takes for 0."""
    bits = np.ascontiguousarray(array).reshape(-1).view(f"u{array.dtype.itemsize}")
    first = array.reshape(-1)[0]
    filled = array.dtype.kind != "f" or not (np.isnan(first) or (first == 0 and np.signbit(first)))
    return filled and bool((bits == bits[0]).all())


def _number(element: Any) -> Any:
    """An element as a number that MXNet parses."""
    return int(element) if element.dtype.kind in "iub" else float(element)
