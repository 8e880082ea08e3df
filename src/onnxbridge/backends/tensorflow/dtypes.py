"""The hub's element types in TensorFlow.

TensorFlow has names for the types of four and two bits and for some of eight, but hardly a kernel. Inside a model and in its
files they are carried in a type that represents all of their values: integers as int8 or uint8, floats as float16 or float64.
A module that is called on tensors of TensorFlow's own types converts them, and returns such.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import tensorflow as tf

from onnxbridge.errors import Unsupported
from onnxbridge.hub.ir.values import dtype_name

D = ir.DataType
CARRIED = {
    D.INT4: tf.int8, D.INT2: tf.int8, D.UINT4: tf.uint8, D.UINT2: tf.uint8,
    D.FLOAT4E2M1: tf.float16, D.FLOAT8E4M3FNUZ: tf.float16, D.FLOAT8E5M2FNUZ: tf.float16, D.FLOAT8E8M0: tf.float64,
}  # fmt: skip
"""The dtype that carries the values of a type."""


def of(dtype: ir.DataType) -> Any:
    """The dtype of a value's tensor.

    Raises:
        Unsupported: if TensorFlow has no dtype that represents its values.
    """
    if dtype == D.STRING:
        return tf.string
    if dtype in CARRIED:
        return CARRIED[dtype]
    try:
        return tf.as_dtype(dtype.numpy())
    except TypeError as e:
        raise Unsupported(f"TensorFlow has no {dtype_name(dtype)}") from e


def attribute(number: int) -> Any:
    """The dtype for the number in an attribute such as Cast's `to`."""
    return of(D(number))


def marked(value: Any, dtype: ir.DataType | None) -> Any:
    """Note on a tensor that it carries values of this hub type."""
    if dtype in CARRIED and isinstance(value, tf.Tensor):
        value.hub_dtype = dtype
    return value


def hub(value: Any) -> ir.DataType:
    """The hub type of a tensor's values."""
    found: ir.DataType | None = getattr(value, "hub_dtype", None)
    if found is not None:
        return found
    return D.STRING if value.dtype == tf.string else D.from_numpy(np.dtype(value.dtype.as_numpy_dtype))


def carried(value: Any, dtype: ir.DataType) -> Any:
    """An array or tensor of a carried type, or a list of such, as its carrier."""
    if value is None or isinstance(value, (list, tuple)):
        return value if value is None else [carried(v, dtype) for v in value]
    kind = CARRIED[dtype]
    if isinstance(value, tf.Tensor) and (value.dtype == kind or not hasattr(value, "numpy")):
        return value if value.dtype == kind else tf.cast(value, kind)
    return tf.constant(np.asarray(value).astype(kind.as_numpy_dtype), kind)


def uncarried(value: Any, dtype: ir.DataType) -> Any:
    """A carrier as a tensor of TensorFlow's own type, if it has it and the value is known."""
    if isinstance(value, (list, tuple)):
        return [uncarried(v, dtype) for v in value]
    if not hasattr(value, "numpy"):
        return value
    try:
        return tf.constant(value.numpy().astype(dtype.numpy()), tf.as_dtype(dtype.numpy()))
    except TypeError:
        return value
