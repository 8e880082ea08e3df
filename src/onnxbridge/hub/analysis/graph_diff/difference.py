"""What `diff` found: plain data, which `difference_text` shows to people and `as_dict` to programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from onnxbridge.hub.analysis.graph_diff.difference_text import lines


@dataclass(frozen=True)
class ModelSummary:
    """One of the two models. `read_as` is "written" or "hub"; sizes of weights are in bytes."""

    name: str
    format: str
    read_as: str
    opsets: Mapping[str, int]
    ir_version: int | None
    producer: str
    metadata: Mapping[str, str]
    nodes: int
    weights: int
    bytes: int


@dataclass(frozen=True)
class InterfaceChange:
    """An input or output that differs. `old` and `new` are its type and shape, as "float32[N, 3]"; None where it does not exist.

    `kind` is "input" or "output". `new_name` is "" if the name is the same.
    """

    kind: str
    name: str
    new_name: str
    old: str | None
    new: str | None


@dataclass(frozen=True)
class NodeSummary:
    """A node. `scope` is the path of the subgraph or function that it is in, "" for the main graph. `location` is where it
    comes from in the source, "" if unknown."""

    name: str
    op: str
    scope: str
    location: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class SettingChange:
    """An attribute, or a small constant input, that differs. None where the node has none."""

    name: str
    old: Any
    new: Any


@dataclass(frozen=True)
class NodeChange:
    """A node with other attributes. `new_name` is "" if the name is the same."""

    node: NodeSummary
    new_name: str
    settings: tuple[SettingChange, ...]


@dataclass(frozen=True)
class Move:
    """A node or a graph output that exists in both models and reads another value.

    `input` is the name of the node's input; `old` and `new` are the values that it reads, None for none.
    """

    node: NodeSummary
    input: str
    old: str | None
    new: str | None


@dataclass(frozen=True)
class ShapeChange:
    """A value that has another type or shape. `scope` is that of its node."""

    name: str
    scope: str
    old: str
    new: str


@dataclass(frozen=True)
class Distance:
    """How far the elements of two tensors of one shape are apart.

    `max_abs` is the largest absolute difference, `relative` the same as a fraction of the largest magnitude in the first tensor,
    `different` the number of elements that differ. Two NaNs are equal.
    """

    max_abs: float
    relative: float
    different: int
    elements: int


@dataclass(frozen=True)
class WeightChange:
    """A weight with other elements, another dtype or another shape.

    `distance` is None if the shapes differ. `transposed` is True if it is the same matrix, transposed.
    """

    name: str
    new_name: str
    old: str
    new: str
    distance: Distance | None
    transposed: bool


@dataclass(frozen=True)
class WeightSummary:
    """A weight that only one model has."""

    name: str
    type: str
    bytes: int


@dataclass(frozen=True)
class Difference:
    """The differences of two models as graphs, from the first to the second.

    Attributes:
        first, second: the two models, with producer and metadata.
        interface: inputs and outputs that differ.
        opsets: versions of operator domains that differ, as (old, new).
        operators: number of nodes by operator, as (old, new), where it differs.
        added, removed: nodes that only the second or only the first model has.
        replaced: pairs of nodes of different operators that read the same values and are read by the same nodes.
        changed: nodes whose attributes differ.
        moved: nodes that read another value than before, although both exist in both models.
        weights_changed, weights_added, weights_removed: weights by what happened to them.
        shapes: values whose type or shape differs.
        functions_added, functions_removed: local functions by name.
        renamed_nodes, renamed_weights: pairs of names of what is otherwise matched.
        metadata: producer and metadata that differ, as (old, new).
        matched: number of matched nodes by how they were matched: "structure", "name", "weights", "order" or "neighbours".
    """

    first: ModelSummary
    second: ModelSummary
    interface: tuple[InterfaceChange, ...] = ()
    opsets: Mapping[str, tuple[int | None, int | None]] = field(default_factory=dict)
    operators: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    added: tuple[NodeSummary, ...] = ()
    removed: tuple[NodeSummary, ...] = ()
    replaced: tuple[tuple[NodeSummary, NodeSummary], ...] = ()
    changed: tuple[NodeChange, ...] = ()
    moved: tuple[Move, ...] = ()
    weights_changed: tuple[WeightChange, ...] = ()
    weights_added: tuple[WeightSummary, ...] = ()
    weights_removed: tuple[WeightSummary, ...] = ()
    shapes: tuple[ShapeChange, ...] = ()
    functions_added: tuple[str, ...] = ()
    functions_removed: tuple[str, ...] = ()
    renamed_nodes: tuple[tuple[str, str], ...] = ()
    renamed_weights: tuple[tuple[str, str], ...] = ()
    metadata: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)
    matched: Mapping[str, int] = field(default_factory=dict)

    @property
    def equal(self) -> bool:
        """Whether the models are the same except for names of nodes and weights, producer and metadata."""
        found = (
            self.interface, self.opsets, self.operators, self.added, self.removed, self.replaced, self.changed, self.moved,
            self.weights_changed, self.weights_added, self.weights_removed, self.shapes, self.functions_added,
            self.functions_removed,
        )  # fmt: skip
        return not any(found)

    @property
    def identical(self) -> bool:
        """Whether nothing differs, names, producer and metadata included."""
        return self.equal and not (self.renamed_nodes or self.renamed_weights or self.metadata)

    def as_dict(self) -> dict[str, Any]:
        return {"equal": self.equal, "identical": self.identical, **asdict(self)}

    def __str__(self) -> str:
        return self.text()

    def text(self, *, everything: bool = False) -> str:
        """The differences for people, the most important first. Long lists are shortened, unless `everything`."""
        verdict = "IDENTICAL" if self.identical else "EQUAL except for names and metadata:" if self.equal else "DIFFERENT"
        return "\n".join(lines(verdict, vars(self), everything))
