"""Sizes, axes and indices that are integers where they are known at conversion and scalar int64 values otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.ir import fold

MOST, LEAST = np.iinfo(np.int64).max, np.iinfo(np.int64).min


def int64(op: Any, x: Any) -> Any:
    """Sizes and indices as int64."""
    return x if not isinstance(x, ir.Value) or x.dtype == ir.DataType.INT64 else op.Cast(x, to=ir.DataType.INT64)


def known_array(x: Any) -> Any:
    """The array of a constant or a literal; None for a value that is known only when the model runs."""
    return fold.constant_array(x) if isinstance(x, ir.Value) else np.asarray(x)


def known_ints(x: Any) -> list[int] | None:
    """The elements of an integer vector or scalar; None if they are known only when the model runs."""
    array = known_array(x)
    return None if array is None else [int(i) for i in array.reshape(-1)]


def length(x: Any, what: str) -> int:
    """The static length of a vector (1 for a scalar).

    Raises:
        Unsupported: if it is dynamic; the message names `what`.
    """
    if not isinstance(x, ir.Value):
        return int(np.size(x))
    n = None if x.shape is None else 1 if len(x.shape) == 0 else x.shape[0]
    if not isinstance(n, int):
        raise Unsupported(f"{what} of unknown length", "give it a static shape")
    return n


def elements(op: Any, vector: Any, count: int) -> list[Any]:
    """The elements of an integer vector, or the one of a scalar."""
    if not isinstance(vector, ir.Value):
        return [int(i) for i in np.reshape(vector, -1)]
    known = fold.known_sizes(vector) or [None] * count
    flat = None
    found: list[Any] = []
    for i, k in enumerate(known):
        if k is None and flat is None:
            flat = op.Reshape(int64(op, vector), [-1])
        found.append(op.Gather(flat, np.int64(i)) if k is None else k)
    return found


def set_rank(x: Any, rank: int | None) -> Any:
    """`x`, declared to have this rank if shape inference does not know its shape."""
    if x.shape is None and rank is not None:
        x.shape = ir.Shape([None] * rank)
    return x


def scalar(op: Any, size: Any) -> Any:
    """A size as a scalar value."""
    return op.constant(np.int64(size)) if not isinstance(size, ir.Value) else size


def vector(op: Any, size: Any) -> Any:
    """A size as a vector with one element."""
    return [int(size)] if not isinstance(size, ir.Value) else op.Reshape(size, [1])


def _binary(name: str, numbers: Any) -> Any:
    def apply(op: Any, a: Any, b: Any) -> Any:
        if not isinstance(a, ir.Value) and not isinstance(b, ir.Value):
            return numbers(int(a), int(b))
        return op.call(name, a, b)

    return apply


add = _binary("Add", lambda a, b: a + b)
subtract = _binary("Sub", lambda a, b: a - b)
multiply = _binary("Mul", lambda a, b: a * b)
divide = _binary("Div", lambda a, b: a // b)
"""Of sizes that are not negative."""
maximum = _binary("Max", max)
minimum = _binary("Min", min)


def divide_up(op: Any, a: Any, b: Any) -> Any:
    """The quotient, rounded up, of sizes that are not negative."""
    return divide(op, subtract(op, add(op, a, b), 1), b)


def same_padding(op: Any, size: Any, kernel: Any, stride: int, dilation: int = 1) -> tuple[Any, Any, Any]:
    """The number of windows along an axis with padding SAME, and the padding before and after it."""
    extent = add(op, multiply(op, subtract(op, kernel, 1), dilation), 1)
    count = divide_up(op, size, stride)
    spanned = add(op, multiply(op, subtract(op, count, 1), stride), extent)
    total = maximum(op, subtract(op, spanned, size), 0)
    before = divide(op, total, 2)
    return count, before, subtract(op, total, before)
