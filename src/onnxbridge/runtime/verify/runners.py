"""Who runs a model that is given as an object or a path, and how two models' inputs and outputs are paired."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import ml_dtypes
import numpy as np
import onnx_ir as ir

from onnxbridge import plugins
from onnxbridge.errors import ConversionError, OnnxbridgeError, UsageError, VerificationError, main_line
from onnxbridge.plugins import Run
from onnxbridge.runtime.verify.verification import Side

# The kinds of artifact that a backend opens again where it made them: it knows their names and their arithmetic.
_OPENED_BY = {"mlpackage": "coreml", "mlmodel": "coreml"}


@dataclass(frozen=True)
class Runnable:
    """A model that can be run here: its side, its names, and its hub model where a frontend reads it. `against` prepares the
    side anew where its maker can tell more of it beside the hub model of its source. `shapes` are those of its inputs, None for a
    size that is open."""

    side: Side
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    hub: ir.Model | None
    against: Callable[[ir.Model], Side] | None = None
    shapes: Mapping[str, Sequence[int | None]] = field(default_factory=dict)


def runnable(
    source: Any, load: Callable[[plugins.Frontend, Any], ir.Model], frontend: str | None = None, device: str = "auto"
) -> Runnable:
    """The model behind a live object or a path.

    Raises:
        UsageError: if no plugin takes it.
    """
    if frontend is None and isinstance(source, (str, os.PathLike)):
        from onnxbridge.hub.io.detect_format import recognise

        opener = _OPENED_BY.get(recognise(source))
        backend: Any = plugins.backend(opener) if opener in plugins.installed("backend") else None
        if backend is not None and cast(plugins.Opener, backend).made(Path(source)):
            artifact = backend.open(Path(source))
            names = tuple(p.hub for p in artifact.inputs), tuple(p.hub for p in artifact.outputs)

            against = getattr(backend, "against", None)
            anew = None if against is None else (lambda hub: made_side(backend, against(artifact, hub), device))
            shapes = {p.hub: [d if isinstance(d, int) else None for d in p.shape] for p in artifact.inputs}
            return Runnable(made_side(backend, artifact, device), *names, _hub(source, load), anew, shapes)
    reader = plugins.frontend(frontend) if frontend else plugins.frontend_for(source)
    hub = load(reader, source)
    names = tuple(str(v.name) for v in hub.graph.inputs), tuple(str(v.name) for v in hub.graph.outputs)
    shapes = {str(v.name): [d if isinstance(d, int) else None for d in v.shape] for v in hub.graph.inputs if v.shape is not None}
    return Runnable(completed(started(reader.title, lambda: reader.runner(source, device)), hub), *names, hub, shapes=shapes)


def _hub(source: Any, load: Callable[[plugins.Frontend, Any], ir.Model]) -> ir.Model | None:
    """What a frontend reads, None where none can."""
    try:
        return load(plugins.frontend_for(source), source)
    except (ConversionError, UsageError):
        return None


def started(title: str, start: Callable[[], Run], unit: float | None = None) -> Side:
    """The side that `start` prepares.

    Raises:
        VerificationError: if the framework does not take the model.
    """
    try:
        run = start()
    except Exception as e:
        if isinstance(e, OnnxbridgeError) and e.exit_code != OnnxbridgeError.exit_code:
            raise
        raise VerificationError(f"{title} does not take the model: {type(e).__name__}: {main_line(e)}") from e
    by = getattr(run, "by", "")
    return Side(f"{title} ({by})" if by else title, run, unit)


def made_side(backend: Any, artifact: Any, device: str) -> Side:
    """An artifact of a backend, as it computes and, where it can tell, without the rounding of its half precision.

    Raises:
        VerificationError: if the framework does not take the model.
    """
    side = started(backend.title, lambda: backend.runner(artifact, device), getattr(artifact, "unit_roundoff", None))
    run = backend.in_float32(artifact) if hasattr(backend, "in_float32") else None
    stored = backend.as_stored(artifact) if hasattr(backend, "as_stored") else None
    return replace(side, finer=None if run is None else Side("computed in float32", run), stored=stored)


def completed(side: Side, hub: ir.Model | None) -> Side:
    """The source's side with the inputs that are constants of the hub model."""
    from onnxbridge.hub.passes.bind_inputs import fixed

    constants = fixed(hub)
    return replace(side, run=lambda feeds: side.run({**feeds, **constants})) if constants else side


