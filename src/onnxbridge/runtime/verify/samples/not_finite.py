"""Where NaN and infinities in the inputs say something: up to operators that define what they compute of them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.runtime.verify.samples.input_uses import uses

NOT_FINITE = (np.nan, np.inf, -np.inf)
_TESTS = {"IsNaN": [np.nan], "IsInf": [np.inf, -np.inf]}
_LOGICAL = ("And", "Or", "Not", "Identity")

_MOVES = frozenset({
    "Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Expand", "Slice", "Gather", "Concat", "Split", "Tile",
    "Shape", "Constant", "ConstantOfShape", "Where",
})  # fmt: skip
_OF_BOOL = frozenset({
    "IsNaN", "IsInf", "Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Not", "And", "Or", "Xor",
})  # fmt: skip
IEEE = _MOVES | _OF_BOOL | {
    "Abs", "Neg", "Add", "Sub", "Mul", "Div", "Sqrt", "Exp", "Log", "Floor", "Ceil", "Reciprocal", "ReduceSum",
}  # fmt: skip
"""Operators of which IEEE 754 defines what they make of NaN, and, `ReduceSum` aside, of infinities."""


def looked_for(value: ir.Value) -> list[float]:
    """NaN and infinities, if the graph looks for them in an input, and no other operator that reads it leaves open what it makes
    of them."""
    tests = {node.op_type for node, _ in uses(value)}
    found = [number for test, numbers in _TESTS.items() if test in tests for number in numbers]
    return found if found and _are_defined(value) else []


def _are_defined(value: ir.Value) -> bool:
    """Whether the graph's outputs are defined for such elements: `Where` may replace them before any operator that does not."""
    todo, seen = [value], set()
    while todo:
        v = todo.pop()
        if id(v) in seen:
            continue
        seen.add(id(v))
        if v.is_graph_output() and v.graph is not value.graph:
            return False  # of a branch or loop, whose result is not followed
        for node, i in v.uses():
            if node.domain not in ("", "ai.onnx") or node.op_type not in IEEE or node.op_type == "ReduceSum":
                return False
            if node.op_type == "Where" and i and any(t is v for t in _tested(node.inputs[0])):
                continue
            todo += node.outputs if node.op_type not in _OF_BOOL else ()
    return True


def _tested(condition: ir.Value | None) -> list[ir.Value]:
    """The values that a condition tests for NaN or infinities."""
    node = condition.producer() if condition is not None else None
    if node is None:
        return []
    if node.op_type in _TESTS:
        return [v for v in node.inputs if v is not None]
    return [v for read in node.inputs for v in _tested(read)] if node.op_type in _LOGICAL else []
