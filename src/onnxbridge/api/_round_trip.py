"""A model converted from framework to framework, and compared with the original at each station."""

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
from onnxbridge.api._convert import convert
from onnxbridge.api._example_inputs import specs_of
from onnxbridge.api._load import Progress, quiet
from onnxbridge.api._verify import verify
from onnxbridge.errors import OnnxbridgeError, UsageError, VerificationError
from onnxbridge.runtime.verify.report import Report


@dataclass(frozen=True)
class Station:
    """One conversion of a round trip.

    Attributes:
        name: the target that the model was converted to.
        report: of the comparison with the original; None where `error` came first.
        error: why the station was not converted or not compared, or that the walk ended before it.
    """

    name: str
    report: Report | None = None
    error: OnnxbridgeError | None = None

    @property
    def verdict(self) -> str:
        """That of the report, or "FAILED"; "" for a station after the end of the walk."""
        return self.report.verdict if self.report is not None else "FAILED" if self.error is not None else ""

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name, "verdict": self.verdict or None, "error": None if self.error is None else str(self.error),
            "verification": None if self.report is None else self.report.as_dict(),
        }  # fmt: skip


@dataclass(frozen=True)
class RoundTrip:
    """What a round trip found, station by station."""

    source: str
    stations: tuple[Station, ...]

    @property
    def verdict(self) -> str:
        """"FAILED" if a station failed, else "WEAK" if one is weak, else "PASSED"."""
        verdicts = [station.verdict for station in self.stations]
        return next((v for v in ("FAILED", "WEAK") if v in verdicts), "PASSED")

    @property
    def agrees(self) -> bool:
        """Whether every station computes the same as the original."""
        return self.verdict != "FAILED"

    @property
    def failure(self) -> OnnxbridgeError | None:
        """The error of the first station that failed."""
        for i, station in enumerate(self.stations):
            if station.verdict == "FAILED":
                where = f"station {i + 1} ({station.name})"
                return station.error or VerificationError(f"{where} is the first that does not compute the same", station.report)
        return None

    def as_dict(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict, "passed": self.verdict == "PASSED", "source": self.source,
            "stations": [station.as_dict() for station in self.stations],
        }  # fmt: skip

    def __str__(self) -> str:
        lines = []
        for i, station in enumerate(self.stations):
            path = " -> ".join([self.source, *(s.name for s in self.stations[: i + 1])])
            if station.report is not None and station.verdict == "PASSED":
                worst = max(station.report.outputs, key=lambda o: o.max_abs / (o.tolerance.atol or 1.0))
                figures = f"{worst.name} max abs {worst.max_abs:.2g}, allowed {worst.tolerance.atol:.2g}"
                measured = [m.described(worst.metrics[m.name]) for m in station.report.metrics if m.name in worst.metrics]
                lines.append(f"PASSED  {path}: {', '.join([figures, *measured])}")
            elif station.report is not None:
                lines += [f"{station.verdict:6}  {path}", *(f"  {line}" for line in str(station.report).splitlines()[1:])]
            elif station.error is not None:
                lines.append(f"FAILED  {path}: {str(station.error).splitlines()[0]}")
            else:
                lines.append(f"        {path}: not reached")
        return "\n".join(lines)


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

    A station that computes something else does not end the walk; one that cannot be converted or run does. The converted models
    are files in a temporary folder.

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
        options["data"] = list(options["data"])  # every station runs on it
    title = os.path.basename(os.path.normpath(source)) if isinstance(source, (str, os.PathLike)) else "model"
    stations: list[Station] = []
    with tempfile.TemporaryDirectory(prefix="onnxbridge-") as folder:
        current: Any = source
        hub: ir.Model | None = None
        own = {"frontend": frontend, "inputs": inputs, "dynamic": dynamic}
        for i, name in enumerate(names):
            here = Path(folder, str(i))
            here.mkdir()
            stage = partial(_staged, progress, f"station {i + 1}/{len(names)} ({name})")
            try:
                given = {**own, "data": options.get("data")} if hub is None else {}
                current, hub = _converted(current, hub, name, here, progress=stage, **given)
                report = verify(source, current, progress=stage, **own, **options)
                stations.append(Station(name, report))
            except OnnxbridgeError as e:
                if i == 0 and isinstance(e, UsageError):  # the user's own arguments
                    raise
                stations.append(Station(name, error=e))
                break
    stations += [Station(name) for name in names[len(stations) :]]
    return RoundTrip(title, tuple(stations))


def _split(via: str | Sequence[str]) -> list[str]:
    found = [part.strip() for text in ([via] if isinstance(via, str) else via) for part in text.split(",") if part.strip()]
    if not found:
        raise UsageError(f"via (--via) needs at least one target: {', '.join(plugins.installed('backend'))}")
    return found


def _staged(progress: Progress, station: str, stage: str) -> None:
    progress(f"{station}: {stage}")


def _converted(source: Any, hub: ir.Model | None, target: str, folder: Path, **options: Any) -> tuple[Any, ir.Model]:
    """The converted model as a path, or as a pair of paths where its weights are in a file of their own, and its hub model.

    `hub` is that of the station before, whose input shapes are used where the source does not declare any.
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
