"""The Python API: `convert`, `verify`, `check`, `load` and `explain`. The command line calls these functions too."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge import plugin_options, plugins
from onnxbridge._convert.conversion import Conversion
from onnxbridge._convert.early_checks import check_before, check_names, source_files, target_of
from onnxbridge._convert.example_inputs import example_feeds, parsed_dynamic, parsed_inputs, specs_of
from onnxbridge.errors import (
    ConversionError,
    LimitError,
    MissingFrameworkError,
    OnnxbridgeError,
    Problem,
    UsageError,
    VerificationError,
)
from onnxbridge.runtime.verify.report import Report
from onnxbridge.runtime.verify.runners import artifact_runner, fixed_sizes, paired, runnable, started_runner, with_constants
from onnxbridge.runtime.verify.time_limit import SECONDS
from onnxbridge.runtime.verify.verification import Runner, Tolerances, verify_runners

Progress = Callable[[str], None]


def _quiet(stage: str) -> None:
    """The default `progress` callback: ignores the stage."""


def convert(
    source: Any,
    to: str | None = None,
    *,
    frontend: str | None = None,
    inputs: Any = None,
    dynamic: Any = None,
    imports: str | Sequence[str] | None = None,
    opset: int | None = None,
    output: str | os.PathLike[str] | None = None,
    force: bool = False,
    verify: bool = True,
    rtol: Tolerances = None,
    atol: Tolerances = None,
    max_drift: float | None = None,
    samples: int = 3,
    seed: int = 0,
    device: str = "auto",
    time_limit: float | None = SECONDS,
    progress: Progress = _quiet,
    **backend_options: Any,
) -> Conversion:
    """Convert a model to another framework and verify that it computes the same.

    Args:
        source: a live model, a path, or a pair of paths (MXNet: symbol and params).
        to: the target: "onnx", "pytorch", "tensorflow", "mxnet", "coreml", or a backend of an installed plugin. By default it
            follows from the suffix of `output`, else it is "onnx".
        frontend: the frontend to read `source` with. By default it is detected.
        inputs: example arrays or tensors (tuple or dict), specifications ("x:float32[N,3,224,224]" or {name: (shape, dtype)}), or
            the framework's own (tf.TensorSpec). A number ("rate=16000" or {name: 16000}) makes that input a constant.
        dynamic: dynamic dimensions as {input: {axis: "name"}}, bounds as "N=1..64", or for PyTorch the `dynamic_shapes` of
            torch.export.
        imports: modules to import first, which register custom operators or rules.
        opset: the opset of ai.onnx to write, for the target "onnx".
        output: the path to save to. A model that fails verification is saved with `.failed` appended. The source is never
            overwritten.
        force: overwrite what exists at `output`.
        verify: whether to run source and target on the same inputs and compare.
        rtol, atol: tolerances to use in place of the derived one: a number, or {output: number}.
        max_drift: how far lossy compression may move an output, as a fraction of its range. 0.1 by default.
        samples, seed: the number of random input samples, and their seed.
        device: the device for ONNX Runtime: "auto", "cpu", "cuda", ...
        time_limit: the time that verification may take, in seconds. None for no limit.
        progress: called with the name of each stage.
        backend_options: options of the backend, such as minimum_deployment_target="iOS17" for "coreml", and of the frontend,
            such as fold_batch_norm=False for PyTorch.

    Returns:
        A `Conversion`: the converted model, the report of its verification, and `save`.

    Raises:
        UsageError: if an argument is wrong. Most are checked before the model is read.
        ConversionError: with every operator that cannot be converted.
        VerificationError: if the converted model does not compute the same, or cannot be run.
        UnsafeFileError: if the file is corrupt or unsafe to load.
        MissingFrameworkError: if a framework has to be installed first.
        LimitError: if verification takes too long.
    """
    from onnxbridge.hub.ir import provenance

    plugins.import_modules(imports)
    writer = plugins.backend(target_of(to, output))
    reader = plugins.frontend(frontend) if frontend else plugins.frontend_for(source)
    dims, bounds = parsed_dynamic(dynamic)
    own, backend_options = plugin_options.of_source(reader, backend_options)
    suffix = "" if output is None else os.path.splitext(output)[1]
    implied = writer.by_suffix.get(suffix, {})
    backend_options = {**implied, **backend_options}
    backend_options = plugin_options.checked(writer, backend_options | ({} if opset is None else {"opset": opset}))
    backend_options = _with_bounds(writer, backend_options, bounds)
    check_before(
        reader, writer, backend_options, source=source, output=output, force=force, verify=verify, device=device
    )  # fmt: skip
    progress(f"reading {reader.title}")
    hub = _to_hub(reader, source, parsed_inputs(inputs), dims, own)
    check_names(hub, rtol, atol, bounds)
    _stamp(hub, reader, source)
    progress(f"writing {writer.title}")
    artifact = writer.from_hub(_prepared(writer, hub, backend_options), **backend_options)
    conversion = Conversion(hub, artifact, reader.name, writer.name, source_files=source_files(source, hub))
    failure: OnnxbridgeError | None = None
    if verify:
        info = writer.info(artifact)
        try:
            conversion.report = verify_runners(
                hub, _reference(reader, source, hub, device), artifact_runner(writer, artifact, device),
                first=example_feeds(inputs, hub), samples=samples, seed=seed,
                bounds=provenance.within_sizes(hub, bounds), sizes=info.sizes,
                extremes=info.extremes, rtol=rtol, atol=atol, max_drift=max_drift, time_limit=time_limit,
                progress=progress,
            )  # fmt: skip
        except (VerificationError, LimitError) as e:  # one of the two cannot be run, or not in time
            failure = e
        else:
            failure = None if conversion.report.agrees else VerificationError(_reason(conversion))
    saved = ""
    if output is not None and failure is None:
        progress("saving")
        conversion.save(output, force=force)
    elif output is not None:
        progress("saving")
        saved = _save_failed(conversion, f"{os.fspath(output)}.failed", force)
    if isinstance(failure, VerificationError):
        raise VerificationError(f"{failure}{saved}", conversion.report, conversion) from failure
    if failure is not None:
        raise type(failure)(f"{failure}{saved}") from failure
    return conversion


def _reason(conversion: Conversion) -> str:
    """Why a verification failed, and what to do."""
    report = conversion.report
    assert report is not None
    wrong = [o.name for o in report.outputs if not o.passed]
    if not wrong and report.drifted:
        moved = ", ".join(f"{o.name} by {o.drift:.0%} of its range" for o in report.outputs if o.name in report.drifted)
        most = max(o.drift or 0.0 for o in report.outputs)
        return f"compression moves {moved}; --max-drift {most * 1.1:.2g} (max_drift=) allows it"
    advice = plugins.backend(conversion.target).info(conversion.artifact).advice
    return "the converted model does not compute the same" + (f"; {advice}" if advice else "")


def _save_failed(conversion: Conversion, path: str, force: bool) -> str:
    """Save an artifact that failed its verification, unless the path exists; returns a sentence for the message."""
    try:
        conversion.save(path, force=force)
    except OnnxbridgeError as e:
        return f"; the artifact was not saved: {e}"
    return f"; the artifact is saved as {conversion.paths[0]}"


def _to_hub(
    reader: plugins.Frontend, source: Any, inputs: Any, dynamic: Any, options: Mapping[str, Any] | None = None
) -> ir.Model:
    """Read the source with the frontend and clean up the model."""
    from onnxbridge.hub import passes
    from onnxbridge.hub.passes.bind_inputs import bind_inputs, is_number

    numbers = {}
    if isinstance(inputs, Mapping) and not reader.accepts_numbers:
        numbers = {name: given for name, given in inputs.items() if is_number(given)}
    if numbers:
        inputs = {name: given for name, given in inputs.items() if name not in numbers} or None
    model = reader.to_hub(source, inputs, dynamic, **(options or {}))
    if numbers:
        bind_inputs(model, numbers)
    return passes.clean(model)


def _prepared(writer: plugins.Backend, hub: ir.Model, options: Mapping[str, Any]) -> ir.Model:
    """The hub model for a backend: functions inlined, unless it `keeps_functions`, and patterns of simpler operators replaced by
    its native operators."""
    from onnxbridge.hub import passes
    from onnxbridge.hub.patterns import canonicalize

    model = passes.inline(hub.clone()) if hub.functions and not writer.keeps_functions else hub
    if writer.rules is not None:
        model = hub.clone() if model is hub else model
        canonicalize(model, lambda op_type: writer.is_native(op_type, **options))
    return model


def _stamp(model: ir.Model, reader: plugins.Frontend, source: Any) -> None:
    """Record the source in the model's metadata: files, their hashes, the framework's version."""
    from onnxbridge.hub.ir import provenance

    files = [s for s in (source if isinstance(source, (tuple, list)) else [source]) if _is_path(s)]
    provenance.stamp(model, files, [reader.package] if reader.package in sys.modules else [])


def _is_path(source: Any) -> bool:
    return isinstance(source, (str, os.PathLike)) and os.path.exists(source)


def _with_bounds(writer: Any, options: dict[str, Any], bounds: Mapping[str, Any]) -> dict[str, Any]:
    """The backend's options, with the bounds of dynamic sizes where it has such an option."""
    return {"bounds": bounds, **options} if bounds and plugin_options.has_option(writer, "bounds") else options


