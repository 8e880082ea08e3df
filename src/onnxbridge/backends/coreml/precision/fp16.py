"""Half precision: selects the operators that compute in float16; the others stay in float32."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from onnxbridge.backends.coreml.element_types import is_float
from onnxbridge.backends.coreml.legalize.integers_as_floats import IntegerTracker
from onnxbridge.backends.coreml.precision import float32_ops
from onnxbridge.formats.coreml.float32_program import SUFFIX
from onnxbridge.formats.coreml.float32_program import ConstantKey as ConstantKey

FP16_MAX = float(np.finfo(np.float16).max)
FP16_MIN = float(np.finfo(np.float16).smallest_subnormal)
# Samples need not contain the largest values, so measured ranges keep a factor of two below the float16 maximum.
MARGIN = 2.0
# Operators whose results are in the float16 range for all inputs, so that their consumers may use float16 again.
BOUNDED = frozenset({
    "softmax", "sigmoid", "sigmoid_hard", "tanh", "scaled_tanh", "erf", "sin", "cos", "atan", "sign", "softsign", "layer_norm",
    "instance_norm", "greater", "greater_equal", "less", "less_equal", "equal", "not_equal", "reduce_argmax", "reduce_argmin",
    "argsort", "non_zero", "shape",
})  # fmt: skip
# Operators that square their input internally.
SQUARING = frozenset(["layer_norm", "instance_norm", "l2_norm", "local_response_norm", "reduce_l2_norm", "reduce_sum_square"])
OPERANDS = ("x", "y")
"""Parameters whose constants must not underflow; the epsilon of a norm, for example, may be rounded up."""
MAX_NAMES = 20
"""How many operators a note lists."""


class HalfPrecision:
    """The op selector for coremltools' float16 pass: called in program order, returns whether an operator may use float16.

    These operators stay in float32:

    * those with a constant above the float16 maximum (a mask of -3.4e38 would be -inf, and NaN in the softmax of a fully masked
      row), and those that depend on them up to the next operator whose results are bounded;
    * those with a constant that underflows (the 1e-10 that keeps a logarithm finite), and the readers of their results;
    * with `ranges`, the largest magnitude of each value by name, those whose measured values come near the float16 maximum;
    * those that compute with integers (see `legalize/integers_as_floats.py`);
    * `selection`: those that select elements or compute the scores for it (see `fp16_selection.py`);
    * `logs`: those between small numbers and their logarithm, or squares and their root (see `fp16_logs.py`);
    * `requested`: those that the user names (see `float32_ops.py`).
    """

    def __init__(
        self, ranges: Mapping[str, float] | None = None, selection: AbstractSet[str] = frozenset(),
        logs: AbstractSet[str] = frozenset(), requested: AbstractSet[str] = frozenset(),
    ) -> None:  # fmt: skip
        self._ranges = ranges
        self._selection = selection
        self._logs = logs
        self._requested = requested
        self._needs_fp32: dict[int, bool] = {}
        self._underflows: dict[int, bool] = {}
        self._visited: list[Any] = []
        self.constants: list[str] = []
        """Names of the operators in float32 because of a constant of theirs or of a predecessor."""
        self.measured: dict[str, float] = {}
        """Names of the operators in float32 because of measured values, with the largest magnitude."""
        self.selecting: list[str] = []
        """Names of the operators in float32 because elements are selected by their results."""
        self.logarithms: list[str] = []
        """Names of the operators in float32 because a logarithm or a root is taken of their results."""
        self.requested: list[str] = []
        """Names of the operators in float32 because the user names them."""
        self._integer_tracker = IntegerTracker()
        self._results: dict[tuple[str, int], np.ndarray[Any, Any]] = {}
        self.float32_constants: dict[ConstantKey, np.ndarray[Any, Any]] = {}
        """The float32 values of the constants, by the operators that read them, before the pass rounds them."""
        self.integers: list[str] = []
        """Names of the operators in float32 because they read integers."""

    def __call__(self, op: Any) -> bool:
        inputs = [v for value in op.inputs.values() for v in _as_list(value)]
        self._record_constants(op)
        needs_fp32 = any(_exceeds_fp16(v) or self._follows_fp32(v.op) for v in inputs)
        self._needs_fp32[id(op)] = needs_fp32 and op.op_type not in BOUNDED
        self._underflows[id(op)] = any(_underflows_fp16(op.inputs[name]) for name in OPERANDS if name in op.inputs)
        needs_fp32 = needs_fp32 or self._underflows[id(op)] or any(self._lookup(v.op, self._underflows) for v in inputs)
        self._visited.append(op)  # keeps the object alive, so that its id stays unique
        name = op.outputs[0].name
        counts = self._integer_tracker.reads_integers(op)
        if float32_ops.stays(op, self._requested):
            self.requested.append(name)
            return False
        if name in self._selection:
            self.selecting.append(name)
            return False
        if counts:
            self.integers.append(name)
            return False
        if name in self._logs:
            self.logarithms.append(name)
            return False
        if not any(is_float(o) for o in op.outputs):
            return not needs_fp32
        largest = self._overflow_magnitude(op, inputs)
        if largest:
            self.measured[name] = largest
        elif needs_fp32:
            self.constants.append(name)
        return not needs_fp32 and not largest

    def _record_constants(self, op: Any) -> None:
        """Record the operator's constants in float32, and its results if they are constant."""
        for name, value in op.inputs.items():
            for i, v in enumerate(_as_list(value)):
                array = self._float32_value(v)
                if array is not None:
                    self.float32_constants[op.name, name, i] = array
        for i, v in enumerate(op.outputs):
            if _is_float32(v.val):
                self._results[op.name, i] = np.asarray(v.val)

    def _float32_value(self, value: Any) -> np.ndarray[Any, Any] | None:
        """A constant before the pass rounded its operands, None for anything else."""
        source = value
        while source.op is not None and source.op.op_type == "cast":
            source = source.op.x
        if source.op is not None:
            result = self._results.get((source.op.name.partition(SUFFIX)[0], source.op.outputs.index(source)))
            if result is not None:
                return result
        return np.asarray(value.val) if _is_float32(value.val) else None

    def _overflow_magnitude(self, op: Any, inputs: list[Any]) -> float:
        """The largest measured magnitude of the operator's values, 0 if it fits float16 or nothing was measured."""
        if self._ranges is None:
            return 0.0
        most = max((self._ranges.get(_measured_name(v), 0.0) for v in (*inputs, *op.outputs)), default=0.0)
        squared = most**2 if op.op_type in SQUARING else most
        return most if squared * MARGIN > FP16_MAX else 0.0

    def _follows_fp32(self, op: Any) -> bool:
        return self._lookup(op, self._needs_fp32)

    def _lookup(self, op: Any, known: Mapping[int, bool]) -> bool:
        """The entry of an operator in `known`, skipping the casts that the pass inserted."""
        while op is not None and op.op_type == "cast" and id(op) not in known:
            op = op.x.op
        return op is not None and known.get(id(op), False)

    @property
    def in_float32(self) -> set[str]:
        """Names of all operators that stay in float32."""
        return {*self.measured, *self.constants, *self.selecting, *self.integers, *self.logarithms, *self.requested}

    def notes(self) -> list[str]:
        """Notes for the user: which operators stay in float32, and why."""
        by_reason = {
            "requested by float32_ops": self.requested,
            "constants outside of the float16 range": self.constants,
            "measured magnitude": [f"{name} ({largest:.3g})" for name, largest in self.measured.items()],
            "elements are selected by the results": self.selecting,
            "a root or a logarithm of squares, exponentials or ratios": self.logarithms,
            "they read integers": self.integers,
        }
        notes = [
            f"stays in float32 ({reason}): {_truncated(list(dict.fromkeys(names)))}"
            for reason, names in by_reason.items()
            if names
        ]
        if self._ranges is not None and not self.measured:
            most = max(self._ranges.values(), default=0.0)
            notes.append(
                f"the largest of {len(self._ranges)} measured values is {most:.3g}; the float16 maximum is {FP16_MAX:.0f}"
            )
        return notes


