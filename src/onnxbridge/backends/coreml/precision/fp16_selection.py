"""What a program chooses by: scores between 0 and 1 that float16 cannot tell apart, and the boxes' areas that it cannot hold.

Float16 has 1024 numbers between 1/2 and 1. A detector has more boxes than that, and the sure ones are all near 1: in float16 they
tie, and the first comes first, not the best. What the scores are made of does not tie, so that it is enough to compute the
sigmoid or softmax, and the choice, in float32.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

CHOOSING = frozenset({"topk", "argsort", "reduce_argmax", "reduce_argmin", "non_maximum_suppression"})
SATURATING = frozenset({"sigmoid", "softmax", "tanh", "sigmoid_hard"})
# fmt: off
PASSING = frozenset({
    "add", "sub", "mul", "real_div", "minimum", "maximum", "clip", "relu", "select", "reduce_max", "concat", "reshape",
    "transpose", "slice_by_index", "slice_by_size", "split", "squeeze", "expand_dims", "gather", "gather_along_axis",
    "gather_nd", "identity",
})
# fmt: on
CHOOSES = frozenset({"NonMaxSuppression"})
"""ONNX's operators that are several of MIL's, all of which choose: areas of boxes in pixels leave float16 at 256 by 256."""


def of(program: Any, choosing: set[str]) -> set[str]:
    """The names of all operators, as their first results have them, that choose or make what is chosen by.

    Args:
        choosing: names of operators that choose, beside those that do by their type.
    """
    found = set(choosing)
    operators = list(walk(program.functions["main"].operations))
    scored: set[int] = set()  # what comes out of a sigmoid or a softmax, and what is only moved or combined since then
    for op in operators:
        if op.op_type in SATURATING or (op.op_type in PASSING | CHOOSING and any(id(v.op) in scored for v in read_by(op))):
            scored.add(id(op))
    leading: set[int] = set()  # what chooses, and what is handed to it
    for op in reversed(operators):
        name = op.outputs[0].name
        chooses = name in choosing or (op.op_type in CHOOSING and id(op) in scored)
        feeds = id(op) in scored and any(id(child) in leading for v in op.outputs for child in v.child_ops)
        if chooses or feeds:
            found.add(name)
        if chooses or (feeds and op.op_type in PASSING):
            leading.add(id(op))
    return found


def names(operators: Iterable[Any]) -> set[str]:
    """The names of operators and of all in their blocks."""
    return {op.outputs[0].name for op in walk(operators)}


def walk(operators: Iterable[Any]) -> Iterator[Any]:
    """Operators and those in their blocks, the constants left out."""
    for op in operators:
        for inner in op.blocks:
            yield from walk(inner.operations)
        if op.outputs and op.op_type != "const":
            yield op


def read_by(op: Any) -> list[Any]:
    """The values that an operator reads."""
    return [v for value in op.inputs.values() for v in (value if isinstance(value, (list, tuple)) else [value])]