def _reference(reader: plugins.Frontend, source: Any, hub: ir.Model, device: str) -> Runner:
    """What the converted model is compared with: the source framework where it runs here, else ONNX Runtime on the hub model, a
    weak reference: an error in reading the source is in both."""
    if reader.runs_here():
        return with_constants(started_runner(reader, lambda: reader.runner(source, device)), hub)
    from onnxbridge.runtime import devices

    run, how = devices.runner(hub, device), ""
    try:
        reader.runner(source, device)
    except MissingFrameworkError as e:
        how = f": {e}"
    title = run.engine if isinstance(run, plugins.NamedRun) else "ONNX Runtime"
    return Runner(title, run, weak=f"not compared with {reader.title}, which does not run here{how}")


def verify(
    reference: Any,
    candidate: Any,
    inputs: Any = None,
    *,
    frontend: str | None = None,
    dynamic: Any = None,
    imports: str | Sequence[str] | None = None,
    rtol: Tolerances = None,
    atol: Tolerances = None,
    max_drift: float | None = None,
    samples: int = 3,
    seed: int = 0,
    device: str = "auto",
    time_limit: float | None = SECONDS,
    progress: Progress = _quiet,
) -> Report:
    """Run two models on the same inputs and compare every output.

    Args:
        reference, candidate: live models or paths. Inputs and outputs are paired by name, or by position if the names differ.
        inputs: {name: array}, or a list of such dicts, to run on; or specifications as for `convert`, for which random samples
            are drawn.

    The other arguments are those of `convert`.

    Returns:
        A `Report`. A model that computes something else is no exception here: see `report.verdict`.

    Raises:
        UsageError: if the models, names or inputs do not match.
        VerificationError: if one of the two models cannot be run.
        LimitError: if verification takes too long.
    """
    from onnxbridge.hub.ir import provenance
    from onnxbridge.hub.passes.bind_inputs import bound_inputs

    plugins.import_modules(imports)
    specs, feeds = parsed_inputs(inputs), None
    if isinstance(inputs, Mapping) and inputs and all(isinstance(v, np.ndarray) for v in inputs.values()):
        feeds = [inputs]
    elif isinstance(inputs, list) and inputs and all(isinstance(i, Mapping) for i in inputs):
        feeds, specs = inputs, inputs[0]
    dims, bounds = parsed_dynamic(dynamic)
    for reader in (plugins.frontend(frontend) if frontend else plugins.frontend_for(reference), plugins.frontend_for(candidate)):
        reader.require()  # before the first of them is read
    progress("reading the reference")
    first = runnable(reference, lambda reader, source: _to_hub(reader, source, specs, dims), frontend, device)

    def read(reader: plugins.Frontend, source: Any) -> ir.Model:
        try:
            return _to_hub(reader, source, specs, dims)
        except UsageError:
            constants = bound_inputs(first.hub)  # inputs that the conversion made constants
            left = {name: s for name, s in specs.items() if name not in constants} if isinstance(specs, Mapping) else specs
            if first.hub is None or (left == specs and specs is not None):
                raise
            return _to_hub(reader, source, left or specs_of(first.hub), dims)  # a source without sizes uses the reference's

    progress("reading the candidate")
    second = runnable(candidate, read, device=device)
    hub = first.hub or second.hub
    if hub is None:
        raise UsageError("cannot determine the inputs: pass the source model first, or give --inputs (inputs=)")
    check_names(hub, rtol, atol, bounds)
    return verify_runners(
        hub, first.runner, paired(first, second), feeds=feeds, samples=samples, seed=seed,
        bounds=provenance.within_sizes(hub, fixed_sizes(first, second) | bounds), rtol=rtol, atol=atol, max_drift=max_drift,
        time_limit=time_limit, progress=progress,
    )  # fmt: skip


