"""The inputs and outputs of a model in another layout or under other names than in its source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import UsageError

Arrays = Mapping[str, np.ndarray[Any, Any]]
LAYOUTS = ("nchw", "nhwc")


@dataclass(frozen=True)
class Boundary:
    """What a user asks of inputs and outputs, by the source's names.

    `layouts` says "nchw" (channels on axis 1) or "nhwc" (channels last) for values that the source has in the other layout. The
    name "" stands for all inputs and outputs with four axes. `names` are new names.
    """

    layouts: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)

    def on_model(self, model: ir.Model) -> None:
        """Change a hub model that has the source's names and layouts. Transposes are moved and canceled by later passes.

        Raises:
            UsageError: for a name that it does not have, and a value without channels.
        """
        values = [*model.graph.inputs, *model.graph.outputs]
        known = [str(v.name) for v in values]
        for name in [*self.layouts, *self.names]:
            if name and name not in known:
                raise UsageError(f"the model has no input or output {name!r}; it has {', '.join(known)}")
        for value in list(model.graph.inputs):
            if (perm := self._perm(value)) is not None:
                _transpose_input(model.graph, value, perm)
        for i, value in enumerate(list(model.graph.outputs)):
            if (perm := self._perm(value)) is not None:
                _transpose_output(model.graph, i, value, perm)
        for value in [*model.graph.inputs, *model.graph.outputs]:
            value.name = self.names.get(str(value.name), value.name)

    def on_run(self, run: Callable[[Arrays], dict[str, Any]]) -> Callable[[Arrays], dict[str, Any]]:
        """Runs of the source that take and give arrays as the changed model does."""

        def changed(feeds: Arrays) -> dict[str, Any]:
            return self.results(run(self.feeds(feeds)))

        return changed if self.layouts or self.names else run

    def feeds(self, feeds: Arrays) -> dict[str, Any]:
        """Inputs of the changed model as the source takes them."""
        old = {new: name for name, new in self.names.items()}
        named = {old.get(name, name): array for name, array in feeds.items()}
        return {name: self._arranged(name, array, inverse=True) for name, array in named.items()}

    def results(self, results: Arrays) -> dict[str, Any]:
        """Results of the source as the changed model gives them."""
        return {self.names.get(name, name): self._arranged(name, array, inverse=False) for name, array in results.items()}

    def _arranged(self, name: str, array: Any, inverse: bool) -> Any:
        layout = self._layout(name, np.ndim(array))
        if layout is None:
            return array
        perm = _to(layout, np.ndim(array))
        return np.ascontiguousarray(np.transpose(array, np.argsort(perm) if inverse else perm))

    def _layout(self, name: str, rank: int) -> str | None:
        return self.layouts.get(name) or (self.layouts.get("") if rank == 4 else None)

    def _perm(self, value: ir.Value) -> list[int] | None:
        if value.shape is None:
            if str(value.name) in self.layouts:
                raise UsageError(
                    f"the layout of {value.name!r} cannot be changed: its rank is unknown; give its shape with --inputs"
                )
            return None
        rank = len(value.shape)
        layout = self._layout(str(value.name), rank)
        if layout is None:
            return None
        if rank < 3:
            raise UsageError(f"the layout of {value.name!r} cannot be changed: it has {rank} axes")
        return _to(layout, rank)


def parse_layouts(given: str | Sequence[str] | Mapping[str, str] | None) -> dict[str, str]:
    """Layouts by name, from "x:nchw" or "nchw", one or several.

    Raises:
        UsageError: for a layout that is neither nchw nor nhwc.
    """
    if isinstance(given, Mapping):
        pairs = list(given.items())
    else:
        pairs = []
        for text in [given] if isinstance(given, str) else given or ():
            name, _, layout = text.rpartition(":")
            pairs.append((name, layout))
    found = {name: layout.lower() for name, layout in pairs}
    for name, layout in found.items():
        if layout not in LAYOUTS:
            raise UsageError(f"layout {layout!r}: write {name or 'x'}:nchw or {name or 'x'}:nhwc")
    return found


def parse_names(given: Sequence[str] | Mapping[str, str] | None) -> dict[str, str]:
    """New names by old ones, from "x=image".

    Raises:
        UsageError: for other text.
    """
    if isinstance(given, Mapping):
        return dict(given)
    found = {}
    for text in [given] if isinstance(given, str) else given or ():
        old, equals, new = text.partition("=")
        if not (old and equals and new):
            raise UsageError(f"rename {text!r}: write OLD=NEW")
        found[old] = new
    return found


def _to(layout: str, rank: int) -> list[int]:
    """The permutation that changes the other layout into this one."""
    return [0, rank - 1, *range(1, rank - 1)] if layout == "nchw" else [0, *range(2, rank), 1]


def _permuted(shape: ir.Shape, perm: Sequence[int]) -> ir.Shape:
    return ir.Shape([shape[p] for p in perm])


def _transpose(value: ir.Value, perm: Sequence[int], name: str) -> ir.Node:
    node = ir.Node("", "Transpose", [value], [ir.AttrInt64s("perm", list(perm))], name=name)
    node.outputs[0].name, node.outputs[0].type = name, value.type
    return node


def _transpose_input(graph: ir.Graph, value: ir.Value, perm: Sequence[int]) -> None:
    inverse = [int(p) for p in np.argsort(perm)]
    node = _transpose(value, inverse, f"{value.name}.transpose")
    result = node.outputs[0]
    result.shape = value.shape
    value.replace_all_uses_with(result, replace_graph_outputs=True)
    node.replace_input_with(0, value)
    assert result.shape is not None
    value.shape = _permuted(result.shape, perm)
    graph.insert_before(next(iter(graph)), node) if len(graph) else graph.append(node)


def _transpose_output(graph: ir.Graph, index: int, value: ir.Value, perm: Sequence[int]) -> None:
    name = str(value.name)
    value.name = f"{name}.transpose"
    node = _transpose(value, perm, name)
    assert value.shape is not None
    node.outputs[0].shape = _permuted(value.shape, perm)
    graph.append(node)
    graph.outputs[index] = node.outputs[0]
