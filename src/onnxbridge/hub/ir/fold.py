"""Constant folding, including static shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.entry_points import evaluator_rules
from onnxbridge.hub.io.resource_limits import folding
from onnxbridge.hub.ir import provenance
from onnxbridge.hub.ir.schemas import array_of, binding_of, name_of, plain
from onnxbridge.lowering import Call, bind

FOLDED_ELEMENTS = 1 << 16
"""Nodes on constants are folded up to this many output elements; larger results stay nodes, which keeps files small."""
COMPUTED = "computed"
"""Key in a value's meta that marks a constant which is neither a weight nor computed from one; it has no name in the source."""
# These only change the layout of their data and are folded at any size: weights are then transposed once, not at every run.
_LAYOUT_OPS = frozenset({"Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"})
# Quantized weights are not folded: dequantized they are larger, and ONNX Runtime requantizes floating-point weights between
# quantized tensors to eight bits by its own rule.
_NOT_FOLDED = frozenset(
    {
        "DequantizeLinear", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial",
    }
)  # fmt: skip


FORMULA = "formula"
"""Key in a value's meta: the `Formula` of a constant that was computed from weights."""
_FORMULA_OPS = frozenset({"Add", "Sub", "Mul", "Div", "Neg", "Sqrt", "Reciprocal", "Pow"}) | provenance.VIEWS


@dataclass(frozen=True, eq=False)
class Formula:
    """The arithmetic or reshape that a constant was folded from, which patterns match like a node."""

    op_type: str
    inputs: tuple[ir.Value | None, ...]
    attributes: Mapping[str, ir.Attr]
    domain: str = ""
    outputs: tuple[ir.Value, ...] = field(default=())


def record_formula(result: ir.Value, node: ir.Node) -> None:
    """Record the formula of a constant folded from weights: a normalization is recognized by it after its weights are folded."""
    if node.op_type in _FORMULA_OPS and not node.domain:
        result.meta[FORMULA] = Formula(node.op_type, tuple(node.inputs), dict(node.attributes))


def forget_formulas(model: ir.Model) -> None:
    """Drop the recorded formulas, and with them the constants that only they use."""
    for graph in (model.graph, *model.graph.subgraphs()):
        for value in graph.initializers.values():
            value.meta.pop(FORMULA, None)


def constant_array(value: ir.Value | None) -> np.ndarray[Any, Any] | None:
    """The array of a constant value, None if the value is only known at run time."""
    if value is None or value.const_value is None:
        return None
    return array_of(value.const_value)


def fold(node: ir.Node, most: float = FOLDED_ELEMENTS) -> list[np.ndarray[Any, Any]] | None:
    """The node's outputs if they are constant and have at most `most` elements, otherwise None.

    Its types and shapes must have been inferred.
    """
    shape_elements = _fold_shape(node)
    if shape_elements is not None:
        return [shape_elements]
    if not node.inputs and node.op_type != "Constant":
        return None
    if any(v is not None and v.const_value is None for v in node.inputs) or node.op_type in _NOT_FOLDED:
        return None
    if any(a.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for a in node.attributes.values()):
        return None
    if node.op_type not in _LAYOUT_OPS and not all(_is_small(o, most) for o in node.outputs):
        return None
    return evaluate(node, [constant_array(v) for v in node.inputs])


def _is_small(value: ir.Value, most: float) -> bool:
    shape = value.shape
    if shape is None or not isinstance(value.type, ir.TensorType):
        return False
    dims = [d for d in shape if isinstance(d, int)]
    return len(dims) == len(shape) and int(np.prod(dims, dtype=object)) <= most


def evaluate(node: ir.Node, arrays: Sequence[Any]) -> list[np.ndarray[Any, Any]] | None:
    """Evaluate a node on arrays with the executor's rule; None if there is no rule for it."""
    rules = evaluator_rules()
    name = name_of(node.op_type, node.domain)
    rule = rules.get(name)
    if rule is None:
        return None
    attrs = {a.name: plain(a) for a in node.attributes.values() if isinstance(a, ir.Attr)}
    call = Call(name, tuple(arrays), attrs, tuple(node.outputs), schema=binding_of(node.op_type, node.domain))
    args, keywords = bind(rule, call, lambda literal: literal, lambda ref: None)
    with folding(name):
        results = rule.lower(*args, **keywords)
    return [np.asarray(r) for r in (results if isinstance(results, tuple) else (results,))][: len(node.outputs)]


