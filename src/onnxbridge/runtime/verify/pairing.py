"""Two models given as objects or paths: how each is run, and which of their inputs and outputs belong together."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir

from onnxbridge import isolation, plugins
from onnxbridge.errors import ConversionError, OnnxbridgeError, UsageError, VerificationError
from onnxbridge.plugin_protocols import Run
from onnxbridge.runtime.verify.runner import Runner
from onnxbridge.runtime.verify.samples.samples_file import Sample

Watch = Callable[[Mapping[str, Any], Callable[[str, Any], None]], bool]


@dataclass(frozen=True)
class Runnable:
    """A model that can be run here.

    Attributes:
        inputs, outputs: their names, in order.
        hub: its hub model, None where no frontend reads it.
        runner_for: for a file that a backend wrote: the runner to compare with a reference, given the reference's hub model.
        shapes: of its inputs, with None for dynamic sizes.
        watch: shows intermediate values, as `Frontend.watch` does; gives False where it cannot.
        backend, artifact: for a file that a backend wrote: that backend and what it opened.
    """

    runner: Runner
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    hub: ir.Model | None
    runner_for: Callable[[ir.Model], Runner] | None = None
    shapes: Mapping[str, Sequence[int | None]] = field(default_factory=dict)
    watch: Watch = lambda feeds, see: False
    backend: plugins.Backend | None = None
    artifact: Any = None


def runnable(
    source: Any, load: Callable[[plugins.Frontend, Any], ir.Model], frontend: str | None = None, device: str = "auto"
) -> Runnable:
    """The model that a live object or a path stands for.

    Raises:
        UsageError: if no plugin reads it.
    """
    if frontend is None and isinstance(source, (str, os.PathLike)) and os.path.exists(source):  # MODULE:FACTORY is no file
        for backend in map(plugins.backend, plugins.installed("backend")):
            found = backend.reopen(Path(source))
            if found is not None:
                return _reopened(backend, source, found, _hub(source, load), device)
    reader = isolation.frontend_for(source, frontend)
    hub = load(reader, source)
    names = tuple(str(v.name) for v in hub.graph.inputs), tuple(str(v.name) for v in hub.graph.outputs)
    shapes = {str(v.name): [d if isinstance(d, int) else None for d in v.shape] for v in hub.graph.inputs if v.shape is not None}
    runner = source_runner(reader, source, hub, device)
    return Runnable(runner, *names, hub, shapes=shapes, watch=lambda feeds, see: reader.watch(source, feeds, see, device))


def _reopened(
    backend: plugins.Backend, source: Any, found: plugins.Reopened, hub: ir.Model | None, device: str
) -> Runnable:  # fmt: skip
    runner = artifact_runner(backend, found.artifact, device)

    def runner_for(source: ir.Model) -> Runner:
        artifact = backend.with_source(found.artifact, source)
        return runner if artifact is found.artifact else artifact_runner(backend, artifact, device)

    def watch(feeds: Mapping[str, Any], see: Callable[[str, Any], None]) -> bool:
        return hub is not None and isolation.frontend_for(source).watch(source, feeds, see, device)

    return Runnable(
        runner, tuple(found.inputs), tuple(found.outputs), hub, runner_for, found.inputs, watch, backend, found.artifact
    )  # fmt: skip


def _hub(source: Any, load: Callable[[plugins.Frontend, Any], ir.Model]) -> ir.Model | None:
    """The hub model of a source, None where no frontend can read it."""
    try:
        return load(isolation.frontend_for(source), source)
    except (ConversionError, UsageError):
        return None


def source_runner(reader: plugins.Frontend, source: Any, hub: ir.Model, device: str) -> Runner:
    """What runs a source in its framework, with the inputs supplied that are constants of the hub model.

    Raises:
        VerificationError: if the framework fails to load it.
    """
    from onnxbridge.hub.passes.bind_inputs import bound_inputs

    runner = started_runner(reader, lambda: reader.runner(source, device))
    constants = bound_inputs(hub)
    return replace(
        runner,
        run=(lambda feeds: runner.run({**feeds, **constants})) if constants else runner.run,
        run_traced=lambda feeds: reader.run_traced(source, {**feeds, **constants}),
    )


def started_runner(plugin: plugins.Frontend | plugins.Backend, start: Callable[[], Run], unit: float | None = None) -> Runner:
    """The runner of a plugin's model, from the function that `start` prepares.

    Raises:
        VerificationError: if the framework fails to load the model.
    """
    try:
        run = start()
    except Exception as e:
        if isinstance(e, OnnxbridgeError) and e.exit_code != OnnxbridgeError.exit_code:
            raise
        raise VerificationError(f"{plugin.title} failed to load the model: {type(e).__name__}: {plugin.main_line(e)}") from e
    title = f"{plugin.title} ({run.engine})" if isinstance(run, plugins.NamedRun) else plugin.title
    weak = run.weak if isinstance(run, plugins.NamedRun) else ""
    return Runner(
        title, run, unit, plugin.quantized_roundoff, weak=weak, main_line=plugin.main_line,
        has_empty_arrays=plugin.has_empty_arrays,
    )  # fmt: skip


def artifact_runner(backend: plugins.Backend, artifact: Any, device: str) -> Runner:
    """The runner of a backend's artifact, with those of its other precisions where the backend has them.

    Raises:
        VerificationError: if the framework fails to load the model.
    """
    runner = started_runner(backend, lambda: backend.runner(artifact, device), backend.info(artifact).unit_roundoff)
    run = backend.in_float32(artifact)
    finer = None if run is None else Runner("computed in float32", run, main_line=backend.main_line)
    return replace(runner, finer=finer, stored=backend.as_stored(artifact))


def paired(reference: Runnable, candidate: Runnable) -> Runner:
    """The candidate's runner with the reference's names of inputs and outputs.

    They are paired by equal names, else by names that differ only in characters that a framework does not allow, else by the
    numbers at the ends of names, else by position, which for outputs of one TensorFlow call ("call:2") is their number. Inputs
    are cast to the candidate's dtypes where no value changes.

    Raises:
        UsageError: if the two have different numbers of inputs or outputs.
    """
    inputs = name_pairs(reference.inputs, candidate.inputs, "inputs")
    outputs = name_pairs(candidate.outputs, reference.outputs, "outputs")
    runner = candidate.runner if candidate.runner_for is None or reference.hub is None else candidate.runner_for(reference.hub)

    def named(run: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
        def renamed(feeds: Mapping[str, Any]) -> dict[str, Any]:
            results = run(feeds_for(candidate, feeds, inputs))
            return {outputs[k]: v for k, v in results.items()}

        return renamed

    finer = runner.finer and replace(runner.finer, run=named(runner.finer.run))
    return replace(runner, run=named(runner.run), finer=finer, stored=runner.stored and named(runner.stored))


def paired_names(reference: Runnable, candidate: Runnable) -> dict[str, str]:
    """The candidate's name of each input and output, by the reference's."""
    inputs = name_pairs(reference.inputs, candidate.inputs, "inputs")
    return {**inputs, **name_pairs(reference.outputs, candidate.outputs, "outputs")}


def feeds_for(candidate: Runnable, feeds: Mapping[str, Any], inputs: Mapping[str, str]) -> dict[str, Any]:
    """Inputs under the candidate's names and in its dtypes; `inputs` are these names by the reference's."""
    dtypes = {} if candidate.hub is None else {str(v.name): v.dtype for v in candidate.hub.graph.inputs}
    return {inputs[k]: cast_to(v, dtypes.get(inputs[k])) for k, v in feeds.items() if k in inputs}


def renamed_samples(samples: Sequence[Sample], candidate: Runnable) -> list[Sample]:
    """Samples of another model under the candidate's names and in its dtypes, paired as `paired` does.

    Raises:
        UsageError: if the two have different numbers of inputs or outputs.
    """
    first = samples[0]
    inputs = name_pairs(list(first.inputs), candidate.inputs, "inputs")
    outputs = name_pairs(list(first.outputs or ()), candidate.outputs, "outputs")
    dtypes = {} if candidate.hub is None else {str(v.name): v.dtype for v in candidate.hub.graph.inputs}
    return [
        Sample(
            sample.name,
            {inputs.get(k, k): cast_to(v, dtypes.get(inputs.get(k, k))) for k, v in sample.inputs.items()},
            {outputs[k]: v for k, v in (sample.outputs or {}).items()},
        )
        for sample in samples
    ]


def fixed_sizes(reference: Runnable, candidate: Runnable) -> dict[str, tuple[int, int]]:
    """Bounds of the reference's dynamic sizes that are fixed in the candidate, such as a batch of 1 for image inputs."""
    inputs = name_pairs(reference.inputs, candidate.inputs, "inputs")
    found = {}
    for value in reference.hub.graph.inputs if reference.hub is not None else ():
        shape = candidate.shapes.get(inputs.get(value.name or "", ""), ())
        for axis, (dim, size) in enumerate(zip(value.shape or (), shape, strict=False)):
            if not isinstance(dim, int) and size is not None:
                found[dim.value or f"{value.name}.{axis}"] = (size, size)
    return found