def load(
    source: Any,
    *,
    frontend: str | None = None,
    inputs: Any = None,
    dynamic: Any = None,
    imports: str | Sequence[str] | None = None,
    **options: Any,
) -> ir.Model:
    """Read a source into a hub model: an `onnx_ir.Model` at the hub's opset.

    The arguments are those of `convert`; `options` are options of the frontend.

    Raises:
        ConversionError: with every operator that cannot be read.
    """
    plugins.import_modules(imports)
    reader = plugins.frontend(frontend) if frontend else plugins.frontend_for(source)
    return _to_hub(reader, source, parsed_inputs(inputs), parsed_dynamic(dynamic)[0], plugin_options.checked(reader, options))


def check(
    source: Any,
    to: str | Sequence[str] | None = None,
    *,
    frontend: str | None = None,
    inputs: Any = None,
    dynamic: Any = None,
    imports: str | Sequence[str] | None = None,
    **backend_options: Any,
) -> list[Problem]:
    """List everything that prevents a conversion, for one target, several, or all installed ones (None).

    Nothing is written, and nothing is run. Each target gets those of `backend_options` that it has; the other arguments are
    those of `convert`.

    Returns:
        A list of `Problem`, empty if the source can be converted to every target.

    Raises:
        UsageError: if no target has one of the options.
    """
    plugins.import_modules(imports)
    reader = plugins.frontend(frontend) if frontend else plugins.frontend_for(source)
    own, backend_options = plugin_options.of_source(reader, backend_options)
    try:
        hub = load(source, frontend=reader.name, inputs=inputs, dynamic=dynamic, **own)
    except ConversionError as e:
        return e.problems
    found: list[Problem] = []
    targets = [to] if isinstance(to, str) else list(to or plugins.installed("backend"))
    bounds = parsed_dynamic(dynamic)[1]
    for name, given in plugin_options.shared([plugins.backend(name) for name in targets], backend_options).items():
        try:
            writer = plugins.backend(name)
            given = _with_bounds(writer, given, bounds)
            writer.from_hub(_prepared(writer, hub, given), **given)
        except ConversionError as e:
            found += [Problem(p.op, f"{e.direction}: {p.reason}", p.hint, p.locations) for p in e.problems]
        except MissingFrameworkError as e:
            found.append(Problem(name, str(e)))
    return found


def explain(
    source: Any,
    to: str,
    *,
    frontend: str | None = None,
    inputs: Any = None,
    dynamic: Any = None,
    imports: str | Sequence[str] | None = None,
    **backend_options: Any,
) -> list[Any]:
    """How a backend converts each operator of the source. Empty for a backend that cannot say; only "coreml" can.

    Returns:
        A list of lines with `as_dict()`, one for each kind of operator, also for operators that cannot be converted.

    Raises:
        ConversionError: if the source cannot be read.
    """
    plugins.import_modules(imports)
    writer = plugins.backend(to)
    if not writer.explains:
        return []
    reader = plugins.frontend(frontend) if frontend else plugins.frontend_for(source)
    own, backend_options = plugin_options.of_source(reader, backend_options)
    hub = load(source, frontend=reader.name, inputs=inputs, dynamic=dynamic, **own)
    given = _with_bounds(writer, plugin_options.checked(writer, backend_options), parsed_dynamic(dynamic)[1])
    return list(writer.explain(_prepared(writer, hub, given), **given))
