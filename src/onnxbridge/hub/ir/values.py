"""What rules ask of a hub value, and the casts that they write."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import onnx_ir as ir

from onnxbridge.errors import Unsupported

INTEGERS = frozenset({
    ir.DataType.INT8, ir.DataType.INT16, ir.DataType.INT32, ir.DataType.INT64,
    ir.DataType.UINT8, ir.DataType.UINT16, ir.DataType.UINT32, ir.DataType.UINT64,
})  # fmt: skip

SORTED = "onnxbridge.sorted"
"""Marks a value whose elements must ascend along its last axis: the ids of segments, boundaries to search in."""


def cast(op: Any, x: Any, dtype: ir.DataType) -> Any:
    """`x` in another dtype, itself where it has that already."""
    return x if x.dtype == dtype else op.Cast(x, to=dtype)


def like(op: Any, x: Any, other: Any) -> Any:
    """`x` in the dtype of `other`."""
    return cast(op, x, other.dtype)


def is_integer(x: Any) -> bool:
    return x.dtype in INTEGERS


def rank(x: Any) -> int:
    """The number of dimensions.

    Raises:
        Unsupported: if it is not known when converting.
    """
    if x.shape is None:
        raise Unsupported("the rank of its input is not known", hint="give the shapes of the model's inputs")
    return len(x.shape)


def fixed(x: Any, axes: Iterable[int] | None = None) -> list[int]:
    """The sizes of these axes as numbers, of all axes by default.

    Raises:
        Unsupported: if one is only known when the model runs.
    """
    sizes = [x.shape[a] for a in (range(rank(x)) if axes is None else axes)]
    if not all(isinstance(s, int) for s in sizes):
        raise Unsupported("a size that it needs is only known when the model runs", hint="give the input a fixed shape")
    return sizes
