"""The dynamic sizes of tensors that are computed at a lower rank, as values of the running model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.ir import fold
from onnxbridge.lowering import Call, Ref

MAX_RANK = 5
"""The largest rank of a Core ML tensor."""
Size = int | tuple[int, tuple[str, ...]]
"""The size of one or of several merged axes: a number, or a number times the product of these dynamic sizes."""
Sizes = list[Size]


class NotReducible(Exception):
    """An operator cannot be computed at a lower rank."""


def exceeds_rank(value: ir.Value) -> bool:
    return value.shape is not None and len(value.shape) > MAX_RANK


def size_of(value: ir.Value, axis: int) -> Size:
    size = value.shape[axis] if value.shape is not None else None
    if isinstance(size, int):
        return size
    return 1, ((size.value if size is not None else None) or f"{value.name}[{axis}]",)


class RuntimeSizes:
    """Where a running model finds the dynamic sizes of tensors of too high a rank."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[ir.Value, int, bool]] = {}
        self._seen: set[ir.Value] = set()

    def add_tensors(self, values: Iterable[ir.Value]) -> None:
        """Note the sizes of values that are written."""
        for value in values:
            if value not in self._seen and not exceeds_rank(value):
                self._add(value, range(len(value.shape or ())), value, elements=False)
            self._seen.add(value)

    def add_shape_operand(self, call: Call) -> None:
        """Note the sizes in the shape operand of a Reshape or Expand, which are known before its result."""
        shape = call.inputs[1].key if call.op in ("Reshape", "Expand") and isinstance(call.inputs[1], Ref) else None
        result = call.outputs[0]
        if not isinstance(shape, ir.Value) or not isinstance(result, ir.Value):
            return
        known = fold.known_sizes(shape)
        if known is not None and len(known) == len(result.shape or ()):
            self._add(result, [axis for axis, size in enumerate(known) if size is None], shape, elements=True)

    def _add(self, value: ir.Value, axes: Iterable[int], source: ir.Value, elements: bool) -> None:
        for axis in axes:
            size = size_of(value, axis)
            if isinstance(size, tuple):
                self._found.setdefault(size[1][0], (source, axis, elements))

    def scalar(self, op: Builder, name: str, body_input: Callable[[ir.Value], ir.Value]) -> ir.Value | None:
        """A dynamic size as a value in the body of a call; None if it is not known.

        Args:
            body_input: the body's input for a value of the graph.
        """
        if name not in self._found:
            return None
        source, axis, elements = self._found[name]
        inner = body_input(source)
        return op.Gather(inner, np.int64(axis), axis=0) if elements else op.size(inner, axis)  # type: ignore[no-any-return]


class BodyBuilder(Builder):
    """Builds the body of a call at a lower rank. Its inputs are added when they are used."""

    def __init__(self, sizes: RuntimeSizes) -> None:
        super().__init__()
        self.inputs: dict[ir.Value, ir.Value] = {}
        self._sizes = sizes

    def input_for(self, value: ir.Value) -> ir.Value:
        """The body's input for a value of the graph."""
        if value not in self.inputs:
            if value.dtype is None:
                raise NotReducible
            dims = [d if isinstance(d, int) else d.value for d in value.shape or ()]
            self.inputs[value] = self.input(f"in{len(self.inputs)}", value.dtype, dims)
        return self.inputs[value]

    def runtime_shape(self, sizes: Sizes) -> ir.Value:
        """The shape of a Reshape, which itself finds one size: the only dynamic one, or one that is not known otherwise."""
        dynamic = [i for i, size in enumerate(sizes) if isinstance(size, tuple)]
        known = {i: self._product_at_runtime(sizes[i]) for i in dynamic} if len(dynamic) > 1 else {}
        if sum(size is None for size in known.values()) > 1:
            raise NotReducible
        found = [-1 if known.get(i) is None else known[i] for i in range(len(sizes))]
        return self.dims([size if isinstance(size, int) else found[i] for i, size in enumerate(sizes)])

    def _product_at_runtime(self, size: Any) -> ir.Value | None:
        number, names = size
        factors = [self._sizes.scalar(self, name, self.input_for) for name in names]
        if any(f is None for f in factors):
            return None
        product = factors[0]
        for factor in [*factors[1:], *([] if number == 1 else [np.int64(number)])]:
            product = self.Mul(product, factor)
        return product
