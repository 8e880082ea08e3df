"""`verify`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx_ir as ir

from onnxbridge import plugins
from onnxbridge.api._arguments.data import sampling, specs_and_samples
from onnxbridge.api._arguments.early_checks import check_names, check_planting
from onnxbridge.api._arguments.example_inputs import parsed_dynamic
from onnxbridge.api._guarded import guarded
from onnxbridge.api._layers import with_layers
from onnxbridge.api._pair import Reader, described_inputs, require
from onnxbridge.api._recordings import Saving, check_sides, record_golden, verify_recording
from onnxbridge.errors import VerificationError
from onnxbridge.hub.io.limits import Limits
from onnxbridge.isolation import Mode
from onnxbridge.progress import Progress, quiet, with_progress
from onnxbridge.runtime.verify.metrics.metric import metrics_named
from onnxbridge.runtime.verify.pairing import fixed_sizes, paired, paired_names
from onnxbridge.runtime.verify.report import Report, weakness
from onnxbridge.runtime.verify.samples.random_inputs import Bounds
from onnxbridge.runtime.verify.time_limit import SECONDS
from onnxbridge.runtime.verify.verification import Tolerances, verify_runners


@with_progress
@guarded
def verify(
    reference: Any,
    candidate: Any = None,
    inputs: Any = None,
    *,
    frontend: str | None = None,
    dynamic: Any = None,
    imports: str | Sequence[str] | None = None,
    rtol: Tolerances = None,
    atol: Tolerances = None,
    max_drift: float | None = None,
    metrics: Any = None,
    data: Any = None,
    strict: bool = False,
    mutants: int | None = None,
    samples: int | None = None,
    seed: int = 0,
    save_inputs: str | os.PathLike[str] | None = None,
    save_outputs: str | os.PathLike[str] | None = None,
    load_outputs: str | os.PathLike[str] | None = None,
    golden: str | os.PathLike[str] | None = None,
    force: bool = False,
    layers: bool = False,
    device: str = "auto",
    time_limit: float | None = SECONDS,
    isolate: Mode | None = None,
    limits: Limits | None = None,
    progress: Progress = quiet,
) -> Report:
    """Run two models on the same inputs and compare every output.

    Args:
        reference, candidate: live models or paths. Inputs and outputs are paired by name, or by position if the names differ.
        inputs: specifications as for `convert`, for which random samples are drawn; or {name: array}, or a list of such dicts,
            to run on, as `data`.
        load_outputs: the files of `save_outputs`, in place of a model that runs only on another machine: `reference` is run on
            their inputs and compared with their outputs.
        golden: a file, in place of a second model. If it does not exist, the outputs of `reference` are recorded in it; else they
            are compared with it.
        save_inputs, save_outputs: folders to write each sample into: its inputs, or its inputs and the reference's outputs.
        force: overwrite the samples in the folders of `save_inputs` and `save_outputs`.
        layers: whether to measure the error of each layer, too (`report.layers`), where both models have their values by the same
            names. It is shown in HTML reports.

    The other arguments are those of `convert`.

    Returns:
        A `Report`. A model that computes something else is no exception here, unless `strict`: see `report.verdict`.

    Raises:
        UsageError: if the models, names or inputs do not match.
        VerificationError: if one of the two models cannot be run; with `strict`, if the verdict is not PASSED.
        LimitError: if verification takes too long.
    """
    check_planting(mutants)
    plugins.import_modules(imports)
    specs, given = specs_and_samples(inputs, data, samples)
    recording = check_sides(reference, candidate, given, golden, load_outputs, samples)
    chosen_metrics = metrics_named(metrics)
    saving = Saving(save_inputs, save_outputs, force, [reference, candidate, data], candidate is not None)
    dims, bounds = parsed_dynamic(dynamic)
    require(frontend, reference, *([] if candidate is None else [candidate]))
    progress("reading the model" if candidate is None else "reading the reference")
    reader = Reader(specs, given if recording is None else recording.samples, dims, device)
    first = reader.reference(reference, frontend)
    criteria = {"max_drift": max_drift, "metrics": chosen_metrics, "time_limit": time_limit, "progress": progress}
    if recording is not None:
        if first.hub is not None:
            check_names(first.hub, rtol, atol, bounds)
        return _judged(verify_recording(first, recording, bounds, rtol=rtol, atol=atol, **criteria), strict)

    def sampled(hub: ir.Model, fixed: Bounds) -> dict[str, Any]:
        chosen = sampling(given, hub, bounds, samples, seed, rtol, atol, fixed=fixed)
        return {"model": hub, **chosen, "mutants": mutants, **criteria}

    if golden is not None:
        return _judged(record_golden(Path(golden), first.runner, **sampled(described_inputs(first), {})), strict)
    progress("reading the candidate")
    second = reader.candidate(candidate, first)
    runner = paired(first, second)
    options = sampled(described_inputs(first, second), fixed_sizes(first, second))
    report = verify_runners(reference=first.runner, candidate=runner, record=saving.samples, **options)
    report = replace(report, names=paired_names(first, second))
    saving.save(report, runner.unit)
    if layers:
        report = with_layers(report, first, second, progress)
    return _judged(report, strict)


def _judged(report: Report, strict: bool) -> Report:
    """The report; with `strict`, an error where its verdict is not PASSED."""
    if strict and not report.agrees:
        raise VerificationError(report.limit_exceeded or "the two models do not compute the same", report)
    if strict and (weak := weakness(report)) is not None:
        raise weak
    return report
