"""`convert`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx_ir as ir

from onnxbridge import isolation, plugin_options, plugins
from onnxbridge.api._arguments.data import sampling
from onnxbridge.api._arguments.early_checks import check_before, check_planting, source_files, target_of
from onnxbridge.api._conversion import Conversion
from onnxbridge.api._guarded import guarded
from onnxbridge.api._layers import layers_of_conversion
from onnxbridge.api._load import prepared, with_bounds
from onnxbridge.api._recordings import Saving
from onnxbridge.api._source_model import SourceModel
from onnxbridge.errors import LimitError, OnnxbridgeError, UsageError, VerificationError
from onnxbridge.hub.io.limits import Limits
from onnxbridge.isolation import Mode
from onnxbridge.progress import Progress, quiet, with_progress
from onnxbridge.runtime.verify.metrics.metric import metrics_named
from onnxbridge.runtime.verify.pairing import artifact_runner
from onnxbridge.runtime.verify.report import weakness
from onnxbridge.runtime.verify.samples.data import read_data
from onnxbridge.runtime.verify.time_limit import SECONDS
from onnxbridge.runtime.verify.verification import Tolerances, verify_runners


@with_progress
@guarded
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
    metrics: Any = None,
    data: Any = None,
    strict: bool = False,
    mutants: int | None = None,
    samples: int | None = None,
    seed: int = 0,
    layers: bool = False,
    save_inputs: str | os.PathLike[str] | None = None,
    save_outputs: str | os.PathLike[str] | None = None,
    device: str = "auto",
    time_limit: float | None = SECONDS,
    isolate: Mode | None = None,
    limits: Limits | None = None,
    progress: Progress = quiet,
    **backend_options: Any,
) -> Conversion:
    """Convert a model to another framework and verify that it computes the same.

    Args:
        source: a live model, a path, a pair of paths (MXNet: symbol and params), or a `SourceModel`, which is read once for
            several targets.
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
        force: overwrite what exists at `output`, and samples in these folders.
        verify: whether to run source and target on the same inputs and compare.
        rtol, atol: tolerances to use in place of the derived one: a number, or {output: number}.
        max_drift: how far lossy compression or lower precision may move an output, as a fraction of its range. 0.1 by default,
            and more than 0.02 is weak. Given for other models, it takes the place of the tolerance.
        metrics: measures to report beside the tolerance, such as "cosine", "p99" or "MODULE:FUNCTION", and limits that make the
            verification fail where they are exceeded, such as "cosine>=0.999". One, or a list.
        data: samples to verify on in place of random ones: an .npz file of arrays by input name, a folder of them,
            "MODULE:FUNCTION", {name: array}, or an iterable of such dicts.
        strict: whether a verification that proves little (`report.verdict` is "WEAK") fails, too.
        mutants: how many faults to plant in the model, to count those that the verification would have caught. By default as many
            as are cheap, at most 50; 0 for none.
        samples, seed: the number of random input samples, and their seed. By default 3, and fewer of models with 10^11
            multiplications or more: one, or 2 where a size is dynamic. With `data`, the most samples of it.
        layers: whether to measure the error of each layer, too (`report.layers`). It is shown in HTML reports.
        save_inputs, save_outputs: folders to write each sample into: its inputs, or its inputs and the source's outputs.
        device: the device on which ONNX Runtime runs the converted model: "auto", "cpu", "cuda", "openvino", ... The source runs
            on the CPU then.
        time_limit: the time that verification may take, in seconds. None for no limit.
        isolate: whether files are read, and run, in a process of their own, which the operating system confines: True, False, or
            "auto" for TorchScript, TensorFlow, Keras, TFLite and Core ML files. False by default.
        limits: `onnxbridge.Limits` of what the model may ask for: bytes, time of constant folding, time of reading.
        progress: called with the name of each stage; "auto" shows them: a bar on a terminal and in Jupyter, lines elsewhere.
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
    check_planting(mutants, strict, verify)
    plugins.import_modules(imports)
    writer = plugins.backend(target_of(to, output))
    if isinstance(source, SourceModel):
        _refuse_again(frontend=frontend, inputs=inputs, dynamic=dynamic)
        model = source
    else:
        reader = isolation.frontend_for(source, frontend)
        own, backend_options = plugin_options.of_source(reader, backend_options, writer.source_defaults)
        model = SourceModel(source, frontend=frontend, inputs=inputs, dynamic=dynamic, **own)
    source, reader, bounds = model.source, model.reader, model.bounds
    suffix = "" if output is None else os.path.splitext(output)[1]
    implied = writer.by_suffix.get(suffix.lower(), {})
    backend_options = {**implied, **backend_options}
    backend_options = plugin_options.checked(writer, backend_options | ({} if opset is None else {"opset": opset}))
    backend_options = with_bounds(writer, backend_options, bounds)
    given = None if data is None else read_data(data, samples)
    saving, chosen_metrics = Saving(save_inputs, save_outputs, force, [source, data]), metrics_named(metrics)
    if saving.folders and not verify:
        raise UsageError("samples are saved by the verification: leave out --no-verify (verify=False)")
    if any(output is not None and Path(output).resolve() == folder.resolve() for folder, _ in saving.folders):
        raise UsageError(f"{os.fspath(output or '')!r} is where the model is written: save the samples elsewhere")
    check_before(
        reader, writer, backend_options, source=source, output=output, force=force, verify=verify, device=device
    )  # fmt: skip
    hub = model.hub(given, progress)
    sampled = sampling(given, hub, bounds, samples, seed, rtol, atol)
    progress(f"writing {writer.title}")
    artifact = writer.from_hub(prepared(writer, hub, backend_options), **backend_options)
    conversion = Conversion(hub, artifact, reader.name, writer.name, source_files=source_files(source, hub))
    failure: OnnxbridgeError | None = None
    if verify:
        info = writer.info(artifact)
        progress("loading both models")
        try:
            runner = artifact_runner(writer, artifact, device)
            conversion.report = verify_runners(
                hub, model.reference(device), runner, record=saving.samples,
                first=model.example(), **sampled, sizes=info.sizes, extremes=info.extremes,
                max_drift=max_drift, metrics=chosen_metrics, mutants=mutants,
                time_limit=time_limit, progress=progress,
            )  # fmt: skip
            conversion.report = replace(conversion.report, names=_names(hub, info.names))
            saving.save(conversion.report, runner.unit)
        except (VerificationError, LimitError) as e:  # one of the two cannot be run, or not in time
            failure = e
        else:
            if not conversion.report.agrees:
                failure = VerificationError(_reason(conversion))
            elif strict:
                failure = weakness(conversion.report)
    saved = ""
    if output is not None and failure is None:
        progress("saving")
        conversion.save(output, force=force)
    elif output is not None:
        progress("saving")
        saved = _save_failed(conversion, f"{os.fspath(output)}.failed", force)
    if layers and conversion.report is not None:
        conversion.report = layers_of_conversion(conversion, model.reference(device), device, progress)
    if isinstance(failure, VerificationError):
        raise VerificationError(f"{failure}{saved}", conversion.report, conversion) from failure
    if failure is not None:
        raise type(failure)(f"{failure}{saved}") from failure
    return conversion


def _refuse_again(**given: Any) -> None:
    names = [name for name, value in given.items() if value is not None]
    if names:
        raise UsageError(f"{', '.join(names)}: the source is read already; give this to SourceModel")


def _names(hub: ir.Model, renamed: Mapping[str, str]) -> dict[str, str]:
    """The artifact's name of each input and output."""
    names = [str(value.name) for value in (*hub.graph.inputs, *hub.graph.outputs)]
    return {name: renamed.get(name, name) for name in names}


def _reason(conversion: Conversion) -> str:
    """Why a verification failed, and what to do."""
    report = conversion.report
    assert report is not None
    if report.limit_exceeded:
        return report.limit_exceeded
    advice = plugins.backend(conversion.target).info(conversion.artifact).advice
    return "the converted model does not compute the same" + (f"; {advice}" if advice else "")


def _save_failed(conversion: Conversion, path: str, force: bool) -> str:
    """Save an artifact that failed its verification, unless the path exists; returns a sentence for the message."""
    try:
        conversion.save(path, force=force)
    except OnnxbridgeError as e:
        return f"; the artifact was not saved: {e}"
    return f"; the artifact is saved as {conversion.paths[0]}"
