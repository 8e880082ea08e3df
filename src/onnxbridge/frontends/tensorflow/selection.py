"""A source with what a user selects of it: a signature, tensors where its graph is cut, layouts and names."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from onnxbridge.frontends.tensorflow.convert import Traced
from onnxbridge.frontends.tensorflow.graph_files import named_like
from onnxbridge.hub.passes.boundary import Boundary, parse_layouts, parse_names


@dataclass(frozen=True)
class Selection:
    """What is converted of a source.

    `signature` is one of a SavedModel's, "" for the default. `inputs_at` and `outputs_at` are tensors of the graph, "" and () for
    its own inputs and outputs. `checkpoint` has the values of a graph's variables. `label` is the path that
    the source was loaded from.
    """

    source: Any
    signature: str = ""
    inputs_at: tuple[str, ...] = ()
    outputs_at: tuple[str, ...] = ()
    checkpoint: str = ""
    label: str = ""
    boundary: Boundary = field(default_factory=Boundary)

    def on(self, found: Traced) -> Boundary:
        """The boundary by the names of the traced inputs and outputs, where users give a tensor ("Identity:0")."""
        names = {t.name: n for n, t in [*found.inputs, *found.outputs]}
        known = {n for n, _ in [*found.inputs, *found.outputs]}

        def own(given: Mapping[str, str]) -> dict[str, str]:
            return {n if n in known else full(n): v for n, v in given.items()}

        def full(name: str) -> str:
            ends = named_like(name, known)
            return names.get(name if ":" in name else f"{name}:0") or (ends[0] if len(ends) == 1 else name)

        return Boundary(own(self.boundary.layouts), own(self.boundary.names))


def selection_of(source: Any) -> Selection:
    """A source, or a pair of a SavedModel and the name of a signature, or of a `.meta` file and a checkpoint."""
    if isinstance(source, Selection):
        return source
    if isinstance(source, tuple) and len(source) == 2 and isinstance(source[1], (str, os.PathLike)):
        first, second = source
        if isinstance(first, (str, os.PathLike)) and os.path.exists(first):
            if os.path.isdir(first) and not os.path.exists(second):
                return Selection(first, os.fspath(second))
            if os.path.isfile(first):
                return Selection(first, checkpoint=os.fspath(second))
    return Selection(source)


def with_options(
    source: Any, *, signature: str | None = None, inputs_at: Sequence[str] | None = None, outputs_at: Sequence[str] | None = None,
    layout: Any = None, rename: Any = None, inputs_as_nchw: Sequence[str] | None = None,
    outputs_as_nchw: Sequence[str] | None = None,
) -> Selection:  # fmt: skip
    """The source with the options of `to_hub`."""
    found = selection_of(source)
    nchw = [*(inputs_as_nchw or ()), *(outputs_as_nchw or ())]
    layouts = {n.removesuffix(":0"): v for n, v in (parse_layouts(layout) | dict.fromkeys(nchw, "nchw")).items()}
    cut_in, new_in = _named(inputs_at)
    cut_out, new_out = _named(outputs_at)
    names = {n.removesuffix(":0"): v for n, v in {**new_in, **new_out, **parse_names(rename)}.items()}
    return replace(
        found, signature=signature or found.signature,
        inputs_at=cut_in or found.inputs_at, outputs_at=cut_out or found.outputs_at,
        boundary=Boundary({**found.boundary.layouts, **layouts}, {**found.boundary.names, **names}),
    )  # fmt: skip


def _named(given: Sequence[str] | None) -> tuple[tuple[str, ...], dict[str, str]]:
    """Tensors, and the names that users give them: "logits=dense/BiasAdd:0" is a tensor under the name logits."""
    tensors, names = [], {}
    for text in [given] if isinstance(given, str) else given or ():
        new, equals, tensor = text.rpartition("=")
        tensors.append(tensor)
        if equals:
            names[tensor] = new
    return tuple(tensors), names


def allowed_domains(allow_domain: Sequence[str] | None, extra_opset: Sequence[Any] | None) -> frozenset[str]:
    """The domains of operators outside the standard that the result may use: by name, or as tf2onnx's `extra_opset`."""
    named = [allow_domain] if isinstance(allow_domain, str) else allow_domain or ()
    return frozenset([*named, *(getattr(o, "domain", None) or str(o) for o in extra_opset or ())])
