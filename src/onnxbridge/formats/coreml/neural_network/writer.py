"""The `mil` writer, the first parameter of the layer rules: appends MIL operators to a block."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from onnxbridge import lowering
from onnxbridge.formats.coreml.mil_program import Block, Operation, Slot, Type
from onnxbridge.formats.coreml.neural_network import custom_layers
from onnxbridge.lowering import Body, Call


class Writer:
    """Writes `mil.conv(x=..., weight=...)` as an operator of the current block. Results are slots; constants are inline.

    `exact`: blobs have the ranks of the file. Otherwise every blob has four axes (sequence, channels, height, width); the batch
    axis, which older networks have between the first two, has size 1 and is omitted.
    """

    def __init__(self, *, exact: bool) -> None:
        self.exact = exact
        self.block = Block()
        self.constants: dict[int, Any] = {}
        self.count = 0
        self._name = ""

    def __getattr__(self, op: str) -> Callable[..., Any]:
        if op.startswith("_"):
            raise AttributeError(op)
        return functools.partial(self.emit, op)

    def emit(self, op: str, *, outputs: int = 1, blocks: tuple[Block, ...] = (), **inputs: Any) -> Any:
        """Append one operator; inputs that are None are omitted."""
        given = {k: list(v) if isinstance(v, list) else [v] for k, v in inputs.items() if v is not None}
        slots = tuple(self.new(self._name) for _ in range(outputs))
        self.block.operations.append(Operation(op, self._name, given, slots, blocks))
        return slots if outputs > 1 else slots[0]

    def new(self, name: str, type: Type | None = None) -> Slot:
        slot = Slot(self.count, name, type)
        self.count += 1
        return slot

    def weight(self, value: Any, name: str) -> Slot:
        """A constant, named after the layer."""
        array = np.asarray(value)
        slot = self.new(f"{self._name}.{name}", Type(array.dtype, array.shape))
        self.constants[slot.index] = array
        return slot

    def strings(self, values: list[Any], name: str) -> Slot:
        """A constant list of strings, or of integer labels."""
        slot = self.new(f"{self._name}.{name}")
        self.constants[slot.index] = values
        return slot

    @contextmanager
    def named(self, name: str) -> Iterator[None]:
        """Operators written in this context get the name."""
        outer, self._name = self._name, name
        try:
            yield
        finally:
            self._name = outer

    @contextmanager
    def inner(self) -> Iterator[Block]:
        """Operators written in this context go to a new block."""
        outer, self.block = self.block, Block()
        try:
            yield self.block
        finally:
            self.block = outer


class Target(lowering.Target):
    """The lowering target that writes with a `Writer`."""

    direction = "Core ML's neural network to MIL"

    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    def static(self, key: Hashable, value: Any) -> Any:
        return None if isinstance(value, Slot) else np.asarray(value)

    def scope(self, call: Call) -> Any:
        return self.writer.named(call.location.node)

    def decompose(self, call: Call) -> Body | None:
        if call.op.startswith(custom_layers.PREFIX):
            raise custom_layers.missing(call)
        return None
