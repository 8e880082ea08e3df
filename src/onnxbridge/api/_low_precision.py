"""A candidate of lower precision: the operators that add error, and which to keep in float32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx_ir as ir

from onnxbridge.api._load import prepared
from onnxbridge.errors import VerificationError
from onnxbridge.progress import OnStage
from onnxbridge.runtime.bisect.low_precision import keep_in_float32
from onnxbridge.runtime.bisect.low_precision.name_patterns import shortened
from onnxbridge.runtime.bisect.low_precision.operator_errors import Measured, OperatorErrors, measure, moved_text
from onnxbridge.runtime.bisect.low_precision.output_error import error_share, ranges
from onnxbridge.runtime.bisect.low_precision.paired_parts import lowers_precision, paired_parts
from onnxbridge.runtime.bisect.low_precision.suggestion import LIMIT, Suggestion
from onnxbridge.runtime.bisect.recorded_run import Side
from onnxbridge.runtime.verify.pairing import Runnable, artifact_runner, feeds_for, name_pairs
from onnxbridge.runtime.verify.report import Report
from onnxbridge.runtime.verify.rounding.simulate_precision import HALF
from onnxbridge.runtime.verify.runner import Runner, run
from onnxbridge.runtime.verify.verification import verify_runners

EXPLAINED = 4
"""A candidate whose program cannot be run in float32 may be so many times as far off as the simulated arithmetic."""
_SAMPLES = 4
"""So many of the samples, those that are off most, are searched on."""
_TRIES, _MARGIN = 2, 0.8
"""The most conversions, and by which factor the first search stays below the limit: it simulates the arithmetic."""


@dataclass(frozen=True)
class LowPrecision:
    """What was found; `suggestion` is None if none was requested."""

    errors: OperatorErrors
    suggestion: Suggestion | None = None


def is_low_precision(runner: Runner, report: Report) -> bool:
    """Whether the candidate computes in lower precision, and was compared so: where its program in float32 is compared first and
    differs, the report is of that."""
    return runner.unit is not None and runner.unit >= HALF and report.candidate == runner.title


def low_precision(
    first: Runnable, second: Runnable, runner: Runner, report: Report, *, suggest: bool, limit: float | None, device: str,
    time_limit: float | None, progress: OnStage, source: str = "MODEL",
) -> LowPrecision | None:  # fmt: skip
    """The operators that add error on the sample that is worst; None if lower precision is not what the two differ by, or if that
    cannot be known.

    Args:
        runner: the candidate's, with the reference's names.
        report: of the verification of both.
        suggest: whether to search for operators to keep in float32, and to try them.
        limit: how far outputs may be off, as a share of their range.
        source: the reference in the command that is suggested.
    """
    backend, unit = second.backend, runner.unit
    if first.hub is None or backend is None or unit is None:
        return None
    options = dict(backend.options_of(second.artifact))
    model = prepared(backend, first.hub, options)
    expected, spans, shares, worst = _errors_of_samples(first, runner, report)
    kept = backend.float32_values(second.artifact, model)
    measured = measure(model, worst, unit, kept, spans, progress)
    if runner.finer is None and max(shares) > EXPLAINED * measured.errors.together:
        return None
    if not suggest:
        return LowPrecision(measured.errors)
    state = _before(limit, shares, source=source, target=backend.name)
    if state.reason:
        return LowPrecision(measured.errors, state)
    if not backend.float32_option:
        return LowPrecision(measured.errors, replace(state, reason=f"{backend.title} has no option to keep operators in float32"))
    state = replace(state, option=backend.float32_option, of=len(measured.errors.rows), options=options)
    trial = _Trial(first, second, model, report, expected, spans, device, time_limit, progress)
    return LowPrecision(measured.errors, _search(trial, measured, state))


def other_precision(
    first: Runnable, second: Runnable, runner: Runner, report: Report, *, suggest: bool, limit: float | None, progress: OnStage
) -> LowPrecision | None:
    """The operators that add error in a candidate of lower precision that another tool made, or whose weights are compressed;
    None if the candidate is no such model.

    Each part of the candidate between values that both models have is run as it is. The arguments are those of `low_precision`.
    """
    compressed = second.backend is not None and second.backend.as_stored(second.artifact) is not None
    if first.hub is None or second.hub is None or not (compressed or lowers_precision(first.hub, second.hub)):
        return None
    _, spans, shares, worst = _errors_of_samples(first, runner, report)
    inputs = name_pairs(first.inputs, second.inputs, "inputs")
    one = Side("reference", first.hub, worst[0])
    other = Side("candidate", second.hub, feeds_for(second, worst[0], inputs))
    for side in (one, other):
        progress(f"running the {side.title} in float64")
        side.record()
    parts = paired_parts(one, other, inputs, name_pairs(first.outputs, second.outputs, "outputs"))
    if len(parts) <= len(first.outputs):
        return None
    kept = [] if compressed else [part.name for part in parts if part.in_float32]
    measured = measure(first.hub, worst, HALF, kept, spans, progress, parts)
    if not suggest:
        return LowPrecision(measured.errors)
    state = _before(limit, shares)
    if state.reason and measured.errors.together > state.limit:
        moved = moved_text(measured.errors.together)
        return LowPrecision(measured.errors, replace(state, reason=f"{state.reason}; without float32 between operators, {moved}"))
    if not state.reason:
        found = keep_in_float32.search(measured, state.limit, progress)
        names = tuple(dict.fromkeys(n for part in parts if part.name in found.names for n in part.nodes))
        rows = len(measured.errors.rows)
        state = replace(state, after=found.share, names=names, operators=found.names, of=rows, runs=found.runs)
    return LowPrecision(measured.errors, state)


def _errors_of_samples(
    first: Runnable, runner: Runner, report: Report
) -> tuple[list[Mapping[str, Any]], dict[str, float], list[float], list[Mapping[str, Any]]]:
    """The reference's outputs for each sample, their ranges, how far the candidate is off on each, and the worst samples."""
    expected = [run(first.runner, feed) for feed in report.feeds]
    spans = ranges(expected)
    shares = _shares(expected, runner, report.feeds, spans)
    worst = sorted(range(len(shares)), key=lambda i: -shares[i])[:_SAMPLES]
    return expected, spans, shares, [report.feeds[i] for i in worst]


