"""`verify` with one model: against outputs that are stored in files, and `golden`, which records them first."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx_ir as ir

from onnxbridge.api._arguments.data import run_on
from onnxbridge.api._arguments.early_checks import source_files
from onnxbridge.atomic_write import obstacle
from onnxbridge.errors import UsageError
from onnxbridge.runtime.verify.compare import Tolerance
from onnxbridge.runtime.verify.pairing import Runnable, renamed_samples
from onnxbridge.runtime.verify.recordings import record
from onnxbridge.runtime.verify.report import Report
from onnxbridge.runtime.verify.rounding.sensitive_operators import depends_on_ties
from onnxbridge.runtime.verify.runner import Runner
from onnxbridge.runtime.verify.samples.random_inputs import Bounds
from onnxbridge.runtime.verify.samples.samples_file import Sample
from onnxbridge.runtime.verify.verification import verify_runners

FilePath = str | os.PathLike[str]
_MISSING = "give a second model, or golden=FILE (--golden) or load_outputs=FOLDER (--load-outputs) to compare one model with"


class Saving:
    """Where the samples of a verification are written, checked before anything runs.

    Raises:
        UsageError: if a folder cannot be written, holds something else (`others` are the models and the data), or holds samples
            and `force` is not given; or if there is no reference whose samples could be written.
    """

    def __init__(
        self, inputs: FilePath | None, outputs: FilePath | None, force: bool, others: Sequence[Any], has_reference: bool = True
    ) -> None:
        self.folders = [(Path(folder), full) for folder, full in ((inputs, False), (outputs, True)) if folder is not None]
        if self.folders and not has_reference:
            raise UsageError("save_inputs and save_outputs (--save-inputs, --save-outputs) need two models")
        if len(self.folders) == 2 and self.folders[0][0].resolve() == self.folders[1][0].resolve():
            del self.folders[0]  # the files with outputs contain the inputs
        protected = [path for other in others for path in source_files(other)]
        for folder, _ in self.folders:
            if reason := record.folder_obstacle(folder, force, protected):
                raise UsageError(reason)
        self.samples: list[Sample] | None = [] if self.folders else None

    def save(self, report: Report, unit: float | None) -> None:
        for folder, full in self.folders:
            record.save_folder(folder, self.samples or [], report, unit, full)


def check_sides(
    source: Any, candidate: Any, data: Any, golden: FilePath | None, load_outputs: FilePath | None, most: int | None
) -> record.Recording | None:
    """Check that there is something to compare the model with, and read it where it is stored outputs.

    Raises:
        UsageError: for nothing, or more than one thing.
    """
    named = {"candidate": candidate, "golden (--golden)": golden, "load_outputs (--load-outputs)": load_outputs}
    given = [name for name, value in named.items() if value is not None]
    if not given:
        raise UsageError(f"there is nothing to compare the model with: {_MISSING}")
    if len(given) > 1:
        raise UsageError(f"the model cannot be compared with {' and '.join(given)} at once: give one of them")
    recorded = load_outputs if load_outputs is not None else golden if golden is not None and os.path.exists(golden) else None
    if recorded is not None and data is not None:
        raise UsageError(f"{os.fspath(recorded)} has the inputs of its outputs: leave out the data")
    if golden is not None and recorded is None and (reason := obstacle(Path(golden), False, source_files(source))):
        raise UsageError(reason)
    return None if recorded is None else record.read_recording(Path(recorded), most)


def verify_recording(candidate: Runnable, recording: record.Recording, bounds: Bounds, **options: Any) -> Report:
    """Compare a model with stored outputs, on the stored inputs.

    The tolerance is the stored one, which the reference's own model gave. It is derived from the candidate where the candidate
    computes in another precision than then, and for models that quantize or choose, which are measured where they differ.
    """
    samples = renamed_samples(recording.samples, candidate)
    hub = candidate.hub if candidate.hub is not None else ir.Model(ir.Graph([], [], nodes=[]), ir_version=10)
    if candidate.hub is not None:
        checked = run_on(samples, hub, bounds)
        samples = [replace(s, inputs=feed) for s, feed in zip(samples, checked["feeds"], strict=True)]
    tolerances = _tolerances(recording, samples, candidate)
    report = verify_runners(
        hub, record.stored_runner(recording, samples), candidate.runner, feeds=[s.inputs for s in samples],
        sample_names=[s.name for s in samples], tolerances=tolerances, **options,
    )  # fmt: skip
    own = [] if tolerances or candidate.hub is None else ["the tolerance is derived from the candidate, not from the reference"]
    return replace(report, notes=(*report.notes, *recording.notes, *own))


def _tolerances(recording: record.Recording, samples: Sequence[Sample], candidate: Runnable) -> Mapping[str, Tolerance] | None:
    """The stored tolerances under the candidate's names, None where they do not hold for it."""
    stored, renamed = recording.samples[0].outputs or {}, samples[0].outputs or {}
    if not set(stored) <= set(recording.tolerances) or recording.unit != candidate.runner.unit:
        return None
    if candidate.hub is not None and depends_on_ties(candidate.hub):
        return None
    return {new: recording.tolerances[old] for old, new in zip(stored, renamed, strict=True)}


def record_golden(path: Path, runner: Runner, **options: Any) -> Report:
    """Run a model twice on the same inputs and, if it gives the same outputs, write them as what later versions must give."""
    samples: list[Sample] = []
    again = Runner(f"{runner.title}, run again", runner.run, runner.unit)
    report = verify_runners(reference=runner, candidate=again, record=samples, **options)
    if not report.agrees:
        return replace(report, notes=(*report.notes, f"{path} was not recorded: the model does not repeat its own outputs"))
    record.save_file(path, samples, report, runner.unit)
    reason = f"{path} was recorded now, and the model was compared with itself only; the next run compares with the file"
    return replace(report, weak=(*report.weak, reason))
