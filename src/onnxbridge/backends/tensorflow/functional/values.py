"""Questions about hub values that the rules for layers ask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.backends.tensorflow.functional.expressions import Weight
from onnxbridge.hub.ir.fold import constant_array
from onnxbridge.hub.ir.provenance import is_fixed
from onnxbridge.hub.ir.trainable import is_trained

FLOATS = {
    ir.DataType.FLOAT: "float32", ir.DataType.DOUBLE: "float64", ir.DataType.FLOAT16: "float16", ir.DataType.BFLOAT16: "bfloat16",
}  # fmt: skip
SMALL = 1024
"""Constants of at most so many elements that are not trained are part of the graph, larger ones are weights."""


def is_float(*values: ir.Value) -> bool:
    """Whether all values have the same floating-point dtype, which Keras layers support."""
    return values[0].dtype in FLOATS and all(v.dtype == values[0].dtype for v in values)


def dtype_config(value: ir.Value) -> dict[str, Any]:
    """The argument `dtype` of a layer on this value, left out where it is the default."""
    assert value.dtype is not None
    return {} if value.dtype == ir.DataType.FLOAT else {"dtype": FLOATS[value.dtype]}


def dims(value: ir.Value) -> list[int | None]:
    """The sizes of a value of known rank, None for dynamic ones."""
    assert value.shape is not None
    return [d if isinstance(d, int) else None for d in value.shape]


def sizes_of(value: ir.Value) -> list[int]:
    """The sizes of a constant."""
    assert value.const_value is not None
    return list(value.const_value.shape.numpy())


def rank(value: ir.Value | None) -> int:
    """The rank of a value, -1 where it is not known."""
    return -1 if value is None or value.shape is None else len(value.shape)


def same_size(a: ir.Value, b: ir.Value, axis: int = 0) -> bool:
    """Whether two values have provably the same size along an axis."""
    assert a.shape is not None and b.shape is not None
    one, other = a.shape[axis], b.shape[axis]
    named = isinstance(one, ir.SymbolicDim) and isinstance(other, ir.SymbolicDim) and one.value is not None
    return one == other and (isinstance(one, int) or named)


def is_weight(value: ir.Value | None) -> bool:
    """Whether a value is a constant of which a layer can have a weight of its own."""
    if value is None or value.const_value is None or value.dtype not in FLOATS:
        return False
    return is_owned(value) or not (is_trained(value) or value.const_value.size > SMALL)


def is_owned(value: ir.Value) -> bool:
    """Whether a weight belongs to one operator only, or to equal operators, which are one layer that is called repeatedly."""
    uses = list(value.uses())
    nodes = [node for node, _ in uses]
    return value.producer() is None and len({index for _, index in uses}) == 1 and all(_equal(nodes[0], n) for n in nodes[1:])


def _equal(a: ir.Node, b: ir.Node) -> bool:
    """Whether two nodes are the same operator with the same attributes and weights."""
    same_attributes = a.attributes.keys() == b.attributes.keys() and all(
        a.attributes[k].value == b.attributes[k].value for k in a.attributes
    )
    if a.op_identifier() != b.op_identifier() or not same_attributes or len(a.inputs) != len(b.inputs):
        return False
    weights = [[v if v is not None and v.const_value is not None else None for v in n.inputs] for n in (a, b)]
    return a.graph is b.graph and all(x is y for x, y in zip(*weights, strict=True))


def known(value: ir.Value | None) -> np.ndarray[Any, Any] | None:
    """The array of a constant that is not trained, None for other values."""
    if value is None or value.const_value is None or (is_trained(value) and not is_fixed(value.const_value)):
        return None
    return constant_array(value) if value.const_value.size <= SMALL else None


def ints(value: ir.Value | None) -> list[int] | None:
    """The elements of a constant of integers, None for other values."""
    array = constant_array(value) if value is not None and value.dtype in (ir.DataType.INT64, ir.DataType.INT32) else None
    return None if array is None else [int(i) for i in array.reshape(-1)]


def weight(value: ir.Value, perm: Sequence[int] | None = None, shape: Sequence[int] | None = None) -> Weight:
    """A weight of a layer: a hub weight, transposed and reshaped."""

    def array() -> np.ndarray[Any, Any]:
        found = constant_array(value)
        assert found is not None
        found = found if perm is None else found.transpose(perm)
        return found if shape is None else found.reshape(shape)

    return Weight((value,), array)


def only_user(value: ir.Value) -> ir.Node | None:
    """The only node that reads a value, if it is no output of the model."""
    uses = list(value.uses())
    return uses[0].node if len(uses) == 1 and not value.is_graph_output() else None