def _before(limit: float | None, shares: Sequence[float], source: str = "MODEL", target: str = "") -> Suggestion:
    """What is known before a search: the limit, and how far the candidate is off; with a reason if it is within the limit."""
    state = Suggestion(LIMIT if limit is None else limit, max(shares), source=source, target=target)
    if state.before > state.limit:
        return state
    off = f"outputs are off by {state.before:.2%} of their range, within {state.limit:.2%}"
    return replace(state, reason=f"not needed: {off} (--max-drift)")


@dataclass(frozen=True)
class _Trial:
    """What each conversion that is tried is compared with."""

    first: Runnable
    second: Runnable
    model: ir.Model
    report: Report
    expected: Sequence[Mapping[str, Any]]
    spans: Mapping[str, float]
    device: str
    time_limit: float | None
    progress: OnStage


def _search(trial: _Trial, measured: Measured, state: Suggestion) -> Suggestion:
    """Search, convert and verify, once more with a stricter limit if the outputs are still off by too much."""
    types = {row.name: row.op for row in measured.errors.rows}
    best: Suggestion | None = None
    margin = _MARGIN
    for _ in range(_TRIES):
        kept = keep_in_float32.search(measured, margin * state.limit, trial.progress)
        if not kept.names:  # the simulation is within the limit already
            margin /= 4
            continue
        short, operators = shortened(kept.names, types)
        names = tuple(dict.fromkeys([*state.options.get(state.option, ()), *short]))
        if best is not None and names == best.names:
            break
        options = {**state.options, state.option: list(names)}
        runs = kept.runs + (best.runs if best is not None else 0)
        tried = 1 + (best.tried if best is not None else 0)
        made = replace(state, names=names, operators=tuple(operators), options=options, runs=runs, tried=tried)
        made = _verified(trial, made)
        margin *= min(0.5, 0.5 * state.limit / (made.after or state.limit))
        if best is None or (made.after or 0.0) < (best.after or 0.0):
            best = made
        best = replace(best, runs=runs, tried=tried)
        if best.passed:
            break
    if best is None:
        return replace(state, reason="none found: the simulated arithmetic stays within the limit, where the candidate does not")
    return best


def _verified(trial: _Trial, made: Suggestion) -> Suggestion:
    """Convert with the suggested options, and compare with the reference: in float32 as closely as rounding allows, and as it is
    within the limit."""
    backend = trial.second.backend
    assert backend is not None and trial.first.hub is not None
    trial.progress(f"converting with {made.option}, try {made.tried}")
    artifact = backend.from_hub(trial.model, **made.options)
    runner = artifact_runner(backend, artifact, trial.device)
    feeds = list(trial.report.feeds)
    given: dict[str, Any] = {"time_limit": trial.time_limit, "progress": trial.progress, "mutants": 0}
    if runner.finer is not None:
        finer = verify_runners(trial.first.hub, trial.first.runner, runner.finer, feeds=feeds[:1], **given)
        if not finer.agrees:
            raise VerificationError(f"the conversion with {made.option} does not compute the same in float32", finer)
    report = verify_runners(
        trial.first.hub, trial.first.runner, replace(runner, finer=None), feeds=feeds, max_drift=made.limit,
        **given,
    )  # fmt: skip
    return replace(made, report=report, after=max(_shares(trial.expected, runner, feeds, trial.spans)))


def _shares(
    expected: Sequence[Mapping[str, Any]], runner: Runner, feeds: Sequence[Mapping[str, Any]], spans: Mapping[str, float]
) -> list[float]:
    """How far a model is off on each sample."""
    return [error_share(reference, run(runner, feed), spans) for reference, feed in zip(expected, feeds, strict=True)]
