"""In-memory MIL programs, as the interpreter runs them: every value has a slot, and names are only used in messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxbridge.errors import SourceLocation, UnsafeFileError
from onnxbridge.lowering import Body, Call, Schema

Array = np.ndarray[Any, Any]

# MIL's names of the blocks of an operator, in file order.
BLOCKS = {"cond": ("_true_fn", "_false_fn"), "while_loop": ("_cond", "_body")}
# the parameters that take a tuple of values; every other one takes one
TUPLES = frozenset({"values", "loop_vars", "elem_shape", "ref_tensors", "begins", "ends", "end_masks"})
# those that come first, in this order, for rules that are a library's own function
FIRST = Schema(("x", "y"))


@dataclass(frozen=True)
class Type:
    """A tensor's dtype and shape; None stands for a dynamic dimension, or an unknown shape."""

    dtype: np.dtype[Any]
    shape: tuple[int | None, ...] | None = ()

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether an array of this shape matches the type."""
        if self.shape is None:
            return True
        return len(shape) == len(self.shape) and all(w in (None, n) for n, w in zip(shape, self.shape, strict=True))

    def fixed(self) -> tuple[int, ...] | None:
        """The shape if it is static, else None."""
        return None if self.shape is None or None in self.shape else tuple(n for n in self.shape if n is not None)


@dataclass(frozen=True)
class Slot:
    """The storage index of a value while the program runs. `type` is None for lists, dictionaries and states."""

    index: int
    name: str
    type: Type | None = None


@dataclass
class Operation:
    """One MIL operator; an input is a slot, a list of slots and constants, or an inline constant."""

    op: str
    name: str
    inputs: dict[str, Any]
    outputs: tuple[Slot, ...]
    blocks: tuple[Block, ...] = ()


@dataclass
class Block:
    """Operators in execution order."""

    inputs: tuple[Slot, ...] = ()
    operations: list[Operation] = field(default_factory=list)
    outputs: tuple[Slot, ...] = ()


@dataclass
class Function:
    """A program's function: its main block, its states by name, and its constants by slot. `slots` is the number of slots."""

    name: str
    block: Block
    states: dict[str, Slot]
    constants: dict[int, Any]
    slots: int


def call_of(op: Operation, item: Callable[[Any], Any], body: Callable[[Block], Body]) -> Call:
    """An operator as the walker takes it: `item` gives what stands for a slot or a constant, `body` for a block."""
    attrs: dict[str, Any] = {name: _argument(name, [item(i) for i in items]) for name, items in op.inputs.items()}
    attrs |= {name: body(block) for name, block in zip(BLOCKS.get(op.op, ()), op.blocks, strict=True)}
    first = () if FIRST.params[0] not in attrs else tuple(attrs.pop(name) for name in FIRST.params if name in attrs)
    return Call(op.op, first, attrs, tuple(s.index for s in op.outputs), SourceLocation(node=op.name), FIRST)


def _argument(name: str, items: list[Any]) -> Any:
    if name in TUPLES:
        return tuple(items)
    if not items:
        raise UnsafeFileError(f"the parameter {name} of an operator has no value")
    return items[0]


def classes(function: Function) -> list[Any] | None:
    """The class labels of a classifier, None for other models."""
    found = next((o for o in function.block.operations if o.op == "classify"), None)
    if found is None:
        return None
    (names,) = found.inputs["classes"]
    known = function.constants.get(names.index) if isinstance(names, Slot) else names
    return [c.item() if isinstance(c, np.ndarray | np.generic) else c for c in (known if known is not None else [])]


@dataclass(frozen=True)
class Feature:
    """The description of a model's input or output.

    Attributes:
        kind: the description's type name (multiArrayType, imageType, ...).
        default: the value of an optional input.
        allowed: the sizes of a flexible shape: "1..64, 3" or "1x3x224x224 or 1x3x256x256".
        keys: of a dictionary, which is a vector of its values in this order in the program.
    """

    name: str
    kind: str
    dtype: np.dtype[Any] | None = None
    shape: tuple[int, ...] = ()
    optional: bool = False
    default: float | None = None
    color: str = ""
    allowed: str = ""
    keys: tuple[Any, ...] = ()