def paired(reference: Runnable, candidate: Runnable) -> Side:
    """The candidate's side, taking and giving the reference's names: the same names where both have them, else those that
    differ only in characters that a framework does not take, else by the numbers with which both sides count theirs, else by
    position. Inputs are given in the types that the candidate takes.

    Raises:
        UsageError: if the two have different numbers of inputs or outputs.
    """
    inputs = _pairs(reference.inputs, candidate.inputs, "inputs")
    outputs = _pairs(candidate.outputs, reference.outputs, "outputs")
    side = candidate.side if candidate.against is None or reference.hub is None else candidate.against(reference.hub)
    taken = {} if candidate.hub is None else {str(v.name): v.dtype for v in candidate.hub.graph.inputs}

    def named(run: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
        def renamed(feeds: Mapping[str, Any]) -> dict[str, Any]:
            results = run({inputs[k]: _as_taken(v, taken.get(inputs[k])) for k, v in feeds.items()})
            return {outputs[k]: v for k, v in results.items()}

        return renamed

    finer = side.finer and replace(side.finer, run=named(side.finer.run))
    return replace(side, run=named(side.run), finer=finer, stored=side.stored and named(side.stored))


def settled(reference: Runnable, candidate: Runnable) -> dict[str, tuple[int, int]]:
    """Bounds of the reference's open sizes that are numbers in the candidate: a batch of 1, where there are pictures."""
    inputs = _pairs(reference.inputs, candidate.inputs, "inputs")
    found = {}
    for value in reference.hub.graph.inputs if reference.hub is not None else ():
        taken = candidate.shapes.get(inputs.get(value.name or "", ""), ())
        for axis, (dim, size) in enumerate(zip(value.shape or (), taken, strict=False)):
            if not isinstance(dim, int) and size is not None:
                found[dim.value or f"{value.name}.{axis}"] = (size, size)
    return found


def _as_taken(value: Any, dtype: ir.DataType | None) -> Any:
    """Numbers in the type that a model takes: whole ones where it holds them, as int32 for int64, floats rounded to it."""
    if not isinstance(value, np.ndarray) or dtype is None or value.dtype == (wanted := dtype.numpy()):
        return value
    floats = [np.issubdtype(t, np.floating) or t == ml_dtypes.bfloat16 for t in (value.dtype, wanted)]
    whole = [t.kind in "iu" for t in (value.dtype, wanted)]
    with np.errstate(all="ignore"):
        cast = value.astype(wanted) if all(floats) or all(whole) else value
    return cast if all(floats) or np.array_equal(cast, value) else value


def _pairs(a: Sequence[str], b: Sequence[str], what: str) -> dict[str, str]:
    if len(a) != len(b):
        raise UsageError(f"the two models have {len(a)} and {len(b)} {what}: {', '.join(a)}; {', '.join(b)}")
    if set(a) == set(b):
        return dict(zip(a, a, strict=True))
    plain = {_plain(name): name for name in b}
    if len(plain) == len(b) and {_plain(name) for name in a} == set(plain):
        return {name: plain[_plain(name)] for name in a}
    counted = {_number(name): name for name in b}
    if set(counted) == {_number(name) for name in a} == set(range(len(b))):
        return {name: counted[_number(name)] for name in a}
    return dict(zip(a, b, strict=True))


def _plain(name: str) -> str:
    """A name as frameworks write it that take letters, digits and underscores only: "Identity:0" is "identity_0"."""
    return re.sub(r"\W", "_", name).lower()


def _number(name: str) -> int:
    """The number at a name's end, by which TensorFlow and those who take its names count: 0 for "Identity", 2 for "call:2"."""
    found = re.search(r"\d+$", name)
    return int(found[0]) if found else 0
