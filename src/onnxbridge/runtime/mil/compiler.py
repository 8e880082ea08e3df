"""The compiler of MIL programs: the target of the walker in which a value is its slot's index, and an operator becomes a step."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxbridge.formats.coreml.mil_program import Block, Operation, Slot, call_of
from onnxbridge.lowering import Body, Call, Deferred, Ref, Target, Values, lower
from onnxbridge.rules import Rule
from onnxbridge.runtime.mil.ops import rule as rules

DIRECTION = "Core ML to NumPy"


class At(int):
    """A value: the index of its slot."""


@dataclass
class Step:
    """One operator ready to run: its arguments, its results' slots, and which slots it is the last to read."""

    call: Call
    rule: Rule
    args: list[Any]
    attrs: dict[str, Any]
    outputs: tuple[Slot, ...]
    done: tuple[int, ...] = ()

    def arguments(self) -> Iterator[Any]:
        for argument in (*self.args, *self.attrs.values()):
            yield from argument if isinstance(argument, list) else (argument,)

    def reads(self) -> Iterator[int]:
        """The slots that it reads itself, not those that its blocks read."""
        for argument in self.arguments():
            if isinstance(argument, At | Deferred):
                yield int(argument.value if isinstance(argument, Deferred) else argument)


@dataclass
class Steps:
    """A block ready to run."""

    inputs: tuple[Any, ...]
    steps: list[Step]
    outputs: tuple[Any, ...]

    def free(self, kept: set[int]) -> set[int]:
        """Let each step free what it is the last to read, but for these; gives every slot that the block reads."""
        inner = [[a.free(kept) for a in step.arguments() if isinstance(a, Steps)] for step in self.steps]
        reads = [set(step.reads()).union(*below) for step, below in zip(self.steps, inner, strict=True)]
        own = {s.index for step in self.steps for s in step.outputs} | set(self.inputs)
        needed = kept | set(self.outputs)
        for step, seen in zip(reversed(self.steps), reversed(reads), strict=True):
            step.done = tuple((seen & own) - needed)
            needed |= seen
        return needed


class _Slots(dict[Hashable, Any]):
    """Every value is there: the reader of the program has looked at that."""

    def __missing__(self, key: Any) -> At:
        return At(key)


class Compiler(Target):
    """Compiles a block on these constants. What stores a weight compressed is run at once, by `unpack`."""

    direction = DIRECTION

    def __init__(self, constants: Mapping[int, Any], unpack: Callable[[Step], None]) -> None:
        self._constants = constants
        self._unpack = unpack
        self._wide: dict[int, Any] = {}
        self._steps: list[Step] = []
        self._slots: dict[int, Slot] = {}

    def compile(self, block: Block) -> Steps:
        """The block ready to run.

        Raises:
            ConversionError: with every operator that cannot be run.
        """
        compiled = self.body(self._body(block), rules, _Slots())
        compiled.free(set(self._constants))
        return compiled

    def _body(self, block: Block) -> Body:
        calls = [self._call(op) for op in block.operations]
        return Body(tuple(s.index for s in block.inputs), calls, tuple(Ref(s.index) for s in block.outputs))

    def _call(self, op: Operation) -> Call:
        self._slots.update({s.index: s for s in op.outputs})
        return call_of(op, lambda item: Ref(item.index) if isinstance(item, Slot) else item, self._body)

    def static(self, key: Any, value: Any) -> Any:
        constant = self._constants.get(key)
        return Deferred(value) if constant is None else constant

    def body(self, body: Body, rules: Mapping[str, Rule], values: Values) -> Steps:
        outer, self._steps = self._steps, []
        try:
            lower(body.calls, rules, values, self)
            return Steps(body.inputs, self._steps, tuple(ref.key for ref in body.outputs))
        finally:
            self._steps = outer

    def apply(self, rule: Rule, call: Call, args: list[Any], attrs: dict[str, Any]) -> tuple[At, ...]:
        moves = rule.kind == "move"
        ready = {name: self._ready(a, moves) for name, a in attrs.items()}
        results: tuple[Any, ...] = call.outputs
        step = Step(call, rule, [self._ready(a, moves) for a in args], ready, tuple(self._slots[i] for i in results))
        if rule.kind == "weights":
            self._unpack(step)
        else:
            self._steps.append(step)
        return tuple(At(i) for i in results)

    def _ready(self, argument: Any, moves: bool) -> Any:
        """A float16 constant as the float32 that it is computed with: once, not in every run. Several values as a list."""
        if isinstance(argument, tuple):
            items = [self._ready(a, moves) for a in argument]
            return items if any(isinstance(i, At) for i in items) else tuple(items)
        if not isinstance(argument, At):
            return widened(argument, moves)
        constant = self._constants.get(argument)
        if moves or not isinstance(constant, np.ndarray) or constant.dtype != np.float16:
            return argument
        if argument not in self._wide:
            self._wide[argument] = widened(constant, False)
        return self._wide[argument]


def widened(value: Any, moves: bool) -> Any:
    """float16 as the float32 in which rules compute, but for those that only move values."""
    if not moves and isinstance(value, np.ndarray) and value.dtype == np.float16:
        return value.astype(np.float32)
    return value
