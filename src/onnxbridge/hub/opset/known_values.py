"""Static information on values for adapters: rank, sizes, dtype and constant elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.ir import fold
from onnxbridge.hub.ir.schemas import plain

FIXED = "onnxbridge.fixed"
"""Key in a value's meta: the input only declares an initializer, as IR versions below 4 require."""
STORED = "onnxbridge.numbers"
"""Key in a value's meta: its constant elements, known before its node was rewritten."""
_DOMAINS = ("", "ai.onnx")
_MAX_ELEMENTS = 64
_INTEGERS = frozenset([ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL])
_HINT = "save the model with its shapes (onnx.shape_inference)"


def rank_of(value: ir.Value) -> int:
    """The number of dimensions."""
    if value.shape is None:
        raise Unsupported(f"the rank of {value.name!r} must be known", _HINT)
    return len(value.shape)


def fixed_shape(value: ir.Value) -> list[int]:
    """The static shape.

    Raises:
        Unsupported: if a size is unknown.
    """
    if value.shape is None or not all(isinstance(d, int) for d in value.shape):
        raise Unsupported(f"the shape of {value.name!r} must be known", _HINT)
    return [int(d) for d in value.shape]  # type: ignore[arg-type]


def dtype_of(value: ir.Value) -> ir.DataType:
    if value.dtype is None:
        raise Unsupported(f"the dtype of {value.name!r} must be known", _HINT)
    return value.dtype


def known(value: ir.Value, depth: int = 32) -> np.ndarray[Any, Any] | None:
    """The elements of a constant value: an initializer that is not an input, a Constant node, or sizes computed from these."""
    if STORED in value.meta:
        return value.meta[STORED]  # type: ignore[no-any-return]
    node = value.producer()
    if node is None:
        replaceable = value.is_graph_input() and not value.meta.get(FIXED)
        return None if replaceable or value.const_value is None else value.const_value.numpy()
    if node.op_type == "Constant" and node.domain in _DOMAINS:
        for attribute in node.attributes.values():
            found = plain(attribute)
            dtype = {"value_float": np.float32, "value_floats": np.float32}.get(attribute.name)
            return np.asarray(found, dtype)
    if node.op_type == "Identity" and node.inputs[0] is not None:
        return known(node.inputs[0], depth)
    found = _computed(node, depth)
    if found is not None:
        return found
    sizes = fold.known_sizes(value) if value.dtype in (ir.DataType.INT64, ir.DataType.INT32) else None
    if sizes is None or None in sizes or value.dtype is None:
        return None
    array = np.array(sizes, value.dtype.numpy())
    return array.reshape(()) if value.shape is not None and len(value.shape) == 0 else array


# Operators on sizes and axes with the same meaning in every version that has these inputs.
_STABLE = frozenset({
    "Abs", "Add", "And", "Cast", "Concat", "ConstantOfShape", "Div", "Equal", "Expand", "Gather", "Greater", "GreaterOrEqual",
    "Less", "LessOrEqual", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "Range", "Reshape", "Slice", "Squeeze", "Sub",
    "Transpose", "Unsqueeze", "Where",
})  # fmt: skip


def _computed(node: ir.Node, depth: int) -> np.ndarray[Any, Any] | None:
    """A small integer result of operators on constants."""
    if node.op_type == "Size" and node.inputs[0] is not None and node.inputs[0].shape is not None:
        dims = list(node.inputs[0].shape)
        return np.array(math.prod(dims), np.int64) if all(isinstance(d, int) for d in dims) else None
    if node.op_type not in _STABLE or node.domain not in _DOMAINS or not depth or len(node.outputs) != 1:
        return None
    arrays = [None if v is None else known(v, depth - 1) for v in node.inputs]
    if not arrays or any(a is None or a.size > _MAX_ELEMENTS or a.dtype.kind not in "iub" for a in arrays):
        return None
    if node.op_type == "Range" and (abs(int(arrays[1]) - int(arrays[0])) > _MAX_ELEMENTS or int(arrays[2]) == 0):
        return None
    if node.op_type == "ConstantOfShape" and math.prod(int(d) for d in arrays[0]) > _MAX_ELEMENTS:
        return None
    if node.op_type in ("Slice", "Squeeze", "Unsqueeze") and len(arrays) < 2:
        return None  # an older version, with an attribute instead of the input
    results = fold.evaluate(node, arrays)
    return None if results is None or results[0].dtype.kind not in "iub" else results[0]


def store_constants(node: ir.Node) -> None:
    """Store the constant integer outputs of a node before it is rewritten, since they may not be computable afterwards."""
    for value in node.outputs:
        if value.dtype in _INTEGERS and value.name and (found := known(value)) is not None:
            value.meta[STORED] = found
