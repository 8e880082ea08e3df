"""Arrays whose sizes are known only when the model runs.

MXNet's operators take sizes as attributes. A size that an input of the model has is therefore taken from that input: its elements
along the axis, as zeros, added to ones where the size is needed.
"""

from __future__ import annotations

import numpy as np

from onnxbridge.backends.mxnet.ops.types import cast, rank, typed
from onnxbridge.errors import Unsupported

HINT = "make it a constant, or give the input a fixed shape"


def declared_shape(sym, name):
    """The declared shape of the result, which says what the input `name` would: integers, names of dynamic sizes, and products.

    Raises:
        Unsupported: if a size is none of these.
    """
    shape = sym.expected[0] if sym.expected else None
    if shape is None or not all(isinstance(d, int) or _factors(sym, d) for d in shape):
        raise Unsupported(f"input {name!r} must be known when converting", HINT)
    return shape


def declared_sizes(sym, name):
    """The declared shape of the result as integers.

    Raises:
        Unsupported: if a size is dynamic.
    """
    shape = declared_shape(sym, name)
    if not is_static(shape):
        raise Unsupported(f"input {name!r} must be known when converting", HINT)
    return shape


def _factors(sym, size):
    """The factors of a size such as "4*batch", each an integer or the name of a size; None if there are others."""
    parts = [int(part) if part.isdigit() else part for part in (size or "").split("*")]
    return parts if all(isinstance(part, int) or part in sym.sizes for part in parts) else None


def is_static(shape):
    return all(isinstance(d, int) for d in shape)


def ones_of(sym, shape, dtype):
    """Ones of a shape of integers and names of dynamic sizes. Times a value they are that value, with the sign of its zero."""
    dtype = np.dtype(dtype)
    total = sym.literal(np.ones(tuple(d if isinstance(d, int) else 1 for d in shape), dtype))
    for axis, d in enumerate(shape):
        if not isinstance(d, int):
            along = sym.Reshape(_along(sym, d, dtype), shape=tuple(-1 if i == axis else 1 for i in range(len(shape))))
            total = typed(sym._npi_add(total, typed(along, dtype)), dtype)
    return typed(total, dtype, tuple(shape))


def _along(sym, name, dtype):
    """As many zeros as a size that has a name, or as a product of such sizes."""
    factors = _factors(sym, name)
    if len(factors) > 1:
        value = ones_of(sym, factors, dtype)
    else:
        value, axis = sym.sizes[name]
        for other in range(rank(value)):
            if other != axis:
                value = typed(sym.slice_axis(value, axis=other, begin=0, end=1), value.dtype, value.shape)
    return cast(sym, typed(sym.Reshape(sym.zeros_like(value), shape=(-1,)), value.dtype, (name,)), dtype)


def count(sym, name, dtype):
    """The integers from 0 on, as many as a size that has a name."""
    numbers = typed(sym._contrib_arange_like(_along(sym, name, np.float32), start=0, step=1, axis=0), np.float32, (name,))
    return cast(sym, numbers, dtype)


def reshape_codes(data, shape):
    """The sizes that MXNet's Reshape takes for a shape of integers and names, None if it cannot say them.

    0 copies the size at the same axis, and -1 is what is left; it may stand once.
    """
    same = [axis < len(data.shape) and data.shape[axis] == d for axis, d in enumerate(shape)]
    codes = [d if isinstance(d, int) else 0 if same[axis] else -1 for axis, d in enumerate(shape)]
    return codes if codes.count(-1) <= 1 and 0 not in shape else None
