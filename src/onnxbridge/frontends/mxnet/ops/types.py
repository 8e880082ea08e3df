"""Dtypes and shapes in attributes and results."""

from __future__ import annotations

import onnx_ir as ir

from onnxbridge.formats.mxnet.dtypes import dtype_named
from onnxbridge.hub.ir.values import rank

NARROW = frozenset({ir.DataType.INT8, ir.DataType.INT16, ir.DataType.UINT8, ir.DataType.UINT16})
"""Integers for which ONNX has no arithmetic."""


def named(dtype):
    """The ONNX dtype of an attribute."""
    return ir.DataType.from_numpy(dtype_named(dtype))


def as_tuple(value):
    """A tuple attribute; MXNet may write one element as a number."""
    if value is None:
        return ()
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def scalar_shape(op, x, np_shape):
    """A scalar result, which has shape (1,) without np-shape semantics."""
    return x if np_shape or rank(x) else op.Unsqueeze(x, [0])