def _is_float32(array: Any) -> bool:
    return isinstance(array, (np.ndarray, np.generic)) and array.dtype == np.float32


def _as_list(value: Any) -> Any:
    """The values of a parameter, which may be one or several."""
    return value if isinstance(value, (list, tuple)) else [value]


def _truncated(names: list[str]) -> str:
    more = len(names) - MAX_NAMES
    return ", ".join(names[:MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


def _measured_name(value: Any) -> str:
    """A value's name when it was measured, skipping the casts that coremltools' pass inserted."""
    while value.op is not None and value.op.op_type == "cast":
        value = value.op.x
    return str(value.name)


def _exceeds_fp16(value: Any) -> bool:
    return _magnitude(value) > FP16_MAX


def _underflows_fp16(value: Any) -> bool:
    """Whether all elements of a constant underflow to 0 in float16."""
    return 0 < _magnitude(value) < FP16_MIN


def _magnitude(value: Any) -> float:
    """The largest finite magnitude of a constant, 0 for anything else."""
    array = getattr(value, "val", None)
    if not isinstance(array, (np.ndarray, np.generic, float)) or np.asarray(array).dtype.kind != "f":
        return 0.0
    array = np.asarray(array)
    return float(np.abs(array[np.isfinite(array)]).max(initial=0.0))
