"""Runs Core ML programs in NumPy, on any machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from onnxbridge.errors import ConversionError, OnnxbridgeError, Problem, Source, Unsupported, UsageError, merge
from onnxbridge.formats.coreml.features import give, take
from onnxbridge.formats.coreml.float32_program import Key, Widening, packed_wide, singles, widen
from onnxbridge.formats.coreml.mil_program import BLOCKS, Block, Operation, Slot, classes
from onnxbridge.formats.coreml.reader import read
from onnxbridge.rules import REQUIRED
from onnxbridge.runtime.mil.ops import rule as rules
from onnxbridge.runtime.mil.state import State

DIRECTION = "Core ML to NumPy"

# These move values and change none, so float16 goes through them as it is.
# fmt: off
MOVES = frozenset({
    "batch_to_space", "cast", "concat", "cond", "coreml_update_state", "crop", "depth_to_space", "expand_dims", "flatten2d",
    "gather", "gather_along_axis", "gather_nd", "identity", "list_gather", "list_read", "list_scatter", "list_write",
    "pixel_shuffle", "pixel_unshuffle", "read_state", "reshape", "reshape_like", "reverse", "reverse_sequence", "select",
    "shape", "slice_by_index", "slice_by_size", "slice_update", "sliding_windows", "space_to_batch", "space_to_depth",
    "split", "squeeze", "stack", "tile", "transpose", "while_loop", "write_state",
})
# fmt: on

# From iOS17 on a constant factor may be of another type than the result, which is of the other factor's.
MIXED = ("linear", "matmul")

# the parameters of an operator that is a NumPy function as it stands
PLAIN = ("x", "y")

FORMS: dict[str, Callable[[Any], Any]] = {
    "int": int,
    "float": float,
    "bool": bool,
    "str": str,
    "ints": lambda v: tuple(int(n) for n in np.ravel(v)),
    "floats": lambda v: tuple(float(n) for n in np.ravel(v)),
    "array": np.asarray,
}


@dataclass(frozen=True)
class _Step:
    """One operator ready to run: where its arguments come from, and which slots it is the last to read."""

    operation: Operation
    call: Callable[..., Any]
    arguments: tuple[tuple[str, str, Any], ...]
    moves: bool
    done: tuple[int, ...]


class Interpreter:
    """A Core ML program, ready to run: an .mlpackage, an `MLModel`, its specification or a MIL program in memory.

    `function` is one of a model of several; without it the model's default. Raises `ConversionError` with every operator
    that has no rule. `classes` are the names of a classifier's classes. `states` are zero at first and kept between runs;
    `reset` makes them zero again. `packed` are the operators that compressed weights are stored in, by the slot of the weight.
    """

    def __init__(self, source: Any, *, function: str = "") -> None:
        self._function, self.inputs, self.outputs = read(source, function)
        self.classes = classes(self._function)
        problems = merge(_problems(self._function.block))
        if problems:
            raise ConversionError(DIRECTION, problems)
        self._constants: dict[int, Any] = dict(self._function.constants)
        self._wide: dict[int, Any] = {}
        self._plans: dict[int, list[_Step]] = {}
        self.packed: dict[int, Operation] = {}
        self._unpack_weights(self._function.block)
        self._plan(self._function.block)
        self.reset()

    def reset(self) -> None:
        """Make every state zero."""
        self.states = {name: State.zeros(slot) for name, slot in self._function.states.items()}

    @property
    def block(self) -> Block:
        """The operators, without those of compressed weights."""
        return self._function.block

    def constant(self, slot: int) -> Any:
        """The constant in a slot, None if the slot holds none."""
        return self._constants.get(slot)

    def replace(self, constants: Mapping[int, Any]) -> None:
        """Compute with other constants from now on, by slot, of the same types and shapes."""
        self._constants |= constants
        self._wide.clear()
        self._plan(self._function.block)

    def singles(self) -> dict[Key, Any]:
        """The constants in float32, by what reads them."""
        return singles(self._function.block, self._constants)

    def widen(self, before: Mapping[Key, Any]) -> Widening:
        """Compute in float32 from now on what is declared float16, with the constants as they were before they were rounded."""
        found = Widening()
        for op in self.packed.values():
            wide = packed_wide(op, self._constants, before, found)
            if wide is not None:
                self._apply(self._step(wide, ()), self._constants)
        widen(self._function.block, self._constants, before, self.packed, found)
        self._plan(self._function.block)
        return found

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Compute the model's outputs from its inputs, both by the names of the model's description.

        Arrays are converted to the declared types as Core ML does it; images are arrays (N, C, H, W) or PIL images.
        """
        unknown = sorted(set(feeds) - {f.name for f in self.inputs})
        if unknown:
            raise UsageError(f"the model has no input {', '.join(unknown)}; it takes {', '.join(f.name for f in self.inputs)}")
        block = self._function.block
        values: list[Any] = [None] * self._function.slots
        for index, constant in self._constants.items():
            values[index] = constant
        for name, slot in self._function.states.items():
            values[slot.index] = self.states[name]
        described = {f.name: f for f in self.inputs}
        for slot in block.inputs:
            values[slot.index] = take(described[slot.name], slot, feeds)
        with np.errstate(all="ignore"):
            results = self._run(block, values)
        by_name = {slot.name: result for slot, result in zip(block.outputs, results, strict=True)}
        return {f.name: give(f, by_name, list(results), i) for i, f in enumerate(self.outputs)}

    def _unpack_weights(self, block: Block) -> None:
        """Compute what is stored compressed (constexpr_...) once, as Core ML does it when it loads a model."""
        left = []
        values = self._constants
        for op in block.operations:
            for inner in op.blocks:
                self._unpack_weights(inner)
            if op.op.startswith("constexpr_"):
                self._apply(self._step(op, ()), values)
                self.packed[op.outputs[-1].index] = op
            else:
                left.append(op)
        block.operations = left

    def _plan(self, block: Block) -> set[int]:
        """Work out how to call each operator of a block; gives every slot that the block and its inner blocks read."""
        reads = []
        for op in block.operations:
            seen = {s.index for v in op.inputs.values() for s in v if isinstance(s, Slot)} if op.inputs else set()
            for inner in op.blocks:
                seen |= self._plan(inner)
            reads.append(seen)
        kept = {s.index for s in block.outputs} | set(self._constants)
        own = {s.index for op in block.operations for s in op.outputs} | {s.index for s in block.inputs}
        steps = []
        for op, seen in zip(reversed(block.operations), reversed(reads), strict=True):
            done = tuple((seen & own) - kept)
            kept |= seen
            steps.append(self._step(op, done))
        self._plans[id(block)] = steps[::-1]
        return kept | {s.index for s in block.outputs}

    def _step(self, op: Operation, done: tuple[int, ...]) -> _Step:
        forms = {p.name: p.form for p in rules[op.op].params}
        plain = rules[op.op].plain
        moves = op.op in MOVES
        arguments = tuple(
            (name, "" if plain else forms[name], v if moves else [self._ready(i) for i in v]) for name, v in op.inputs.items()
        )
        call = rules[op.op].lower
        if plain:
            function, order = call, [name for name in PLAIN if name in op.inputs]
            call = lambda **given: function(*(given[name] for name in order))  # noqa: E731
        return _Step(op, call, arguments, moves, done)

    def _ready(self, bound: Any) -> Any:
        """A float16 constant as the float32 that it is computed with: once, not in every run. Anything else as it is."""
        if not isinstance(bound, Slot):
            return _widened(bound, False)
        constant = self._constants.get(bound.index)
        if not isinstance(constant, np.ndarray) or constant.dtype != np.float16:
            return bound
        if bound.index not in self._wide:
            self._wide[bound.index] = _widened(constant, False)
        return self._wide[bound.index]

    def _run(self, block: Block, values: Any) -> list[Any]:
        for step in self._plans[id(block)]:
            self._apply(step, values)
            for index in step.done:
                values[index] = None
        return [values[slot.index] for slot in block.outputs]

    def _apply(self, step: _Step, values: Any) -> None:
        op = step.operation
        try:
            given = {name: _argument(form, v, values, step.moves) for name, form, v in step.arguments}
            for name, inner in zip(BLOCKS.get(op.op, ()), op.blocks, strict=True):
                given[name] = partial(self._inner, inner, values)
            result = step.call(**given)
        except OnnxbridgeError:
            raise
        except Unsupported as error:
            raise ConversionError(DIRECTION, [Problem(op.op, error.reason, error.hint, (Source(node=op.name),))]) from error
        except Exception as error:
            raise OnnxbridgeError(f"{op.op} {op.name!r}: {type(error).__name__}: {error}") from error
        results = result if isinstance(result, tuple) else (result,)
        for slot, value in zip(op.outputs, results, strict=True):
            values[slot.index] = _typed(op, slot, value)

    def _inner(self, block: Block, values: Any, *arguments: Any) -> list[Any]:
        for slot, value in zip(block.inputs, arguments, strict=True):
            values[slot.index] = value
        return self._run(block, values)


