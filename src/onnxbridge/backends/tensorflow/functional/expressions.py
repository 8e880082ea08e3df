"""Calls of Keras layers and of `keras.ops` that compute the values of a hub graph, before they are built."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir


@dataclass(frozen=True, eq=False)
class Weight:
    """One weight of a layer: the hub's weights that it is made of, and the function that computes its array."""

    sources: tuple[ir.Value, ...]
    array: Callable[[], np.ndarray[Any, Any]]


@dataclass(frozen=True, eq=False)
class Expression:
    """A call: `kind` is a class of `keras.layers` ("Conv2D"), a function of `keras.ops` ("ops.mean"), or "getitem".

    Attributes:
        inputs: hub values, other expressions, and constants (numbers, arrays).
        config: the arguments of the layer's constructor, or the keyword arguments of the function.
        weights: in the order of the layer's `weights`.
        named: inputs that are passed by keyword, each an input or a tuple of them (`initial_state`, `attention_mask`).
        as_list: whether the layer takes its inputs as one list.
        replaces: other nodes whose values the call computes, too; the last one's output is the result.
        wrapped: for a wrapper (Bidirectional), the layer that it wraps, without inputs.
    """

    kind: str
    inputs: tuple[Any, ...]
    config: Mapping[str, Any] = field(default_factory=dict)
    weights: tuple[Weight, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)
    as_list: bool = False
    replaces: tuple[ir.Node, ...] = ()
    wrapped: Expression | None = None

    @property
    def operands(self) -> Iterator[Any]:
        """All inputs."""
        yield from self.inputs
        for value in self.named.values():
            yield from value if isinstance(value, tuple) else (value,)

    @property
    def is_layer(self) -> bool:
        """Whether the call is a layer, which has a name."""
        return self.kind[:1].isupper()


@dataclass(frozen=True, eq=False)
class Item:
    """One result of a call that has several; `replaces` as that of a call."""

    call: Expression
    index: int
    replaces: tuple[ir.Node, ...] = ()


Result = Expression | Item | ir.Value
"""What computes a value of the hub: a call, one of its results, or another value (the operator does nothing)."""
