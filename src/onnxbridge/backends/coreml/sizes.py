"""Sizes of axes: Python integers where they are static, int32 MIL values where they are dynamic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil.mil import types
from coremltools.converters.mil.mil.types.symbolic import is_symbolic

from onnxbridge.backends.coreml.element_types import Array, cast, like
from onnxbridge.errors import Unsupported


def fixed(x: Any, axes: Sequence[int] | None = None) -> bool:
    """Whether all sizes of `x`, or those of the given axes, are static."""
    return not any(is_symbolic(x.shape[a]) for a in (range(x.rank) if axes is None else axes))


def numbers(x: Any, what: str = "its shape") -> tuple[int, ...]:
    """The static shape of `x`.

    Raises:
        Unsupported: if a size is dynamic.
    """
    if not fixed(x):
        raise Unsupported(f"{what} must be fixed", "give the input a fixed shape")
    return tuple(int(d) for d in x.shape)


def known(x: Any) -> tuple[int, ...] | None:
    """The elements of a constant 0-D or 1-D integer value, None for a value computed at run time."""
    if x is None or x.val is None:
        return None
    return tuple(int(i) for i in np.asarray(x.val).reshape(-1))


def size(x: Any, axis: int) -> Any:
    """The size of one axis: an integer, or a scalar MIL value."""
    if not is_symbolic(x.shape[axis]):
        return int(x.shape[axis])
    axis %= x.rank
    return mb.slice_by_index(x=mb.shape(x=x), begin=[axis], end=[axis + 1], squeeze_mask=[True])


def sizes(x: Any) -> list[Any]:
    return [size(x, axis) for axis in range(x.rank)]


def _is_size(x: Any) -> bool:
    """Whether coremltools tracks these numbers as symbolic sizes."""
    return not isinstance(x, np.ndarray) and x.val is None and x.sym_val is not None


def squeezed(x: Any) -> Any:
    """A vector of one element as a scalar. Symbolic sizes stay tracked, which MIL's squeeze loses."""
    return mb.slice_by_index(x=x, begin=[0], end=[1], squeeze_mask=[True]) if _is_size(x) else mb.squeeze(x=x, axes=[0])


def unsqueezed(x: Any) -> Any:
    """A scalar as a vector of one element. Symbolic sizes stay tracked, which MIL's expand_dims loses."""
    return mb.reshape(x=x, shape=[1]) if _is_size(x) else mb.expand_dims(x=x, axes=[0])


def vector(items: Sequence[Any]) -> Any:
    """Integers and scalar values as one 1-D value: an array if all are integers."""
    if all(isinstance(i, (int, np.integer)) for i in items):
        return np.array(items, np.int32)
    parts = [np.array([i], np.int32) if isinstance(i, (int, np.integer)) else unsqueezed(i) for i in items]
    return parts[0] if len(parts) == 1 else mb.concat(values=parts, axis=0)


def reshaped(x: Any, items: Sequence[Any]) -> Any:
    """Reshape `x` to the given sizes; a single dynamic size becomes -1."""
    if sum(not isinstance(i, (int, np.integer)) for i in items) == 1 and -1 not in [i for i in items if isinstance(i, int)]:
        items = [i if isinstance(i, (int, np.integer)) else -1 for i in items]
    if all(isinstance(i, (int, np.integer)) for i in items) and not items:
        return mb.squeeze(x=x) if x.rank else x
    return mb.reshape(x=x, shape=vector(items))


def product(items: Sequence[Any]) -> Any:
    """The product of sizes: an integer, or a scalar value."""
    total: Any = math.prod(int(i) for i in items if isinstance(i, (int, np.integer)))
    for i in items:
        if not isinstance(i, (int, np.integer)):
            total = mb.mul(x=i, y=np.int32(total)) if isinstance(total, int) else mb.mul(x=total, y=i)
    return total


def along(values: Array, axis: int, rank: int) -> Array:
    """Reshape a 1-D array so that it broadcasts along one axis of a tensor of that rank."""
    return values.reshape([-1 if a == axis % rank else 1 for a in range(rank)])


def broadcast(x: Any, shape: Any) -> Any:
    """Broadcast `x` to a shape given as integers or as a 1-D value: by tiling, or by adding zeros of that shape."""
    if isinstance(shape, (tuple, list)) and all(isinstance(n, (int, np.integer)) for n in shape) and fixed(x):
        x = x if x.rank == len(shape) else reshaped(x, [1] * (len(shape) - x.rank) + [int(n) for n in x.shape])
        reps = [int(t) // int(n) for t, n in zip(shape, x.shape, strict=True)]
        return mb.tile(x=x, reps=reps) if any(r != 1 for r in reps) else x
    shape = vector(shape) if isinstance(shape, (tuple, list)) else shape
    if x.dtype == types.bool:
        return mb.logical_and(x=x, y=mb.cast(x=mb.fill(shape=shape, value=np.int32(1)), dtype="bool"))
    return mb.add(x=x, y=mb.fill(shape=shape, value=like(x, 0)[()]))


def select(cond: Any, a: Any, b: Any) -> Any:
    """`a` where the condition is true, else `b`. MIL's select does not broadcast them to the condition's shape."""
    shape = np.broadcast_shapes(*(tuple(d if isinstance(d, (int, np.integer)) else 1 for d in v.shape) for v in (a, b)))
    cond_shape = tuple(cond.shape)
    wider = len(cond_shape) > len(shape) or any(
        is_symbolic(n) or n != 1 and m == 1 for n, m in zip(cond_shape[::-1], shape[::-1], strict=False)
    )
    if wider:
        if all(fixed(v) for v in (cond, a, b) if not isinstance(v, np.ndarray)):
            a = broadcast_static(a, np.broadcast_shapes(shape, cond_shape))
        else:
            zeros = mb.mul(x=mb.cast(x=cond, dtype="int32"), y=np.int32(0))
            dtype = a.dtype
            a = (
                cast(mb.add(x=cast(a, types.int32), y=zeros), dtype)
                if dtype in (types.bool, types.int32)
                else mb.add(x=a, y=cast(zeros, dtype))
            )
    return mb.select(cond=cond, a=a, b=b)


def broadcast_static(a: Any, shape: Sequence[int]) -> Any:
    return np.broadcast_to(a, shape) if isinstance(a, np.ndarray) else broadcast(a, tuple(shape))