def _argument(form: str, bound: list[Any], values: Any, moves: bool) -> Any:
    found = [_widened(values[v.index] if isinstance(v, Slot) else v, moves) for v in bound]
    if form == "values":
        return found
    (value,) = found
    return FORMS[form](value) if form else value


def _widened(value: Any, moves: bool) -> Any:
    if not moves and isinstance(value, np.ndarray) and value.dtype == np.float16:
        return value.astype(np.float32)
    return value


def _typed(op: Operation, slot: Slot, value: Any) -> Any:
    """Bring a result to its declared type: rounded to float16, indices to int32. Anything else must agree already."""
    if slot.type is None or not isinstance(value, np.ndarray | np.generic):
        return value
    array = np.asarray(value)
    want = slot.type.dtype
    if array.dtype != want:
        whole = op.op in MIXED and want.kind == "i" and np.array_equal(array, np.trunc(array))
        if array.dtype.kind != want.kind and {array.dtype.kind, want.kind} != {"i", "u"} and not whole:
            raise OnnxbridgeError(f"{op.op} {op.name!r}: gives {array.dtype} where the program declares {want}")
        array = array.astype(want)
    if not slot.type.fits(array.shape):
        raise OnnxbridgeError(f"{op.op} {op.name!r}: gives shape {array.shape} where the program declares {slot.type.shape}")
    return array


def _problems(block: Block) -> list[Problem]:
    """Every operator without a rule, every parameter that its rule does not know, and every one that the rule misses."""
    found = []
    for op in block.operations:
        reasons = ["no rule"]
        if op.op in rules:
            rule = rules[op.op]
            known = set(PLAIN if rule.plain else (p.name for p in rule.params))
            needed = {p.name for p in rule.params if p.default is REQUIRED and not rule.plain} - set(BLOCKS.get(op.op, ()))
            reasons = [f"the parameter {name} is not known" for name in sorted(set(op.inputs) - known)]
            reasons += [f"the parameter {name} is missing" for name in sorted(needed - set(op.inputs))]
        found += [Problem(op.op, reason, places=(Source(node=op.name),)) for reason in reasons]
        for inner in op.blocks:
            found += _problems(inner)
    return found