def cast_to(value: Any, dtype: ir.DataType | None) -> Any:
    """An array in a model's dtype: integers are cast if all values fit, floating-point numbers are rounded."""
    if not isinstance(value, np.ndarray) or dtype is None or value.dtype == (wanted := dtype.numpy()):
        return value
    floats = [np.issubdtype(t, np.floating) or t == ml_dtypes.bfloat16 for t in (value.dtype, wanted)]
    integers = [t.kind in "iu" for t in (value.dtype, wanted)]
    with np.errstate(all="ignore"):
        cast = value.astype(wanted) if all(floats) or all(integers) else value
    return cast if all(floats) or np.array_equal(cast, value) else value


def name_pairs(a: Sequence[str], b: Sequence[str], what: str) -> dict[str, str]:
    """The second model's name for each of the first's, by the rules of `paired`."""
    if len(a) != len(b):
        raise UsageError(f"the two models have {len(a)} and {len(b)} {what}: {', '.join(a)}; {', '.join(b)}")
    if set(a) == set(b):
        return dict(zip(a, a, strict=True))
    by_plain_name = {_plain(name): name for name in b}
    if len(by_plain_name) == len(b) and {_plain(name) for name in a} == set(by_plain_name):
        return {name: by_plain_name[_plain(name)] for name in a}
    numbered = [{_number(name): name for name in names} for names in (a, b)]
    counts = [set(found) == set(range(len(a))) for found in numbered]
    ports = [counted and all(":" in name for name in names) for counted, names in zip(counts, (a, b), strict=True)]
    first, second = (
        [found[i] for i in range(len(a))] if all(counts) or is_ports else list(names)
        for found, is_ports, names in zip(numbered, ports, (a, b), strict=True)
    )
    return dict(zip(first, second, strict=True))


def _plain(name: str) -> str:
    """A name in letters, digits and underscores only, as some frameworks require: "Identity:0" becomes "identity_0"."""
    return re.sub(r"\W", "_", name).lower()


def _number(name: str) -> int:
    """The number at a name's end, as TensorFlow counts outputs: 0 for "Identity", 2 for "call:2"."""
    found = re.search(r"\d+$", name)
    return int(found[0]) if found else 0
