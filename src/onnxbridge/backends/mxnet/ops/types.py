"""Dtypes and shapes as the rules ask for them."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported

BOOL = np.dtype(bool)


def cast(sym, x, dtype):
    """`x` in another dtype, itself where it has that already."""
    dtype = np.dtype(dtype)
    if x.dtype == dtype:
        return x
    y = sym.Cast(x, dtype=dtype)
    y.dtype, y.shape = dtype, x.shape
    return y


def is_float(x):
    return x.dtype.kind == "f"


def rank(x):
    """The number of dimensions.

    Raises:
        Unsupported: if it is not known when converting.
    """
    if x.shape is None:
        raise Unsupported("the rank of its input is not known", hint="give the model's inputs fixed shapes")
    return len(x.shape)


def fixed(x, axes=None):
    """The sizes of these axes as numbers, of all axes by default.

    Raises:
        Unsupported: if one is only known when the model runs.
    """
    sizes = tuple(x.shape[a] for a in (range(rank(x)) if axes is None else axes))
    if not all(isinstance(s, int) for s in sizes):
        raise Unsupported("a size that it needs is only known when the model runs", hint="give the model's inputs fixed shapes")
    return sizes


def without_bool(sym, function, *inputs):
    """Operators that only move elements, some of which MXNet has not for bools: as bytes, and back."""
    if inputs[0].dtype != BOOL:
        return function(*inputs)
    return cast(sym, _typed(function(*[cast(sym, i, np.uint8) for i in inputs]), np.uint8), BOOL)


def _typed(value, dtype):
    value.dtype = np.dtype(dtype)
    return value


def within(sym, function, dtype, *inputs):
    """Computed in another dtype, the result in that of the first input."""
    result = _typed(function(*[cast(sym, i, dtype) for i in inputs]), dtype)
    return cast(sym, result, inputs[0].dtype)


def reshaped(sym, x, sizes):
    """`x` in the given sizes; -1 is what is left."""
    sizes = tuple(sizes)
    if not sizes or 0 in sizes or (x.shape is not None and 0 in x.shape):
        return sym._np_reshape(x, newshape=sizes)
    return sym.Reshape(x, shape=sizes)


def permuted(sym, x, axes):
    return without_bool(sym, lambda v: sym.transpose(v, axes=tuple(axes)), x)


def sliced(sym, x, axis, begin, end):
    """One axis cut."""
    if begin == end:  # slice_axis has no empty results
        places = [(begin, end) if i == axis % rank(x) else (None, None) for i in range(rank(x))]
        y = sym.slice(x, begin=[p[0] for p in places], end=[p[1] for p in places])
    else:
        y = sym.slice_axis(x, axis=axis, begin=begin, end="None" if end is None else end)
    if x.shape is not None:
        y.shape = tuple(None if i == axis % len(x.shape) else d for i, d in enumerate(x.shape))
    return y
