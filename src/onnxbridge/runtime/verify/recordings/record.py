"""Inputs and outputs of a verification as files: to repeat it, to compare with a reference that runs only elsewhere, or to
compare with an earlier version."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxbridge.atomic_write import obstacle, source_part, write_atomically
from onnxbridge.errors import UsageError
from onnxbridge.hub.ir import provenance
from onnxbridge.runtime.verify.compare import Tolerance
from onnxbridge.runtime.verify.report import Report
from onnxbridge.runtime.verify.runner import Runner
from onnxbridge.runtime.verify.samples import samples_file
from onnxbridge.runtime.verify.samples.data import read_samples_files
from onnxbridge.runtime.verify.samples.samples_file import Sample

_PACKAGES = ("onnxbridge", "numpy", "onnx", "onnx_ir", "onnxruntime", "torch", "tensorflow", "keras", "mxnet", "coremltools")


@dataclass(frozen=True)
class Recording:
    """Outputs of a reference that ran before, perhaps on another machine.

    Attributes:
        tolerances: of each output, as derived then.
        unit: the unit roundoff of the models that were compared then, where that was larger than of the hub model's dtypes.
        notes: for the report: which versions are not the same today.
    """

    title: str
    samples: Sequence[Sample]
    tolerances: Mapping[str, Tolerance]
    unit: float | None
    notes: Sequence[str]


def folder_obstacle(folder: Path, force: bool, protected: Sequence[Path] = ()) -> str:
    """Why samples cannot be written into `folder`, "" where they can: it is new or empty, or with `force` holds only samples.

    `protected`: files and folders that must not be replaced: the models and the data.
    """
    there = list(folder.iterdir()) if folder.is_dir() else []
    if any(source_part(path, protected) for path in (folder, *there)):
        return f"the samples cannot be written into {str(folder)!r}, where the model or the data is"
    if not folder.is_dir():
        return obstacle(folder, False)
    if there and not (force and all(_is_sample(path) for path in there)):
        advice = "it holds other files" if force else "--force (force=True) replaces the samples in it"
        return f"the folder {str(folder)!r} is not empty; {advice}"
    return obstacle(folder / "sample", force)


def _is_sample(path: Path) -> bool:
    return path.name.startswith("sample_") and path.suffix == ".npz" and path.is_file()


def save_folder(folder: Path, samples: Sequence[Sample], report: Report, unit: float | None, outputs: bool) -> None:
    """Write one file for each sample: `sample_1.npz` and so on, with the same number of digits.

    Args:
        outputs: also write what the reference gave, with the tolerances and versions to compare with it.
    """
    folder.mkdir(exist_ok=True)
    for path in filter(_is_sample, folder.iterdir()):
        path.unlink()
    digits = len(str(len(samples)))
    header = _header(report, unit) if outputs else {"seed": report.seed}
    for i, sample in enumerate(samples):
        kept = sample if outputs else Sample(sample.name, sample.inputs)
        _write(folder / f"sample_{i + 1:0{digits}}.npz", [kept], header)


def save_file(path: Path, samples: Sequence[Sample], report: Report, unit: float | None) -> None:
    """Write all samples with the reference's outputs into one file."""
    _write(path, samples, _header(report, unit))


def _write(path: Path, samples: Sequence[Sample], header: Mapping[str, Any]) -> None:
    def save(free: Path) -> list[Path]:
        samples_file.write(free, samples, **header)
        return [free]

    write_atomically(path, True, save)


def _header(report: Report, unit: float | None) -> dict[str, Any]:
    tolerances = {
        o.name: {"atol": o.tolerance.atol, "rtol": o.tolerance.rtol, "mismatches": o.tolerance.mismatches}
        for o in report.outputs
        if o.tolerance.origin == "derived"
    }
    return {
        "reference": report.reference, "seed": report.seed, "versions": versions(), "unit": unit, "tolerances": tolerances,
    }  # fmt: skip


def versions() -> dict[str, str]:
    """The versions of Python and of the packages that are in use."""
    found = {"python": sys.version.split()[0]}
    return found | {name: provenance.version_of(name) for name in _PACKAGES if name in sys.modules}


def read_recording(path: Path, most: int | None = None) -> Recording:
    """What `save_folder` or `save_file` wrote with outputs.

    Raises:
        UsageError: if there are no outputs in it, or the files are of several references.
    """
    files = read_samples_files(path)
    samples = [sample for file in files for sample in file.samples][:most]
    without = next((sample.name for sample in samples if sample.outputs is None), None)
    if without is not None or not samples:
        what = f"{without} has" if samples else f"{path}: there are"
        raise UsageError(f"{what} no outputs of a reference; --save-outputs (save_outputs=) writes them")
    header = files[0].header
    names = [list(sample.outputs or ()) for sample in samples]
    if any(set(other) != set(names[0]) for other in names):
        raise UsageError(f"{path}: the samples have different outputs: {', '.join(names[0])}; {', '.join(names[-1])}")
    tolerances = {
        name: Tolerance(t["atol"], t["rtol"], t["mismatches"], "derived when recorded")
        for name, t in header.get("tolerances", {}).items()
    }
    then, now = header.get("versions", {}), versions()
    changed = [f"{name} {then[name]} then, {now[name]} now" for name in then if name in now and then[name] != now[name]]
    notes = [f"recorded with other versions: {', '.join(changed)}"] if changed else []
    title = f"{header.get('reference', 'outputs')} as recorded in {path}"
    return Recording(title, samples, tolerances, header.get("unit"), notes)


def stored_runner(recording: Recording, samples: Sequence[Sample]) -> Runner:
    """A reference that returns the stored outputs for the stored inputs; `samples` may have other names of both."""

    def run(feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        return next(sample.outputs or {} for sample in samples if sample.inputs is feeds)

    return Runner(recording.title, run, replayed=True)
