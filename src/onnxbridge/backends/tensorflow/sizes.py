"""Sizes of symbolic tensors, as ints where they are static."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from onnxbridge.errors import Unsupported


def rank(x: Any) -> int:
    """The number of dimensions."""
    if x.shape.rank is None:
        raise Unsupported("its rank is known only at run time")
    return int(x.shape.rank)


def size(x: Any, axis: int) -> Any:
    """The size of an axis: an int, or a scalar int32 tensor."""
    fixed = None if x.shape.rank is None else x.shape[axis]
    return fixed if fixed is not None else tf.shape(x)[axis]


def sizes(x: Any) -> list[Any]:
    """The sizes of all axes, each an int or a scalar int32 tensor."""
    dynamic = None
    values: list[Any] = []
    for i in range(rank(x)):
        if x.shape[i] is None and dynamic is None:
            dynamic = tf.shape(x)
        values.append(x.shape[i] if x.shape[i] is not None else dynamic[i])  # type: ignore[index]
    return values


def known(x: Any) -> Any:
    """The elements of an integer tensor as a tuple if TensorFlow knows them while tracing, otherwise the tensor."""
    if x is None:
        return None
    array = tf.get_static_value(x)
    return x if array is None else tuple(np.asarray(array).reshape(-1).tolist())


def reshaped(x: Any, shape: Sequence[int]) -> Any:
    """`x` in another shape; a value that is known while tracing stays known."""
    array = tf.get_static_value(x)
    return tf.reshape(x, shape) if array is None else tf.constant(array.reshape(shape), x.dtype)


def packed(dims: Sequence[Any], dtype: Any = tf.int32) -> Any:
    """Ints and scalars as a 1-D tensor."""
    if all(isinstance(d, (int, np.integer)) for d in dims):
        return tf.constant(list(dims), dtype, shape=[len(dims)])
    return tf.stack([tf.cast(d, dtype) for d in dims])


def axis_of(x: Any, axis: int) -> int:
    """A non-negative axis."""
    return axis + rank(x) if axis < 0 else axis


def is_fixed(*dims: Any) -> bool:
    return all(isinstance(d, (int, np.integer)) for d in dims)
