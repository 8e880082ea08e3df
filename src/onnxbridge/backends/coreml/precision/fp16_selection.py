"""Finds the operators that select elements (TopK, ArgMax, NMS) and those that compute their scores, which stay in float32.

Float16 has 1024 numbers between 1/2 and 1. A detector has more boxes than that, and the scores of good ones are all near 1: in
float16 they tie, and the first one is selected instead of the best. The logits do not tie, so it is enough to compute the
sigmoid or softmax, and the selection, in float32.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

SELECTING = frozenset({"topk", "argsort", "reduce_argmax", "reduce_argmin", "non_maximum_suppression"})
SATURATING = frozenset({"sigmoid", "softmax", "tanh", "sigmoid_hard"})
# fmt: off
PASSING = frozenset({
    "add", "sub", "mul", "real_div", "minimum", "maximum", "clip", "relu", "select", "reduce_max", "concat", "reshape",
    "transpose", "slice_by_index", "slice_by_size", "split", "squeeze", "expand_dims", "gather", "gather_along_axis",
    "gather_nd", "identity",
})
# fmt: on
ONNX_SELECTION_OPS = frozenset({"NonMaxSuppression"})
"""ONNX operators that lower to several MIL operators, all of which take part in a selection: the area of a box of 256 by 256
pixels overflows float16."""


def find(program: Any, selection_ops: set[str]) -> set[str]:
    """The operators that select elements or compute the scores for it, by the names of their first outputs.

    Args:
        choosing: names of operators that select, in addition to those that do by their type.
    """
    found = set(selection_ops)
    operators = list(walk(program.functions["main"].operations))
    scored: set[int] = set()  # results of a sigmoid or softmax, possibly moved or combined
    for op in operators:
        if op.op_type in SATURATING or (op.op_type in PASSING | SELECTING and any(id(v.op) in scored for v in read_by(op))):
            scored.add(id(op))
    feeds_selection: set[int] = set()  # the selecting operators, and those that compute their inputs
    for op in reversed(operators):
        name = op.outputs[0].name
        selects = name in selection_ops or (op.op_type in SELECTING and id(op) in scored)
        feeds = id(op) in scored and any(id(child) in feeds_selection for v in op.outputs for child in v.child_ops)
        if selects or feeds:
            found.add(name)
        if selects or (feeds and op.op_type in PASSING):
            feeds_selection.add(id(op))
    return found


def names(operators: Iterable[Any]) -> set[str]:
    """The names of operators and of those in their blocks."""
    return {op.outputs[0].name for op in walk(operators)}


def walk(operators: Iterable[Any]) -> Iterator[Any]:
    """Yield operators and those in their blocks, without constants."""
    for op in operators:
        for inner in op.blocks:
            yield from walk(inner.operations)
        if op.outputs and op.op_type != "const":
            yield op


def read_by(op: Any) -> list[Any]:
    """The values that an operator reads."""
    return [v for value in op.inputs.values() for v in (value if isinstance(value, (list, tuple)) else [value])]
