"""Dtypes and shapes as the rules ask for them."""

from __future__ import annotations

import onnx_ir as ir

from onnxbridge.formats.mxnet.dtypes import dtype_named
from onnxbridge.hub.ir.values import rank


def named(dtype):
    """The ONNX dtype that an attribute names."""
    return ir.DataType.from_numpy(dtype_named(dtype))


def as_tuple(value):
    """MXNet writes a tuple of one element as a number, too."""
    if value is None:
        return ()
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def scalar_shape(op, x, np_shape):
    """A result without dimensions has shape (1,) where MXNet does not know such."""
    return x if np_shape or rank(x) else op.Unsqueeze(x, [0])
