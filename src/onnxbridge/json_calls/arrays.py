"""Arrays in JSON: a kind, a shape, and their elements in column-major order, as R and Fortran store them.

The elements are bytes in base64 ("float64", "int32", "bool" as int32) or a list of texts ("string"). Numbers of other dtypes are
sent as the one of these that holds them.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from onnxbridge.errors import UsageError

Array = np.ndarray[Any, Any]

STORED = {"float64": "<f8", "int32": "<i4", "bool": "<i4"}
MISSING = -(2**31)
"""R's missing integer and logical value."""


def decoded(sent: dict[str, Any], name: str) -> Array:
    """The array that was sent as the input `name`.

    Raises:
        UsageError: if it has missing values, or another number of elements than its shape.
    """
    shape, kind = [int(n) for n in sent["shape"]], sent["kind"]
    if kind == "string":
        flat: Array = np.array([None if t is None else str(t) for t in sent["values"]], dtype=object)
        missing = any(t is None for t in flat)
    else:
        flat = np.frombuffer(base64.b64decode(sent["values"]), STORED[kind])
        missing = kind != "float64" and bool((flat == MISSING).any())
        flat = flat.astype(bool) if kind == "bool" and not missing else flat
    if missing:
        raise UsageError(f"the input {name!r} has missing values (NA)")
    if flat.size != np.prod(shape, dtype=np.int64):
        raise UsageError(f"the input {name!r} has {flat.size} elements, and its shape is {shape}")
    return flat.reshape(shape, order="F")


def encoded(array: Array) -> dict[str, Any]:
    """An output, with its own dtype.

    Raises:
        UsageError: for complex numbers, and integers that float64 does not hold.
    """
    shape = list(array.shape)
    flat = array.ravel(order="F")
    dtype = array.dtype.name if array.dtype != object else "string"
    if array.dtype.kind in "OUS":
        return {"kind": "string", "dtype": "string", "shape": shape, "values": [str(t) for t in flat]}
    if array.dtype.kind == "b":
        kind = "bool"
    elif array.dtype.kind in "iu":
        kind = "int32" if array.dtype.itemsize < 4 or array.dtype == np.int32 else "float64"
        if kind == "float64" and flat.size and max(abs(int(flat.max())), abs(int(flat.min()))) > 2**53:
            raise UsageError("an output has integers beyond 2^53, which double precision does not hold")
    elif array.dtype.kind == "c":
        raise UsageError("an output is complex, which is not supported")
    else:  # floats, those of ml_dtypes too
        kind = "float64"
    text = base64.b64encode(flat.astype(STORED[kind]).tobytes()).decode()
    return {"kind": kind, "dtype": dtype, "shape": shape, "values": text}
