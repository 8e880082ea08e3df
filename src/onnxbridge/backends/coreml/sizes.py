"""Sizes of axes: numbers where they are fixed, int32 values where the input decides them."""

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
    """Whether all sizes of `x`, or those of the given axes, are numbers."""
    return not any(is_symbolic(x.shape[a]) for a in (range(x.rank) if axes is None else axes))


def numbers(x: Any, what: str = "its shape") -> tuple[int, ...]:
    """The shape of `x` as numbers.

    Raises:
        Unsupported: if a size is only known when the model runs.
    """
    if not fixed(x):
        raise Unsupported(f"{what} must be fixed", "give the input a fixed shape")
    return tuple(int(d) for d in x.shape)


def known(x: Any) -> tuple[int, ...] | None:
    """The elements of a 0-d or 1-D integer value, None where only the running model knows them."""
    if x is None or x.val is None:
        return None
    return tuple(int(i) for i in np.asarray(x.val).reshape(-1))


def size(x: Any, axis: int) -> Any:
    """The size of one axis: a number, or a scalar value."""
    if not is_symbolic(x.shape[axis]):
        return int(x.shape[axis])
    axis %= x.rank
    return mb.slice_by_index(x=mb.shape(x=x), begin=[axis], end=[axis + 1], squeeze_mask=[True])


def sizes(x: Any) -> list[Any]:
    return [size(x, axis) for axis in range(x.rank)]


def _is_size(x: Any) -> bool:
    """Whether coremltools knows which sizes of the input these numbers are."""
    return not isinstance(x, np.ndarray) and x.val is None and x.sym_val is not None


def squeezed(x: Any) -> Any:
    """The scalar in a vector of one. A size stays known as one, which MIL's squeeze forgets."""
    return mb.slice_by_index(x=x, begin=[0], end=[1], squeeze_mask=[True]) if _is_size(x) else mb.squeeze(x=x, axes=[0])


def unsqueezed(x: Any) -> Any:
    """A scalar as a vector of one. A size stays known as one, which MIL's expand_dims forgets."""
    return mb.reshape(x=x, shape=[1]) if _is_size(x) else mb.expand_dims(x=x, axes=[0])


def vector(items: Sequence[Any]) -> Any:
    """Numbers and scalar values as one 1-D value: an array where all are numbers."""
    if all(isinstance(i, (int, np.integer)) for i in items):
        return np.array(items, np.int32)
    parts = [np.array([i], np.int32) if isinstance(i, (int, np.integer)) else unsqueezed(i) for i in items]
    return parts[0] if len(parts) == 1 else mb.concat(values=parts, axis=0)


def reshaped(x: Any, items: Sequence[Any]) -> Any:
    """`x` in the given sizes; -1 stands for the only one that is a value."""
    if sum(not isinstance(i, (int, np.integer)) for i in items) == 1 and -1 not in [i for i in items if isinstance(i, int)]:
        items = [i if isinstance(i, (int, np.integer)) else -1 for i in items]
    if all(isinstance(i, (int, np.integer)) for i in items) and not items:
        return mb.squeeze(x=x) if x.rank else x
    return mb.reshape(x=x, shape=vector(items))


def product(items: Sequence[Any]) -> Any:
    """The product of sizes: a number, or a scalar value."""
    total: Any = math.prod(int(i) for i in items if isinstance(i, (int, np.integer)))
    for i in items:
        if not isinstance(i, (int, np.integer)):
            total = mb.mul(x=i, y=np.int32(total)) if isinstance(total, int) else mb.mul(x=total, y=i)
    return total


def along(values: Array, axis: int, rank: int) -> Array:
    """A 1-D array shaped so that it broadcasts along one axis of a tensor of that rank."""
    return values.reshape([-1 if a == axis % rank else 1 for a in range(rank)])


def broadcast(x: Any, shape: Any) -> Any:
    """`x` in a shape that it broadcasts to, given as numbers or as a 1-D value: by tiling, or by adding zeros of that shape."""
    if isinstance(shape, (tuple, list)) and all(isinstance(n, (int, np.integer)) for n in shape) and fixed(x):
        x = x if x.rank == len(shape) else reshaped(x, [1] * (len(shape) - x.rank) + [int(n) for n in x.shape])
        reps = [int(t) // int(n) for t, n in zip(shape, x.shape, strict=True)]
        return mb.tile(x=x, reps=reps) if any(r != 1 for r in reps) else x
    shape = vector(shape) if isinstance(shape, (tuple, list)) else shape
    if x.dtype == types.bool:
        return mb.logical_and(x=x, y=mb.cast(x=mb.fill(shape=shape, value=np.int32(1)), dtype="bool"))
    return mb.add(x=x, y=mb.fill(shape=shape, value=like(x, 0)[()]))


def select(cond: Any, a: Any, b: Any) -> Any:
    """`a` where the condition holds, else `b`; MIL's own does not stretch them to the condition's shape."""
    both = np.broadcast_shapes(*(tuple(d if isinstance(d, (int, np.integer)) else 1 for d in v.shape) for v in (a, b)))
    asked = tuple(cond.shape)
    wider = len(asked) > len(both) or any(
        is_symbolic(n) or n != 1 and m == 1 for n, m in zip(asked[::-1], both[::-1], strict=False)
    )
    if wider:
        if all(fixed(v) for v in (cond, a, b) if not isinstance(v, np.ndarray)):
            a = stretched(a, np.broadcast_shapes(both, asked))
        else:
            zeros = mb.mul(x=mb.cast(x=cond, dtype="int32"), y=np.int32(0))
            kind = a.dtype
            a = (
                cast(mb.add(x=cast(a, types.int32), y=zeros), kind)
                if kind in (types.bool, types.int32)
                else mb.add(x=a, y=cast(zeros, kind))
            )
    return mb.select(cond=cond, a=a, b=b)


def stretched(a: Any, shape: Sequence[int]) -> Any:
    return np.broadcast_to(a, shape) if isinstance(a, np.ndarray) else broadcast(a, tuple(shape))
