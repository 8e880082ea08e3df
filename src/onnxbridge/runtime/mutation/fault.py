"""A fault: one small change of one node, and how it is planted in a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import onnx_ir as ir

from onnxbridge.diagnostics import SourceLocation
from onnxbridge.hub.ir.schemas import array_of

Array = np.ndarray[Any, Any]


class Change(Protocol):
    """How a node is changed, in place."""

    def __call__(self, node: ir.Node) -> None: ...


@dataclass(frozen=True)
class ConstantChanged:
    """Input `index`, a constant, is replaced by another array; the constant itself stays as it is for other nodes."""

    index: int
    change: Callable[[Array], Array]

    def __call__(self, node: ir.Node) -> None:
        value = node.inputs[self.index]
        assert value is not None and value.const_value is not None
        old = value.const_value
        array = self.change(array_of(old)).astype(old.dtype.numpy(), copy=False)
        tensor = ir.Tensor(array, dtype=old.dtype, name=f"{value.name}.fault")
        changed = ir.Value(name=tensor.name, type=value.type, shape=value.shape, const_value=tensor)
        node.replace_input_with(self.index, changed)


@dataclass(frozen=True)
class AttributeChanged:
    """The attribute `name` has another value."""

    name: str
    value: int | float | str | tuple[int, ...]

    def __call__(self, node: ir.Node) -> None:
        value = list(self.value) if isinstance(self.value, tuple) else self.value
        node.attributes[self.name] = ir.convenience.convert_attribute(self.name, value)


@dataclass(frozen=True)
class InputsSwapped:
    """Two inputs of a node are swapped."""

    first: int
    second: int

    def __call__(self, node: ir.Node) -> None:
        a, b = node.inputs[self.first], node.inputs[self.second]
        node.replace_input_with(self.first, b)
        node.replace_input_with(self.second, a)


@dataclass(frozen=True)
class Fault:
    """A small change of one node, as a wrong conversion would make.

    Attributes:
        kind: "weight scaled", "weight zeroed", "channel zeroed", "axis", "pads", "epsilon", "mode" or "inputs swapped".
        node: the name of the node, or of its first output where nodes have no names.
        value: the name of the node's first output: the first value that the fault changes.
        op: the operator.
        text: what is changed, in words.
        location: the user's source line or layer path.
        change: changes a node.
    """

    kind: str
    node: str
    value: str
    op: str
    text: str
    location: SourceLocation
    change: Change

    def __str__(self) -> str:
        at = f" at {self.location}" if self.location.file or self.location.scope else ""
        return f"{self.op} {self.value}{at}: {self.text}"

    def planted(self, model: ir.Model) -> ir.Model:
        """A copy of the model with the fault; weights are shared, except the one that the fault changes.

        Raises:
            ValueError: if the model has no such node.
        """
        found = model.clone()
        graph = found.graph
        node = next((n for n in graph if n.op_type == self.op and n.outputs and n.outputs[0].name == self.value), None)
        if node is None:
            raise ValueError(f"the model has no {self.op} that computes {self.value!r}")
        before = dict.fromkeys(node.inputs)
        self.change(node)
        for value in before:
            if value is not None and value.is_initializer() and not value.is_graph_input() and not is_used(value):
                del graph.initializers[str(value.name)]
        for value in node.inputs:
            if value is not None and value.const_value is not None and value.graph is None and value.producer() is None:
                while value.name in graph.initializers:
                    value.name = f"{value.name}.fault"
                graph.register_initializer(value)
        return found

    def changed_node(self, node: ir.Node) -> ir.Graph:
        """The node with the fault, alone in a graph. Its inputs are those of the node that are not constant, in their order and
        each once; its outputs are those that are used."""
        values: dict[ir.Value, ir.Value] = {}
        for v in node.inputs:
            if v is not None and v not in values:
                values[v] = ir.Value(name=v.name, type=v.type, shape=v.shape, const_value=v.const_value)
        inputs = [None if v is None else values[v] for v in node.inputs]
        outputs = [ir.Value(name=v.name, type=v.type, shape=v.shape) for v in node.outputs]
        attributes = list(node.attributes.values())
        copy = ir.Node(node.domain, node.op_type, inputs, attributes, outputs=outputs, metadata_props=dict(node.metadata_props))
        self.change(copy)
        used = [o for o, v in zip(outputs, node.outputs, strict=True) if is_used(v)]
        variable = [v for v in values.values() if v.const_value is None]
        return ir.Graph(variable, used, nodes=[copy], name="changed")


def is_used(value: ir.Value) -> bool:
    """Whether a node or an output of the graph reads the value."""
    return bool(value.name) and bool(value.uses() or value.is_graph_output())