def known_sizes(value: ir.Value | None) -> list[int | None] | None:
    """The known elements of a 0-D or 1-D integer value: None for each unknown one, or None if nothing is known."""
    found = known_elements(value)
    return None if found is None else [e if isinstance(e, int) else None for e in found]


def known_elements(value: ir.Value | None, depth: int = 32) -> list[int | str | None] | None:
    """As `known_sizes`, but named dynamic dimensions are given by name."""
    if value is None:
        return None
    array = constant_array(value)
    if array is not None:
        return [int(i) for i in array.reshape(-1)] if array.ndim <= 1 and array.dtype.kind in "iu" and array.size <= 64 else None
    node = value.producer()
    if node is None or depth == 0 or node.domain not in ("", "ai.onnx"):
        return None

    def of(i: int) -> list[int | str | None] | None:
        return known_elements(node.inputs[i], depth - 1) if i < len(node.inputs) else None

    def exact(i: int) -> list[int] | None:
        found = of(i)
        return None if found is None or not all(isinstance(e, int) for e in found) else [int(e) for e in found if e is not None]

    op = node.op_type
    if op == "Shape":
        shape = node.inputs[0].shape if node.inputs[0] is not None else None
        if shape is None:
            return None
        dims = [d if isinstance(d, int) else d.value for d in shape]
        a, b = node.attributes.get("start"), node.attributes.get("end")
        return dims[slice(a.as_int() if a else 0, b.as_int() if b else None)]
    if op in ("Identity", "Squeeze", "Unsqueeze", "Reshape", "Cast") and (value.shape is None or len(value.shape) <= 1):
        to = node.attributes.get("to")
        is_integer = to is None or ir.DataType(to.as_int()) in (ir.DataType.INT32, ir.DataType.INT64)
        return of(0) if is_integer else None
    if op == "Concat":
        parts = [_unknown_elements(v) if (known := of(i)) is None else known for i, v in enumerate(node.inputs)]
        return None if any(p is None for p in parts) else [e for p in parts if p is not None for e in p]
    if op == "Gather":
        data, indices = of(0), exact(1)
        inside = data is not None and indices is not None and all(-len(data) <= i < len(data) for i in indices)
        return [data[i] for i in indices] if inside and data is not None and indices is not None else None
    if op == "Split" and len(node.inputs) == 2:
        data, lengths = of(0), exact(1)
        if data is not None and lengths is not None:
            before = sum(lengths[: value.index() or 0])
            return data[before : before + lengths[value.index() or 0]]
    if op == "Slice":
        data, start, end, step = of(0), exact(1), exact(2), exact(4) if len(node.inputs) > 4 else [1]
        if data is not None and start and end and step:
            return data[start[0] : end[0] : step[0]]
    return None


def _unknown_elements(value: ir.Value | None) -> list[int | str | None] | None:
    """None for each element of a 1-D value of known length."""
    shape = value.shape if value is not None else None
    count = shape[0] if shape is not None and len(shape) == 1 else None
    return [None] * count if isinstance(count, int) and count <= 64 else None


_SHAPE_OPS = frozenset({"Shape", "Gather", "Slice", "Concat", "Squeeze", "Unsqueeze", "Reshape", "Cast", "Identity"})


def _fold_shape(node: ir.Node) -> np.ndarray[Any, Any] | None:
    """The output of a node that selects sizes of a static shape."""
    output = node.outputs[0]
    if node.op_type not in _SHAPE_OPS or output.dtype not in (ir.DataType.INT64, ir.DataType.INT32):
        return None
    if output.shape is None or len(output.shape) > 1:
        return None
    found = known_sizes(output)
    if found is None or None in found:
        return None
    array = np.array(found, output.dtype.numpy())
    return array if len(output.shape) else array.reshape(())
