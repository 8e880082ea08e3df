"""TensorFlow's operator definitions as schemas, and attributes as Python values."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxbridge.frontends.tensorflow.dtypes import hub_dtype
from onnxbridge.hub.ir import strings
from onnxbridge.lowering import Schema

# These control devices, speed, checks and training, and do not affect the result.
IRRELEVANT = frozenset({
    "use_cudnn_on_gpu", "parallel_iterations", "validate_indices", "bad_indices_policy", "container", "shared_name",
    "incompatible_shape_error", "message", "grad_a", "grad_b", "validate_shape", "lower_bound_check",
})  # fmt: skip


@dataclass(frozen=True)
class Definition:
    """An operator's definition: its schema, how its inputs are grouped, and which attributes rules receive.

    `groups` has for each input its (number attribute, type list attribute), "" for a single tensor.
    """

    schema: Schema
    groups: tuple[tuple[str, str], ...]
    attrs: tuple[str, ...]


@functools.cache
def definition(op_type: str) -> Definition | None:
    """The definition registered in TensorFlow, or None for an unknown operator."""
    from tensorflow.python.framework import op_def_registry

    found = op_def_registry.get(op_type)
    return None if found is None else define(found)


def define(op_def: Any) -> Definition:
    """The definition from an OpDef.

    Attributes that repeat the inputs' types or number, or that do not affect the result, are omitted.
    """
    repeated = {n for a in op_def.input_arg for n in (a.type_attr, a.number_attr, a.type_list_attr)}
    names = tuple(
        a.name for a in op_def.attr if a.name not in repeated and a.name not in IRRELEVANT and not a.name.startswith("_")
    )
    defaults = {a.name: plain(a.default_value) for a in op_def.attr if a.name in names and a.HasField("default_value")}
    groups = tuple((a.number_attr, a.type_list_attr) for a in op_def.input_arg)
    return Definition(Schema(tuple(a.name for a in op_def.input_arg), defaults), groups, names)


def plain(value: Any) -> Any:
    """An AttrValue as a Python value: string, number, tuple, hub dtype, or shape (None for an unknown size)."""
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind != "list":
        return _one(kind, getattr(value, kind))
    for field, items in value.list.ListFields():
        return tuple(_one(field.name, i) for i in items)
    return ()


def _one(kind: str, item: Any) -> Any:
    if kind == "s":
        try:
            return item.decode()
        except UnicodeDecodeError:
            return item
    if kind == "type":
        import tensorflow as tf

        return hub_dtype(tf.as_dtype(item))
    if kind == "shape":
        return None if item.unknown_rank else tuple(d.size if d.size >= 0 else None for d in item.dim)
    if kind == "tensor":
        return array(item)
    return item


def array(proto: Any) -> np.ndarray[Any, Any]:
    """A TensorProto as an array, without copying its bytes; strings as `str`."""
    import tensorflow as tf

    dtype = tf.as_dtype(proto.dtype)
    shape = [d.size for d in proto.tensor_shape.dim]
    if proto.tensor_content and dtype != tf.string:
        return _stored(np.frombuffer(proto.tensor_content, dtype.as_numpy_dtype)).reshape(shape)
    made: np.ndarray[Any, Any] = tf.make_ndarray(proto)
    return strings.decoded(made) if dtype == tf.string else _stored(made)


def _stored(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The integers of a quantized type, which are a field in NumPy."""
    fields = array.dtype.names
    return array[fields[0]] if fields else array


def eager_array(tensor: Any) -> np.ndarray[Any, Any]:
    """An eager tensor as an array on its own memory. While it is referenced, TensorFlow writes the variable elsewhere.

    Strings are copied, as `str`.
    """
    import tensorflow as tf

    found = tensor._numpy()
    return strings.decoded(found) if tensor.dtype == tf.string else np.asarray(found)


def groups_of(op: Any, known: Definition) -> list[Any]:
    """An operator's inputs as in its definition: a tuple for a parameter that takes several tensors."""
    flat, grouped = list(op.inputs), []
    for number, types in known.groups:
        if number or types:
            count = op.get_attr(number) if number else len(op.get_attr(types))
            grouped.append(tuple(flat[:count]))
            del flat[:count]
        else:
            grouped.append(flat.pop(0))
    return grouped
