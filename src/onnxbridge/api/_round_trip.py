"""A model converted from framework to framework, and compared with the original at each step."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import onnx_ir as ir

from onnxbridge import plugins
from onnxbridge.api._arguments.example_inputs import specs_of
from onnxbridge.api._convert import convert
from onnxbridge.api._verify import verify
from onnxbridge.errors import OnnxbridgeError, UsageError, VerificationError
from onnxbridge.progress import OnStage, Progress, quiet, with_progress
from onnxbridge.runtime.verify.report import Report


@dataclass(frozen=True)
class Step:
    """One conversion of a round trip.

    Attributes:
        name: the target that the model was converted to.
        report: of the comparison with the original; None where `error` came first.
        error: why the step was not converted or not compared, or that the round trip ended before it.
    """

    name: str
    report: Report | None = None
    error: OnnxbridgeError | None = None

    @property
    def verdict(self) -> str:
        """That of the report, or "FAILED"; "" for a step after the end of the round trip."""
        return self.report.verdict if self.report is not None else "FAILED" if self.error is not None else ""

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name, "verdict": self.verdict or None, "error": None if self.error is None else str(self.error),
            "verification": None if self.report is None else self.report.as_dict(),
        }  # fmt: skip


@dataclass(frozen=True)
class RoundTrip:
    """What a round trip found, step by step."""

    source: str
    steps: tuple[Step, ...]

    @property
    def verdict(self) -> str:
        """"FAILED" if a step failed, else "WEAK" if one is weak, else "PASSED"."""
        verdicts = [step.verdict for step in self.steps]
        return next((v for v in ("FAILED", "WEAK") if v in verdicts), "PASSED")

    @property
    def agrees(self) -> bool:
        """Whether every step computes the same as the original."""
        return self.verdict != "FAILED"

    @property
    def failure(self) -> OnnxbridgeError | None:
        """The error of the first step that failed."""
        for i, step in enumerate(self.steps):
            if step.verdict == "FAILED":
                where = f"step {i + 1} ({step.name})"
                return step.error or VerificationError(f"{where} is the first that does not compute the same", step.report)
        return None

    def as_dict(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict, "passed": self.verdict == "PASSED", "source": self.source,
            "steps": [step.as_dict() for step in self.steps],
        }  # fmt: skip

    def __str__(self) -> str:
        lines = []
        for i, step in enumerate(self.steps):
            path = " -> ".join([self.source, *(s.name for s in self.steps[: i + 1])])
            if step.report is not None and step.verdict == "PASSED":
                worst = max(step.report.outputs, key=lambda o: o.max_abs / (o.tolerance.atol or 1.0))
                figures = f"{worst.name} max abs {worst.max_abs:.2g}, allowed {worst.tolerance.atol:.2g}"
                measured = [m.described(worst.metrics[m.name]) for m in step.report.metrics if m.name in worst.metrics]
                lines.append(f"PASSED  {path}: {', '.join([figures, *measured])}")
            elif step.report is not None:
                lines += [f"{step.verdict:6}  {path}", *(f"  {line}" for line in str(step.report).splitlines()[1:])]
            elif step.error is not None:
                lines.append(f"FAILED  {path}: {str(step.error).splitlines()[0]}")
            else:
                lines.append(f"        {path}: not reached")
        return "\n".join(lines)


@with_progress
def round_trip(
    source: Any,
    via: str | Sequence[str],
    *,
    frontend: str | None = None,
    inputs: Any = None,
    dynamic: Any = None,
    imports: str | Sequence[str] | None = None,
    progress: Progress = quiet,
    **options: Any,
) -> RoundTrip:
    """Convert a model to the first target of `via`, the result to the second, and so on, and compare each with the original.

    A step that computes something else does not end the round trip; one that cannot be converted or run does. The converted
    models are files in a temporary folder.

    Args:
        via: targets, such as ["onnx", "tensorflow", "pytorch"] or "onnx,tensorflow".
        options: those of `verify`: data, samples, seed, rtol, atol, max_drift, metrics, device, time_limit.

    Raises:
        UsageError: for an unknown target, or wrong options.
        MissingFrameworkError: if a framework has to be installed first.
    """
    plugins.import_modules(imports)
    names = [plugins.backend_name(name) for name in _split(via)]
    for name in names:
        plugins.backend(name).require()
        plugins.frontend(name).require()
    if isinstance(options.get("data"), Iterator):
        options["data"] = list(options["data"])  # every step runs on it
    title = os.path.basename(os.path.normpath(source)) if isinstance(source, (str, os.PathLike)) else "model"
    steps: list[Step] = []
    with tempfile.TemporaryDirectory(prefix="onnxbridge-") as folder:
        current: Any = source
        hub: ir.Model | None = None
        own = {"frontend": frontend, "inputs": inputs, "dynamic": dynamic}
        for i, name in enumerate(names):
            here = Path(folder, str(i))
            here.mkdir()
            stage = partial(_staged, progress, f"step {i + 1}/{len(names)} ({name})")
            try:
                given = {**own, "data": options.get("data")} if hub is None else {}
                current, hub = _converted(current, hub, name, here, progress=stage, **given)
                report = verify(source, current, progress=stage, **own, **options)
                steps.append(Step(name, report))
            except OnnxbridgeError as e:
                if i == 0 and isinstance(e, UsageError):  # the user's own arguments
                    raise
                steps.append(Step(name, error=e))
                break
    steps += [Step(name) for name in names[len(steps) :]]
    return RoundTrip(title, tuple(steps))


def _split(via: str | Sequence[str]) -> list[str]:
    found = [part.strip() for text in ([via] if isinstance(via, str) else via) for part in text.split(",") if part.strip()]
    if not found:
        raise UsageError(f"via (--via) needs at least one target: {', '.join(plugins.installed('backend'))}")
    return found


def _staged(progress: OnStage, step: str, stage: str) -> None:
    progress(f"{step}: {stage}")


def _converted(source: Any, hub: ir.Model | None, target: str, folder: Path, **options: Any) -> tuple[Any, ir.Model]:
    """The converted model as a path, or as a pair of paths where its weights are in a file of their own, and its hub model.

    `hub` is that of the step before, whose input shapes are used where the source does not declare any.
    """
    options = {"output": folder / plugins.backend(target).filename("model"), "verify": False, **options}
    try:
        made = convert(source, target, **options)
    except UsageError:
        if hub is None:
            raise
        made = convert(source, target, inputs=specs_of(hub), **options)
    pair = tuple(made.paths[:2])
    return pair if len(pair) == 2 and plugins.frontend(target).accepts(pair) else made.paths[0], made.hub
