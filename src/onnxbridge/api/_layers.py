"""The error of each layer, for `convert` and `verify` with `layers=True`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from onnxbridge import plugins
from onnxbridge.api._conversion import Conversion
from onnxbridge.api._pair import Reader
from onnxbridge.errors import OnnxbridgeError, first_line
from onnxbridge.runtime.verify.pairing import Runnable, name_pairs
from onnxbridge.runtime.verify.report import Report
from onnxbridge.runtime.verify.runner import Runner


def layers_of_conversion(
    made: Conversion, reference: Runner, device: str, progress: Callable[[str], None]
) -> Report:
    """The report of a conversion with the error of each layer, from the artifact as it is read back from its files."""
    assert made.report is not None
    names = ([str(v.name) for v in values] for values in (made.hub.graph.inputs, made.hub.graph.outputs))
    inputs, outputs = map(tuple, names)
    first = Runnable(reference, inputs, outputs, made.hub)
    writer = plugins.backend(made.target)
    with tempfile.TemporaryDirectory(prefix="onnxbridge-") as folder:
        progress("reading the converted model")
        try:
            paths = made.paths or writer.save(made.artifact, Path(folder, writer.filename("model")))
            second = Reader(None, None, None, device).candidate(str(paths[0]), first)
            return with_layers(made.report, first, second, progress)
        except OnnxbridgeError as e:
            return _with_note(made.report, first_line(e))


def with_layers(report: Report, first: Runnable, second: Runnable, progress: Callable[[str], None]) -> Report:
    """The report with the error of each layer on the sample that is worst, or with a note that says why it has none."""
    from onnxbridge.runtime.bisect.layer_errors import measured_layers

    if not report.feeds or first.hub is None:
        return report
    progress("measuring the error of each layer")
    try:
        found = measured_layers(first.hub, report.worst_feed, second, name_pairs(first.inputs, second.inputs, "inputs"))
    except OnnxbridgeError as e:
        return _with_note(report, first_line(e))
    if not found:
        return _with_note(report, "the candidate shows no intermediate values of the reference")
    return replace(report, layers=found)


def _with_note(report: Report, reason: str) -> Report:
    return replace(report, notes=(*report.notes, f"the error of each layer was not measured: {reason}"))
