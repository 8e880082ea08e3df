"""Who runs a model that is given as an object or a path, and how two models' inputs and outputs are paired."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import onnx_ir as ir

from onnxbridge import plugins
from onnxbridge.errors import UsageError
from onnxbridge.runtime.verify import Side

# The kinds of artifact that a backend opens again where no frontend reads them.
_OPENED_BY = {"mlpackage": "coreml", "mlmodel": "coreml"}


@dataclass(frozen=True)
class Runnable:
    """A model that can be run here: its side, its names, and its hub model where a frontend reads it."""

    side: Side
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    hub: ir.Model | None


def runnable(
    source: Any, load: Callable[[plugins.Frontend, Any], ir.Model], frontend: str | None = None, device: str = "auto"
) -> Runnable:
    """The model behind a live object or a path.

    Raises:
        UsageError: if no plugin takes it.
    """
    if frontend is None and isinstance(source, (str, os.PathLike)):
        from onnxbridge.hub.recognise import recognise

        opener = _OPENED_BY.get(recognise(source))
        if opener is not None and opener not in plugins.installed("frontend"):
            backend = plugins.backend(opener)
            artifact = cast(plugins.Opener, backend).open(Path(source))
            side = Side(backend.title, backend.runner(artifact, device), getattr(artifact, "unit_roundoff", None))
            return Runnable(side, tuple(p.hub for p in artifact.inputs), tuple(p.hub for p in artifact.outputs), None)
    reader = plugins.frontend(frontend) if frontend else plugins.frontend_for(source)
    hub = load(reader, source)
    names = tuple(str(v.name) for v in hub.graph.inputs), tuple(str(v.name) for v in hub.graph.outputs)
    return Runnable(Side(reader.title, reader.runner(source, device)), *names, hub)


def paired(reference: Runnable, candidate: Runnable) -> Side:
    """The candidate's side, taking and giving the reference's names: the same names where both have them, else by position.

    Raises:
        UsageError: if the two have different numbers of inputs or outputs.
    """
    inputs = _pairs(reference.inputs, candidate.inputs, "inputs")
    outputs = _pairs(candidate.outputs, reference.outputs, "outputs")

    def run(feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        results = candidate.side.run({inputs[k]: v for k, v in feeds.items()})
        return {outputs[k]: v for k, v in results.items()}

    return Side(candidate.side.title, run, candidate.side.unit)


def _pairs(a: Sequence[str], b: Sequence[str], what: str) -> dict[str, str]:
    if len(a) != len(b):
        raise UsageError(f"the two models have {len(a)} and {len(b)} {what}: {', '.join(a)}; {', '.join(b)}")
    return dict(zip(a, a if set(a) == set(b) else b, strict=True))
