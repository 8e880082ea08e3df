"""MLflow: a conversion as artifacts, metrics and tags of a run.

    import onnxbridge.mlflow
    with mlflow.start_run() as run:
        onnxbridge.mlflow.log_converted(run, onnxbridge.convert(net, "onnx", inputs=example))
"""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxbridge import plugins
from onnxbridge.errors import MissingFrameworkError, UsageError

if TYPE_CHECKING:
    from onnxbridge.api import Conversion
    from onnxbridge.runtime.verify.report import Report

_FORBIDDEN = re.compile(r"[^\w./ :-]")
"""Characters that MLflow does not allow in the names of metrics."""


def log_converted(run: Any, conversion: Conversion, *, path: str | None = None, tracking_uri: str | None = None) -> str:
    """Log a conversion to an MLflow run: the model, its report as a page and as JSON, metrics and tags.

    The metrics are `onnxbridge.TARGET.max_abs`, `.max_rel`, `.allowed` and `.seconds`, those of single outputs with
    `.OUTPUT` appended, and `.caught`, the share of planted faults that the verification would have caught. The tag
    `onnxbridge.TARGET.verdict` is PASSED, WEAK or FAILED, `onnxbridge.TARGET.notes` what differs from the source.

    Args:
        run: an active or finished run, or its id.
        conversion: what `onnxbridge.convert` returned.
        path: the folder of the artifacts in the run, "onnxbridge/TARGET" by default.
        tracking_uri: of the server or store, by default the one that MLflow uses.

    Returns:
        The URI of that folder.

    Raises:
        MissingFrameworkError: if MLflow is not installed.
        UsageError: if there is no such run.
    """
    client, exceptions = _client(tracking_uri)
    run_id = run if isinstance(run, str) else run.info.run_id
    folder = path or f"onnxbridge/{conversion.target}"
    prefix = f"onnxbridge.{conversion.target}"
    try:
        client.get_run(run_id)
    except exceptions.MlflowException as e:
        raise UsageError(f"MLflow has no run {run_id!r}: {e.message}") from e
    with tempfile.TemporaryDirectory(prefix="onnxbridge-") as temporary:
        for file in _files(conversion, Path(temporary)):
            client.log_artifact(run_id, str(file), folder)
    for name, value in _metrics(conversion.report):
        client.log_metric(run_id, f"{prefix}.{name}", value)
    tags = {"version": _version(), "source": conversion.source, "notes": "\n".join(conversion.notes)}
    if conversion.report is not None:
        tags |= {"verdict": conversion.report.verdict, "weak": "; ".join(conversion.report.weaknesses)}
    for name, text in tags.items():
        if text:
            client.set_tag(run_id, f"{prefix}.{name}", text[:5000])
    return f"{client.get_run(run_id).info.artifact_uri}/{folder}"


def _client(tracking_uri: str | None) -> tuple[Any, Any]:
    try:
        from mlflow import MlflowClient, exceptions
    except ImportError as e:
        raise MissingFrameworkError("log_converted needs MLflow: pip install 'onnxbridge[mlflow]'") from e
    return MlflowClient(tracking_uri), exceptions


def _files(conversion: Conversion, folder: Path) -> Iterator[Path]:
    """The model and its report, written into a folder."""
    from onnxbridge.reports import document, write_report
    from onnxbridge.reports.plots import plots

    writer = plugins.backend(conversion.target)
    models = folder / "model"
    models.mkdir()
    yield from writer.save(conversion.artifact, models / writer.filename("model"))
    found = {**document(conversion, command="convert"), "plots": plots(conversion)}
    for suffix in (".html", ".json"):
        write_report(found, folder / f"report{suffix}")
        yield folder / f"report{suffix}"


def _metrics(report: Report | None) -> Iterator[tuple[str, float]]:
    """Names and values; infinities and NaN are left out, for which stores have no numbers."""
    if report is None:
        return
    found = [("seconds", report.seconds)]
    if report.sensitivity is not None:
        found.append(("caught", report.sensitivity.share))
    for measure in ("max_abs", "max_rel"):
        found.append((measure, max(float(getattr(output, measure)) for output in report.outputs)))
    found.append(("allowed", max(output.tolerance.atol for output in report.outputs)))
    for output in report.outputs:
        name = _FORBIDDEN.sub("_", output.name)[:120]
        own = {"max_abs": output.max_abs, "max_rel": output.max_rel, "allowed": output.tolerance.atol}
        found += [(f"{measure}.{name}", value) for measure, value in own.items()]
        found += [(f"{_FORBIDDEN.sub('_', metric)}.{name}", value) for metric, value in output.metrics.items()]
    yield from ((name, float(value)) for name, value in found if math.isfinite(value))


def _version() -> str:
    from onnxbridge.hub.ir.provenance import version_of

    return version_of("onnxbridge")
