"""Half precision: which operators may compute in float16, and which stay in float32 because float16 cannot hold their numbers."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from onnxbridge.backends.coreml.element_types import is_float
from onnxbridge.backends.coreml.legalize.integers_as_floats import Integers
from onnxbridge.formats.coreml.float32_program import SUFFIX, Key

LARGEST = float(np.finfo(np.float16).max)
SMALLEST = float(np.finfo(np.float16).smallest_subnormal)
# Samples do not show the largest number there is, so that a measured range keeps a factor of two from the end.
MARGIN = 2.0
# Whatever comes in, these give numbers that float16 holds, so what follows them is free again.
BOUNDED = frozenset({
    "softmax", "sigmoid", "sigmoid_hard", "tanh", "scaled_tanh", "erf", "sin", "cos", "atan", "sign", "softsign", "layer_norm",
    "instance_norm", "greater", "greater_equal", "less", "less_equal", "equal", "not_equal", "reduce_argmax", "reduce_argmin",
    "argsort", "non_zero", "shape",
})  # fmt: skip
# These square their input on the way.
SQUARING = frozenset(["layer_norm", "instance_norm", "l2_norm", "local_response_norm", "reduce_l2_norm", "reduce_sum_square"])
OPERANDS = ("x", "y")
"""Where a constant counts as a number of the model: an epsilon of a norm may become a larger one."""
SHOWN = 20
"""How many operators a note names."""


class HalfPrecision:
    """Answers coremltools, operator by operator, whether it may compute in float16.

    An operator stays in float32 where one of its constants is outside of float16 (a mask of -3.4e38 would be -inf, and NaN in the
    softmax of a row that is all masked), and so does everything fed by it as far as the next operator whose results are bounded.
    A constant below float16 (the 1e-10 in a logarithm that must not be of 0) keeps its operator and those that read the result.
    With `ranges`, the largest magnitude of each value by name, it stays too where a measured number comes near to the end.
    What computes with whole numbers stays (`integers.py`), and so do those that choose, and what makes the scores that they
    choose by: `choices` are their names (`choices.py`). So does what lies between small numbers and their logarithm, or squares
    and their root: `spread` (`logarithms.py`).
    """

    def __init__(
        self, ranges: Mapping[str, float] | None = None, choices: AbstractSet[str] = frozenset(),
        spread: AbstractSet[str] = frozenset(),
    ) -> None:  # fmt: skip
        self._ranges = ranges
        self._choices = choices
        self._spread = spread
        self._wide: dict[int, bool] = {}
        self._tiny: dict[int, bool] = {}
        self._seen: list[Any] = []
        self.constants: list[str] = []
        """Names of the operators that stayed in float32 for a constant of theirs or before them."""
        self.measured: dict[str, float] = {}
        """Names of the operators that stayed for the numbers that were measured, with the largest magnitude."""
        self.choosing: list[str] = []
        """Names of the operators that stayed because something is chosen by what they make."""
        self.spreading: list[str] = []
        """Names of the operators that stayed because a logarithm or a root is taken of what they make."""
        self._integers = Integers()
        self._made: dict[tuple[str, int], np.ndarray[Any, Any]] = {}
        self.before: dict[Key, np.ndarray[Any, Any]] = {}
        """The constants in float32, by the operators that read them: what follows rounds them."""
        self.counting: list[str] = []
        """Names of the operators that stayed because they read whole numbers."""

    def __call__(self, op: Any) -> bool:
        inputs = [v for value in op.inputs.values() for v in _several(value)]
        self._keep(op)
        wide = any(_outside(v) or self._carries(v.op) for v in inputs)
        self._wide[id(op)] = wide and op.op_type not in BOUNDED
        self._tiny[id(op)] = any(_vanishes(op.inputs[name]) for name in OPERANDS if name in op.inputs)
        wide = wide or self._tiny[id(op)] or any(self._after(v.op, self._tiny) for v in inputs)
        self._seen.append(op)  # keeps the object alive, so that no other one gets its id
        name = op.outputs[0].name
        counts = self._integers.reads(op)
        if name in self._choices:
            self.choosing.append(name)
            return False
        if counts:
            self.counting.append(name)
            return False
        if name in self._spread:
            self.spreading.append(name)
            return False
        if not any(is_float(o) for o in op.outputs):
            return not wide
        largest = self._largest(op, inputs)
        if largest:
            self.measured[name] = largest
        elif wide:
            self.constants.append(name)
        return not wide and not largest

    def _keep(self, op: Any) -> None:
        """What is known of the operator in float32: its constants, and what it makes of them."""
        for name, value in op.inputs.items():
            for place, v in enumerate(_several(value)):
                array = self._exact(v)
                if array is not None:
                    self.before[op.name, name, place] = array
        for place, v in enumerate(op.outputs):
            if _is_single(v.val):
                self._made[op.name, place] = np.asarray(v.val)

    def _exact(self, value: Any) -> np.ndarray[Any, Any] | None:
        """A constant as it was before the pass rounded what it is made of, None for anything else."""
        behind = value
        while behind.op is not None and behind.op.op_type == "cast":
            behind = behind.op.x
        if behind.op is not None:
            made = self._made.get((behind.op.name.partition(SUFFIX)[0], behind.op.outputs.index(behind)))
            if made is not None:
                return made
        return np.asarray(value.val) if _is_single(value.val) else None

    def _largest(self, op: Any, inputs: list[Any]) -> float:
        """The largest magnitude that the operator meets, 0 where float16 holds it or nothing was measured."""
        if self._ranges is None:
            return 0.0
        met = [self._ranges.get(_own_name(v), 0.0) for v in (*inputs, *op.outputs)]
        most = max(met, default=0.0)
        squared = most**2 if op.op_type in SQUARING else most
        return most if squared * MARGIN > LARGEST else 0.0

    def _carries(self, op: Any) -> bool:
        return self._after(op, self._wide)

    def _after(self, op: Any, known: Mapping[int, bool]) -> bool:
        """What is known of an operator, looked at through the casts that the pass itself has put in between."""
        while op is not None and op.op_type == "cast" and id(op) not in known:
            op = op.x.op
        return op is not None and known.get(id(op), False)

    def notes(self) -> list[str]:
        """What a user is told of it."""
        said = []
        if self.constants:
            said.append(f"stays in float32, since float16 cannot hold its numbers: {_few(list(dict.fromkeys(self.constants)))}")
        if self.measured:
            each = [f"{name} ({largest:.3g})" for name, largest in self.measured.items()]
            said.append(f"stays in float32 for the magnitude that was measured: {_few(each)}")
        if self.choosing:
            said.append(f"stays in float32, since a choice hangs on it: {_few(list(dict.fromkeys(self.choosing)))}")
        if self.spreading:
            names = _few(list(dict.fromkeys(self.spreading)))
            said.append(f"stays in float32, on the way from squares or shares to a root or a logarithm: {names}")
        if self.counting:
            said.append(f"stays in float32, since it reads whole numbers: {_few(list(dict.fromkeys(self.counting)))}")
        if self._ranges is not None and not self.measured:
            most = max(self._ranges.values(), default=0.0)
            said.append(f"the largest of {len(self._ranges)} measured values is {most:.3g}; float16 ends at {LARGEST:.0f}")
        return said


def _is_single(array: Any) -> bool:
    return isinstance(array, (np.ndarray, np.generic)) and array.dtype == np.float32


def _several(value: Any) -> Any:
    """The values of a parameter."""
    return value if isinstance(value, (list, tuple)) else [value]


def _few(names: list[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def _own_name(value: Any) -> str:
    """A value's name as it was when measured: coremltools' pass reads inputs through casts that it has put in between."""
    while value.op is not None and value.op.op_type == "cast":
        value = value.op.x
    return str(value.name)


def _outside(value: Any) -> bool:
    return _magnitude(value) > LARGEST


def _vanishes(value: Any) -> bool:
    """Whether all of a constant is below what float16 tells from 0."""
    return 0 < _magnitude(value) < SMALLEST


def _magnitude(value: Any) -> float:
    """The largest finite magnitude of a constant, 0 for anything else."""
    array = getattr(value, "val", None)
    if not isinstance(array, (np.ndarray, np.generic, float)) or np.asarray(array).dtype.kind != "f":
        return 0.0
    array = np.asarray(array)
    return float(np.abs(array[np.isfinite(array)]).max(initial=0.0))
