"""Dtypes and shapes as the rules ask for them."""

from __future__ import annotations

import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.runtime.mxnet import dtype_named

INTEGERS = frozenset({
    ir.DataType.INT8, ir.DataType.INT16, ir.DataType.INT32, ir.DataType.INT64,
    ir.DataType.UINT8, ir.DataType.UINT16, ir.DataType.UINT32, ir.DataType.UINT64,
})  # fmt: skip


def named(dtype):
    """The ONNX dtype that an attribute names."""
    return ir.DataType.from_numpy(dtype_named(dtype))


def cast(op, x, dtype):
    """`x` in another dtype, itself where it has that already."""
    return x if x.dtype == dtype else op.Cast(x, to=dtype)


def like(op, x, other):
    """`x` in the dtype of `other`."""
    return cast(op, x, other.dtype)


def is_integer(x):
    return x.dtype in INTEGERS


def rank(x):
    """The number of dimensions.

    Raises:
        Unsupported: if it is not known when converting.
    """
    if x.shape is None:
        raise Unsupported("the rank of its input is not known", hint="give the shapes of the model's inputs")
    return len(x.shape)


def fixed(x, axes=None):
    """The sizes of these axes as numbers, of all axes by default.

    Raises:
        Unsupported: if one is only known when the model runs.
    """
    sizes = [x.shape[a] for a in (range(rank(x)) if axes is None else axes)]
    if not all(isinstance(s, int) for s in sizes):
        raise Unsupported("a size that it needs is only known when the model runs", hint="give the input a fixed shape")
    return sizes


def as_tuple(value):
    """MXNet writes a tuple of one element as a number, too."""
    if value is None:
        return ()
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def scalar_shape(op, x, np_shape):
    """A result without dimensions has shape (1,) where MXNet does not know such."""
    return x if np_shape or rank(x) else op.Unsqueeze(x, [0])
