"""The operators that the user keeps in float32 (`float32_ops`), by the names of the MIL operators that they become."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import onnx_ir as ir

from onnxbridge.backends.coreml.legalize.integers_as_floats import MOVES
from onnxbridge.backends.coreml.precision.fp16_selection import walk
from onnxbridge.errors import UsageError
from onnxbridge.hub.ir import graph_reader
from onnxbridge.lowering import Call

_INVERSED = "_inversed_"
_FUSED_WITH = {
    **dict.fromkeys(("matmul", "linear"), frozenset({"add", "sub"})),
    **dict.fromkeys(("conv", "conv_transpose"), frozenset({"add", "sub", "mul", "real_div", "batch_norm"})),
}  # fmt: skip
"""Operators with constants that coremltools fuses into the one before, which gets their name."""


def check(names: Iterable[str], graph: ir.Graph) -> None:
    """Check that each name, in which * stands for any characters, is an operator type of the model or a value that an operator
    computes.

    Raises:
        UsageError: for the first one that is not.
    """
    types = {graph_reader.call_of(node).op for node in graph.all_nodes()}
    values = {str(v.name) for node in graph.all_nodes() for v in node.outputs if v.name}
    for name in names:
        if not any(map(_pattern((name,)).fullmatch, (*types, *values))):
            near = difflib.get_close_matches(name, [*types, *values], n=1)
            hint = f", the nearest is {near[0]!r}" if near else ""
            raise UsageError(
                f"float32_ops: the model has no operator and no value {name!r}{hint}; give an operator type "
                f"({', '.join(sorted(types))}) or the name of a value that an operator computes"
            )


def is_requested(call: Call, names: Sequence[str]) -> bool:
    """Whether one of the names is the call's operator type or one of its results."""
    if not names:
        return False
    pattern = _pattern(tuple(names))
    return any(map(pattern.fullmatch, (call.op, *(str(v.name) for v in call.outputs if isinstance(v, ir.Value)))))


@functools.cache
def _pattern(names: tuple[str, ...]) -> re.Pattern[str]:
    """What the names match, in which * stands for any characters."""
    return re.compile("|".join(re.escape(name).replace(r"\*", ".*") for name in names))


def find(operators: Iterable[Any]) -> set[str]:
    """The names of MIL operators, of those in their blocks, and of those that are fused into them."""
    found = set()
    for op in walk(operators):
        found.add(op.outputs[0].name)
        readers = list(op.outputs[0].child_ops) if op.op_type in _FUSED_WITH else []
        if len(readers) == 1 and readers[0].op_type in _FUSED_WITH[op.op_type]:
            found.add(readers[0].outputs[0].name)
    return found


def stays(op: Any, names: AbstractSet[str]) -> bool:
    """Whether an operator has one of the names, after coremltools' passes: they rename divisions by constants, and insert
    transposes before matrix products."""
    if op.outputs[0].name.removeprefix(_INVERSED) in names:
        return True
    readers = [child for v in op.outputs for child in v.child_ops]
    return op.op_type in MOVES and bool(readers) and all(r.outputs and r.outputs[0].name in names for r in readers)
