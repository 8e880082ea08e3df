"""Dtypes, ranks and sizes of values."""

from __future__ import annotations

import numpy as np

from onnxbridge.backends.mxnet.writer import Value
from onnxbridge.errors import Unsupported
from onnxbridge.formats.mxnet.read_symbol import literal

BOOL = np.dtype(bool)


def cast(sym, x, dtype):
    """`x` in another dtype, or itself if it has that dtype."""
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
        raise Unsupported("an input of unknown rank", hint="give the model's inputs static shapes")
    return len(x.shape)


def fixed(x, axes=None):
    """The static sizes of these axes, of all axes by default.

    Raises:
        Unsupported: if one is only known when the model runs.
    """
    sizes = tuple(x.shape[a] for a in (range(rank(x)) if axes is None else axes))
    if not all(isinstance(s, int) for s in sizes):
        raise Unsupported("an input of dynamic size", hint="give the model's inputs static shapes")
    return sizes


def without_bool(sym, function, *inputs):
    """For operators that only move elements, some of which MXNet lacks for bools: compute on bytes."""
    if inputs[0].dtype != BOOL:
        return function(*inputs)
    return cast(sym, typed(function(*[cast(sym, i, np.uint8) for i in inputs]), np.uint8), BOOL)


def typed(value, dtype, shape=None):
    """A value just written, with its dtype and, if it is needed, its shape."""
    value.dtype = np.dtype(dtype)
    if shape is not None:
        value.shape = shape
    return value


def within(sym, function, dtype, *inputs):
    """Compute in another dtype, with the result in that of the first input."""
    result = typed(function(*[cast(sym, i, dtype) for i in inputs]), dtype)
    return cast(sym, result, inputs[0].dtype)


def reshaped(sym, x, sizes):
    """`x` reshaped; -1 is inferred. Reshape fails for arrays without elements, as those of a computed size may be."""
    sizes = tuple(sizes)
    if not sizes and not sym.np_shape:  # a scalar has one dimension then
        sizes = (1,)
    maybe_empty = x.shape is not None and (0 in x.shape or (sym.np_shape and None in x.shape))
    if not sizes or 0 in sizes or maybe_empty:
        return sym._np_reshape(x, newshape=sizes)
    return sym.Reshape(x, shape=sizes)


def permuted(sym, x, axes):
    """`x` with its axes permuted; two permutations in a row become one, or none."""
    axes = tuple(axes)
    before = sym.nodes[x.node] if x.node is not None and x.index == 0 else {"op": ""}
    if before["op"] == "transpose":
        inner = literal(before["attrs"]["axes"])
        axes, (node, index, _) = tuple(inner[a] for a in axes), before["inputs"][0]
        x = Value(node, index, x.dtype, None, x.graph)
    if axes == tuple(range(len(axes))):
        return x
    return without_bool(sym, lambda v: sym.transpose(v, axes=axes), x)


def zeros(sym, shape, dtype):
    """An array of zeros, whose dynamic sizes MXNet infers from its use."""
    if all(isinstance(d, int) for d in shape):
        return sym.literal(np.zeros(shape, dtype))
    unknown = -1 if sym.np_shape else 0
    y = sym._zeros(shape=tuple(d if isinstance(d, int) else unknown for d in shape), dtype=np.dtype(dtype))
    y.dtype, y.shape = np.dtype(dtype), tuple(shape)
    return y


def sliced(sym, x, axis, begin, end):
    """A slice along one axis."""
    if x.dtype == BOOL:
        return without_bool(sym, lambda v: sliced(sym, v, axis, begin, end), x)
    if begin == end:  # slice_axis has no empty results
        bounds = [(begin, end) if i == axis % rank(x) else (None, None) for i in range(rank(x))]
        y = sym.slice(x, begin=[p[0] for p in bounds], end=[p[1] for p in bounds])
    else:
        y = sym.slice_axis(x, axis=axis, begin=begin, end="None" if end is None else end)
    if x.shape is not None:
        y.shape = tuple(None if i == axis % len(x.shape) else d for i, d in enumerate(x.shape))
    return y
