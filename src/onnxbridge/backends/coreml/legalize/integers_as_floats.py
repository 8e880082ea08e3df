"""Finds integers that a program computes as floats (quantized products, positions), which float16 represents only up to 2048."""

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
INTEGER_PRESERVING = MOVES | COMBINES | {"conv", "maximum", "minimum", "reduce_sum", "reduce_max", "reduce_min", "abs", "relu"}
"""MIL operators whose result is integral if their inputs are."""
PERIODIC = frozenset({"sin", "cos"})
"""Periodic functions: from 2048 on, the spacing of float16 angles is comparable to the period."""


class IntegerTracker:
    """Tracks, operator by operator in program order, which values are integers, or angles computed from integers."""

    def __init__(self) -> None:
        self._integers: set[int] = set()
        self._angles: set[int] = set()
        self._visited: list[Any] = []

    def reads_integers(self, op: Any) -> bool:
        """Whether float16 would round the integers or angles that the operator reads."""
        self._visited.append(op)  # keeps the object alive, so that its id stays unique
        inputs = [v for value in op.inputs.values() for v in (value if isinstance(value, (list, tuple)) else [value])]
        floats = [v for v in inputs if _is_tensor(v) and is_float(v)]
        computed = [v for v in floats if v.val is None]
        integers = [_is_integer_cast(v) or self._is_in(v, self._integers) for v in computed]
        angle = [w or self._is_in(v, self._angles) for v, w in zip(computed, integers, strict=True)]
        if not any(angle):
            return False
        if op.op_type in INTEGER_PRESERVING and all(integers) and all(_integral(v.val) for v in floats if v.val is not None):
            self._integers.add(id(op))
        elif op.op_type in MOVES | COMBINES and all(angle) and _reaches_periodic(op, set()):
            self._angles.add(id(op))
        return any(integers) or id(op) in self._angles or op.op_type in PERIODIC

    def _is_in(self, value: Any, known: set[int]) -> bool:
        op = value.op
        while op is not None and op.op_type == "cast" and id(op) not in known:
            op = op.x.op
        return op is not None and id(op) in known


def _is_integer_cast(value: Any) -> bool:
    """Whether a float value is cast from an integer, possibly through casts between float dtypes."""
    op = value.op
    while op is not None and op.op_type == "cast":
        if types.is_int(op.x.dtype):
            return True
        op = op.x.op
    return False


def _is_tensor(value: Any) -> bool:
    kind = getattr(value, "sym_type", None)
    return kind is not None and (types.is_tensor(kind) or types.is_scalar(kind))


def _integral(value: Any) -> bool:
    array = np.asarray(value)
    return bool(array.dtype.kind != "f" or np.array_equal(array, np.trunc(array)))


def _reaches_periodic(op: Any, seen: set[int]) -> bool:
    """Whether a sine or cosine reads the result, possibly through operators that move or combine elements."""
    if id(op) in seen:
        return False
    seen.add(id(op))
    children = [child for v in op.outputs for child in v.child_ops]
    return any(c.op_type in PERIODIC or (c.op_type in MOVES | COMBINES and _reaches_periodic(c, seen)) for c in children)
