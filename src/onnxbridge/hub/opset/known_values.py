"""What adapters must know of a value: its rank, its sizes, its dtype, and its numbers where they are constant."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.ir import fold
from onnxbridge.hub.ir.schemas import plain

FIXED = "onnxbridge.fixed"
"""Marks an input that stands for its initializer only, as IR versions below 4 wanted it."""
NUMBERS = "onnxbridge.numbers"
"""Holds the numbers of a value that were known before its node was written again."""
_DOMAINS = ("", "ai.onnx")
_MOST = 64
_WHOLE = frozenset([ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL])
_HINT = "save the model with its shapes (onnx.shape_inference)"


def rank_of(value: ir.Value) -> int:
    """The number of dimensions."""
    if value.shape is None:
        raise Unsupported(f"the rank of {value.name!r} must be known", _HINT)
    return len(value.shape)


def fixed_shape(value: ir.Value) -> list[int]:
    """The sizes, all of them known."""
    if value.shape is None or not all(isinstance(d, int) for d in value.shape):
        raise Unsupported(f"the shape of {value.name!r} must be known", _HINT)
    return [int(d) for d in value.shape]  # type: ignore[arg-type]


def dtype_of(value: ir.Value) -> ir.DataType:
    if value.dtype is None:
        raise Unsupported(f"the dtype of {value.name!r} must be known", _HINT)
    return value.dtype


def known(value: ir.Value, depth: int = 32) -> np.ndarray[Any, Any] | None:
    """The constant behind a value: a tensor that no input may replace, a Constant node, or sizes worked out of these."""
    if NUMBERS in value.meta:
        return value.meta[NUMBERS]  # type: ignore[no-any-return]
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
    sizes = fold.sizes(value) if value.dtype in (ir.DataType.INT64, ir.DataType.INT32) else None
    if sizes is None or None in sizes or value.dtype is None:
        return None
    array = np.array(sizes, value.dtype.numpy())
    return array.reshape(()) if value.shape is not None and len(value.shape) == 0 else array


# Operators on sizes and axes that mean the same in every version that has these inputs.
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
    if not arrays or any(a is None or a.size > _MOST or a.dtype.kind not in "iub" for a in arrays):
        return None
    if node.op_type == "Range" and (abs(int(arrays[1]) - int(arrays[0])) > _MOST or int(arrays[2]) == 0):
        return None
    if node.op_type == "ConstantOfShape" and math.prod(int(d) for d in arrays[0]) > _MOST:
        return None
    if node.op_type in ("Slice", "Squeeze", "Unsqueeze") and len(arrays) < 2:
        return None  # what is an input today was an attribute
    results = fold.evaluate(node, arrays)
    return None if results is None or results[0].dtype.kind not in "iub" else results[0]


def remember(node: ir.Node) -> None:
    """Keep the sizes and axes that a node gives, where they are known, for when an older version hides how they came about."""
    for value in node.outputs:
        if value.dtype in _WHOLE and value.name and (found := known(value)) is not None:
            value.meta[NUMBERS] = found
