"""Whole numbers that a program computes with as floats: quantized products, positions. Float16 counts in ones to 2048 only."""

from __future__ import annotations

from typing import Any

import numpy as np
from coremltools.converters.mil.mil import types

from onnxbridge.backends.coreml.element_types import is_float

# fmt: off
MOVES = frozenset({
    "concat", "expand_dims", "gather", "gather_along_axis", "identity", "reshape", "slice_by_index", "slice_by_size", "split",
    "squeeze", "stack", "tile", "transpose",
})
# fmt: on
COMBINES = frozenset({"add", "mul", "sub", "matmul", "linear"})
WHOLE = MOVES | COMBINES | {"conv", "maximum", "minimum", "reduce_sum", "reduce_max", "reduce_min", "abs", "relu"}
"""What makes whole numbers of whole numbers."""
PERIODIC = frozenset({"sin", "cos"})
"""Half a turn is an error of the angle that float16 makes from 2048 on."""


class Integers:
    """Answers, operator by operator in their order, whether one reads whole numbers, or an angle that is counted in them."""

    def __init__(self) -> None:
        self._whole: set[int] = set()
        self._angles: set[int] = set()
        self._seen: list[Any] = []

    def reads(self, op: Any) -> bool:
        """Whether float16 would lose what the operator reads."""
        self._seen.append(op)  # keeps the object alive, so that no other one gets its id
        inputs = [v for value in op.inputs.values() for v in (value if isinstance(value, (list, tuple)) else [value])]
        floats = [v for v in inputs if _tensor(v) and is_float(v)]
        computed = [v for v in floats if v.val is None]
        whole = [_counted(v) or self._is(v, self._whole) for v in computed]
        angle = [w or self._is(v, self._angles) for v, w in zip(computed, whole, strict=True)]
        if not any(angle):
            return False
        if op.op_type in WHOLE and all(whole) and all(_integral(v.val) for v in floats if v.val is not None):
            self._whole.add(id(op))
        elif op.op_type in MOVES | COMBINES and all(angle) and _turns(op, set()):
            self._angles.add(id(op))
        return any(whole) or id(op) in self._angles or op.op_type in PERIODIC

    def _is(self, value: Any, known: set[int]) -> bool:
        op = value.op
        while op is not None and op.op_type == "cast" and id(op) not in known:
            op = op.x.op
        return op is not None and id(op) in known


def _counted(value: Any) -> bool:
    """Whether a float is a whole number's cast, through casts between floats."""
    op = value.op
    while op is not None and op.op_type == "cast":
        if types.is_int(op.x.dtype):
            return True
        op = op.x.op
    return False


def _tensor(value: Any) -> bool:
    kind = getattr(value, "sym_type", None)
    return kind is not None and (types.is_tensor(kind) or types.is_scalar(kind))


def _integral(value: Any) -> bool:
    array = np.asarray(value)
    return bool(array.dtype.kind != "f" or np.array_equal(array, np.trunc(array)))


def _turns(op: Any, seen: set[int]) -> bool:
    """Whether it comes, moved and combined only, to a sine or cosine."""
    if id(op) in seen:
        return False
    seen.add(id(op))
    children = [child for v in op.outputs for child in v.child_ops]
    return any(c.op_type in PERIODIC or (c.op_type in MOVES | COMBINES and _turns(c, seen)) for c in children)
