"""LabelEncoder: a list of classes with their indices at first, later keys and values of any dtype."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.opset.adapters import down, up
from onnxbridge.hub.opset.known_values import dtype_of

ML = "ai.onnx.ml"
_LISTS = {"STRING": "strings", "INT64": "int64s", "FLOAT": "floats"}
_DEFAULTS = {"STRING": "default_string", "INT64": "default_int64", "FLOAT": "default_float"}


@up(f"{ML}::LabelEncoder", to=2)
def keys_and_values(op, X, *, classes_strings=None, default_int64=-1, default_string="_Unused"):
    """Classes were mapped to their indices, and indices to classes."""
    indices = list(range(len(classes_strings or ())))
    if dtype_of(X) == ir.DataType.STRING:
        attributes = {"keys_strings": classes_strings, "values_int64s": indices, "default_int64": default_int64}
    else:
        attributes = {"keys_int64s": indices, "values_strings": classes_strings, "default_string": default_string}
    return op.LabelEncoder(X, domain=ML, **attributes)


@down(f"{ML}::LabelEncoder", to=3)
def lists(
    op, X, *, default_float=-0.0, default_int64=-1, default_string="_Unused", default_tensor=None, keys_floats=None,
    keys_int64s=None, keys_strings=None, keys_tensor=None, values_floats=None, values_int64s=None, values_strings=None,
    values_tensor=None,
):  # fmt: skip
    """Tensors as lists; 16-bit and 32-bit integers as int64."""
    attributes = {
        "keys_floats": keys_floats, "keys_int64s": keys_int64s, "keys_strings": keys_strings, "values_floats": values_floats,
        "values_int64s": values_int64s, "values_strings": values_strings, "default_float": default_float,
        "default_int64": default_int64, "default_string": default_string,
    }  # fmt: skip
    result = dtype_of(X)
    for role, tensor in (("keys", keys_tensor), ("values", values_tensor)):
        if tensor is not None:
            attributes[f"{role}_{_as_list(op, tensor, role)[0]}"] = _as_list(op, tensor, role)[1]
            result = ir.DataType.from_numpy(tensor.dtype) if tensor.dtype != object else ir.DataType.STRING
        elif role == "values":
            result = next(ir.DataType[k] for k, v in _LISTS.items() if attributes[f"values_{v}"] is not None)
    if default_tensor is not None:
        kind, numbers = _as_list(op, default_tensor.reshape(-1), "default")
        attributes[_DEFAULTS[next(k for k, v in _LISTS.items() if v == kind)]] = numbers[0]
    x = X
    if dtype_of(X).name not in _LISTS:
        x = op.Cast(X, to=ir.DataType.INT64 if dtype_of(X).is_integer() else ir.DataType.FLOAT)
    y = op.LabelEncoder(x, domain=ML, **{k: v for k, v in attributes.items() if v is not None})
    return y if result.name in _LISTS else op.Cast(y, to=result)


def _as_list(op, tensor, role):
    """The attribute suffix for a tensor's elements, and the elements as a list."""
    if tensor.dtype == object or tensor.dtype.kind in "US":
        return "strings", [str(t) for t in tensor.tolist()]
    if tensor.dtype.kind in "iu":
        return "int64s", tensor.astype(np.int64).tolist()
    if tensor.dtype == np.float64:
        op.loses(f"the {role} are float64, rounded to float32")
    return "floats", tensor.astype(np.float32).tolist()


@down(f"{ML}::LabelEncoder", to=1)
def classes(
    op, X, *, default_float=-0.0, default_int64=-1, default_string="_Unused", keys_floats=None, keys_int64s=None,
    keys_strings=None, values_floats=None, values_int64s=None, values_strings=None,
):  # fmt: skip
    """Only classes and their indices can be represented, not general keys and values."""
    names, indices = (keys_strings, values_int64s) if keys_strings else (values_strings, keys_int64s)
    if not names or not indices or sorted(indices) != list(range(len(indices))):
        raise Unsupported("ai.onnx.ml 2 added keys and values other than classes and their indices")
    order = [names[list(indices).index(i)] for i in range(len(indices))]
    if len(set(order)) != len(order) and keys_strings:
        raise Unsupported("a class has two indices")
    return op.LabelEncoder(X, classes_strings=order, default_int64=default_int64, default_string=default_string, domain=ML)
