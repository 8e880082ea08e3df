"""Bisection of two models that a verification found to differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from onnxbridge.runtime.bisect.bisection import Bisection, FirstDivergence
from onnxbridge.runtime.bisect.native_values import computes_its_graph, first_misread
from onnxbridge.runtime.bisect.recorded_run import Side
from onnxbridge.runtime.bisect.search import search
from onnxbridge.runtime.verify.pairing import Runnable, name_pairs
from onnxbridge.runtime.verify.report import Report


def bisect_pair(reference: Runnable, candidate: Runnable, report: Report, progress: Callable[[str], None]) -> Bisection:
    """Find where two models diverge, given the verification that compared them. Where it is WEAK, they may although it passed."""
    if report.passed:
        return Bisection(report)
    feeds = report.worst_feed
    for side, name in ((reference, "reference"), (candidate, "candidate")):
        if side.hub is None:
            return Bisection(report, reason=f"the {name} cannot be read back, so only its outputs can be compared", feeds=feeds)
    assert reference.hub is not None and candidate.hub is not None
    a, b = reference.hub.graph, candidate.hub.graph
    inputs = name_pairs(_names(a.inputs), _names(b.inputs), "inputs")
    outputs = name_pairs(_names(a.outputs), _names(b.outputs), "outputs")
    one = Side("reference", reference.hub, feeds)
    other = Side("candidate", candidate.hub, {inputs[name]: value for name, value in feeds.items() if name in inputs})
    found = search(one, other, inputs, outputs, progress)
    first, reason = found.first, ""
    if first is None:
        progress("comparing each framework with its graph")
        first, reason = _misread([(reference, one), (candidate, other)])
    runs = one.runs, other.runs
    return Bisection(
        report, first, max(runs), runs, found.paired, found.values, reason, feeds, found.parts, layers=found.layers,
        graph=found.graph,
    )  # fmt: skip


def _misread(sides: Sequence[tuple[Runnable, Side]]) -> tuple[FirstDivergence | None, str]:
    """Where a framework computes something else than the graph that was read from its model, and what that means."""
    for runnable, side in sides:
        if computes_its_graph(runnable, side, side.feeds):
            continue
        title = runnable.runner.title
        if side.rounded == {}:
            side.record_rounding()
        first = first_misread(runnable, side, side.feeds)
        graph = f"than the graph that was read from the {side.title}"
        blame = f"an error in reading the model, or in {title}"
        if first is None:
            return None, f"the graphs of both agree, but {title} computes other outputs {graph}: {blame}"
        return first, f"the graphs of both agree; {title} (above as the reference) computes this value otherwise {graph}: {blame}"
    return None, "the graphs of both compute the same in float64, and so does each framework"


def _names(values: Sequence[ir.Value]) -> list[str]:
    return [str(v.name) for v in values]
