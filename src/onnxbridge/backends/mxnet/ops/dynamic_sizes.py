"""Arrays whose sizes are known only when the model runs.

MXNet's operators take sizes as attributes. A size that an input of the model has is therefore taken from that input: its elements
along the axis, as zeros, added to ones where the size is needed. For the size T + 1 another zero is appended, for T - 1 the first
is left out, and for T//2 every second is kept. Other sizes are computed (`computed_sizes`).
"""

from __future__ import annotations

import ast

import numpy as np

from onnxbridge.backends.mxnet.ops.computed_sizes import computed_zeros
from onnxbridge.backends.mxnet.ops.types import cast, rank, reshaped, typed
from onnxbridge.backends.mxnet.writer import Value
from onnxbridge.errors import Unsupported


def declared(sym):
    """The declared sizes of the first result that is used: integers, sizes computed from dynamic ones, and None for others.

    None if its rank is not declared.
    """
    shape = next((s for s in sym.expected if s is not None), None)
    if shape is None:
        return None
    return tuple(d if isinstance(d, int) or _expression(sym, d) is not None else None for d in shape)


def result_sizes(sym, computed):
    """The sizes of the result: those that are declared, and `computed(axis)` for others.

    Raises:
        Unsupported: if its rank is not declared.
    """
    shape = declared(sym)
    if shape is None:
        raise Unsupported("a result of unknown rank", "declare the shape of the result")
    return [computed(axis) if d is None else d for axis, d in enumerate(shape)]


def _expression(sym, size):
    """A size such as "T", "4*batch", "T - 1" or "(T + 1)//2", parsed; None where MXNet's operators cannot make it."""
    if size in sym.sizes:  # a name with a hyphen would be a difference
        return ast.Name(size)
    try:
        parsed = ast.parse(size or "", mode="eval").body
    except SyntaxError:
        return None
    return parsed if _can_be_made(sym, parsed) else None


def _can_be_made(sym, node):
    match node:
        case ast.Name(id=name):
            return name in sym.sizes
        case ast.Constant(value=value):
            return isinstance(value, int) and value > 0
        case ast.BinOp(op=ast.Add() | ast.Mult()):
            return _can_be_made(sym, node.left) and _can_be_made(sym, node.right)
        case ast.BinOp(op=ast.Sub() | ast.FloorDiv(), right=ast.Constant()):
            return _can_be_made(sym, node.left) and _can_be_made(sym, node.right)
    return False


def is_static(shape):
    return all(isinstance(d, int) for d in shape)


def ones_of(sym, shape, dtype):
    """Ones of a shape of integers, names of dynamic sizes and computed sizes.

    Times a value they are that value, with the sign of its zero.
    """
    dtype = np.dtype(dtype)
    total = sym.literal(np.ones(tuple(d if isinstance(d, int) else 1 for d in shape), dtype))
    for axis, d in enumerate(shape):
        if not isinstance(d, int):
            along = reshaped(sym, _along(sym, d, dtype), (-1 if i == axis else 1 for i in range(len(shape))))
            total = typed(sym._npi_add(total, typed(along, dtype)), dtype)
    return typed(total, dtype, tuple(d if isinstance(d, (int, str)) else None for d in shape))


def _along(sym, size, dtype):
    """As many zeros as a size that is known only when the model runs."""
    if isinstance(size, Value):
        return cast(sym, computed_zeros(sym, size), dtype)
    return cast(sym, _zeros(sym, _expression(sym, size)), dtype)


def _zeros(sym, node):
    """As many zeros of float32 as the size that a parsed expression computes."""
    match node:
        case ast.Constant(value=count):
            zeros = sym.literal(np.zeros(count, np.float32))
        case ast.BinOp(op=ast.Mult()):
            column, row = _vector(sym, _zeros(sym, node.left), (-1, 1)), _vector(sym, _zeros(sym, node.right), (1, -1))
            zeros = _vector(sym, sym._npi_add(column, row))
        case ast.BinOp(op=ast.Add()):
            zeros = sym.Concat(_zeros(sym, node.left), _zeros(sym, node.right), dim=0)
        case ast.BinOp(op=ast.Sub()):
            zeros = sym.slice_axis(_zeros(sym, node.left), axis=0, begin=node.right.value, end="None")
        case ast.BinOp(op=ast.FloorDiv()):
            step = node.right.value
            zeros = sym.slice(_zeros(sym, node.left), begin=(step - 1,), end=(None,), step=(step,))
        case _:
            value, axis = sym.sizes[node.id]
            for other in range(rank(value)):
                if other != axis:
                    value = typed(sym.slice_axis(value, axis=other, begin=0, end=1), value.dtype, value.shape)
            zeros = cast(sym, typed(_vector(sym, sym.zeros_like(value)), value.dtype, (node.id,)), np.float32)
    return typed(zeros, np.float32, (ast.unparse(node),))


def _vector(sym, value, shape=(-1,)):
    return sym.Reshape(value, shape=shape)


def positions(sym, size):
    """The integers from 0 on, as many as a size says: an integer, a name or a computed size."""
    if isinstance(size, int):
        return sym.literal(np.arange(size, dtype=np.int64))
    zeros = _along(sym, size, np.float64)  # whose positions are exact
    return cast(sym, typed(sym._contrib_arange_like(zeros, start=0, step=1, axis=0), np.float64, zeros.shape), np.int64)


def reshape_codes(data, shape):
    """The sizes that MXNet's Reshape takes for a shape of integers, names and None, None if it cannot say them.

    0 copies the size at the same axis, and -1 is what is left; it may stand once.
    """
    same = [axis < len(data.shape) and d is not None and data.shape[axis] == d for axis, d in enumerate(shape)]
    codes = [d if isinstance(d, int) else 0 if same[axis] else -1 for axis, d in enumerate(shape)]
    return codes if codes.count(-1) <= 1 and 0 not in shape else None
