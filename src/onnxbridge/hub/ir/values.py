"""Queries on hub values, and casts, for rules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported

INTEGERS = frozenset({
    ir.DataType.INT8, ir.DataType.INT16, ir.DataType.INT32, ir.DataType.INT64,
    ir.DataType.UINT8, ir.DataType.UINT16, ir.DataType.UINT32, ir.DataType.UINT64,
})  # fmt: skip
UNSIGNED = frozenset({ir.DataType.UINT8, ir.DataType.UINT16, ir.DataType.UINT32, ir.DataType.UINT64})

SORTED = "onnxbridge.sorted"
"""Key in a value's meta: its elements must be in ascending order along the last axis (segment ids, search boundaries)."""

ROWS = "onnxbridge.row_partition"
"""Key in a value's meta: (kind, values, fewer). The value partitions the first axis of `values`, less `fewer` (1 where these are
the splits of inner rows), into rows. Its kind is "splits", ascending from 0 to that size, or "lengths", which add up to it."""


def cast(op: Any, x: Any, dtype: ir.DataType) -> Any:
    """`x` cast to a dtype; `x` itself if it has that dtype."""
    return x if x.dtype == dtype else op.Cast(x, to=dtype)


def like(op: Any, x: Any, other: Any) -> Any:
    """`x` cast to the dtype of `other`."""
    return cast(op, x, other.dtype)


def is_integer(x: Any) -> bool:
    return x.dtype in INTEGERS


def zero(dtype: ir.DataType) -> np.ndarray[Any, Any]:
    """What elements without a value hold: 0, or the empty string."""
    return np.array("", object) if dtype == ir.DataType.STRING else np.zeros((), dtype.numpy())


def rank(x: Any) -> int:
    """The number of dimensions.

    Raises:
        Unsupported: if it is not known at conversion time.
    """
    if x.shape is None:
        raise Unsupported("the rank of its input is unknown", hint="give the shapes of the model's inputs")
    return len(x.shape)


def keep_shapes(states: Iterable[ir.Value], initial: Iterable[ir.Value]) -> None:
    """Give states of a loop the shapes of their initial values, where they do not change."""
    for state, start in zip(states, initial, strict=True):
        state.shape = None if start.shape is None else ir.Shape(list(start.shape))


def static_shape(x: Any, axes: Iterable[int] | None = None) -> list[int]:
    """The static sizes of the given axes, by default of all axes.

    Raises:
        Unsupported: if one is dynamic.
    """
    sizes = [x.shape[a] for a in (range(rank(x)) if axes is None else axes)]
    if not all(isinstance(s, int) for s in sizes):
        raise Unsupported("it requires a static size, but the size is dynamic", hint="give the input a fixed shape")
    return sizes


def dtype_name(dtype: ir.DataType) -> str:
    """A dtype as PyTorch, TensorFlow and NumPy name it: "float32" where ONNX has "FLOAT"."""
    return {"FLOAT": "float32", "DOUBLE": "float64"}.get(dtype.name, dtype.name.lower())


def shape_text(shape: ir.Shape) -> str:
    """A shape with the names of dynamic dimensions, ? for one without: "[N, 3, ?]"."""
    return f"[{', '.join(str(d) if isinstance(d, int) else d.value or '?' for d in shape)}]"


_VIEW_OPERATORS = frozenset({"Identity", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Slice", "Gather", "Concat", "Split"})


def undetermined(value: ir.Value) -> str:
    """The reason why a result is not unique, if a rule has marked it, or the tensor it is a view of, as "undetermined"."""
    while "undetermined" not in value.meta:
        node = value.producer()
        if node is None or node.op_type not in _VIEW_OPERATORS or node.inputs[0] is None:
            return ""
        value = node.inputs[0]
    return str(value.meta["undetermined"])


def mark_undetermined(op: Any, x: Any) -> Any:
    """Mark vectors whose signs (and more, for equal values) a factorization does not determine."""
    x = op.Identity(x)
    x.meta["undetermined"] = "the signs of singular vectors and eigenvectors are not unique"
    return x
