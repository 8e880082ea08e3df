"""Bisection of two models that a verification found to differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from onnxbridge.runtime.bisect.bisection import Bisection
from onnxbridge.runtime.bisect.search import search
from onnxbridge.runtime.verify.pairing import Runnable, name_pairs
from onnxbridge.runtime.verify.report import Report


def bisect_pair(reference: Runnable, candidate: Runnable, report: Report, progress: Callable[[str], None]) -> Bisection:
    """Find where two models diverge, given the verification that compared them."""
    if report.agrees:
        return Bisection(report)
    feeds = _failing(report)
    for side, name in ((reference, "reference"), (candidate, "candidate")):
        if side.hub is None:
            return Bisection(report, reason=f"the {name} cannot be read back, so only its outputs can be compared", feeds=feeds)
    assert reference.hub is not None and candidate.hub is not None
    a, b = reference.hub.graph, candidate.hub.graph
    inputs = name_pairs(_names(a.inputs), _names(b.inputs), "inputs")
    outputs = name_pairs(_names(a.outputs), _names(b.outputs), "outputs")
    found = search(reference.hub, candidate.hub, feeds, inputs, outputs, progress)
    reason = "" if found.first is not None else "the graphs of both compute the same in float64"
    return Bisection(
        report, found.first, max(found.runs), found.runs, found.paired, found.values, reason, feeds, found.parts
    )  # fmt: skip


def _names(values: Sequence[ir.Value]) -> list[str]:
    return [str(v.name) for v in values]


def _failing(report: Report) -> Mapping[str, Any]:
    """The inputs of the sample on which the outputs differ most."""
    failed = [o for o in report.outputs if not o.passed]
    worst = max(failed, key=lambda o: o.excess, default=None)
    sample = 0 if worst is None or worst.worst is None else worst.worst.sample
    return report.feeds[sample]
