"""Verification: run two models on the same seeded inputs, and report for each output whether they agree."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import LimitError, VerificationError
from onnxbridge.runtime.verify.compare import Comparison, Tolerance, compare, worst
from onnxbridge.runtime.verify.compare_random import compare_random, random_outputs, statistical_differences
from onnxbridge.runtime.verify.compression_drift import MAX_DRIFT, Drift, cause_of, jumping_shares, weaknesses, with_drift
from onnxbridge.runtime.verify.drawn_elements import DrawnElements
from onnxbridge.runtime.verify.estimate import SAMPLES, estimate
from onnxbridge.runtime.verify.metrics.metric import Measurements, Metric
from onnxbridge.runtime.verify.recordings.failed_sample import with_sample
from onnxbridge.runtime.verify.report import Report
from onnxbridge.runtime.verify.rounding.tolerance import Rounding
from onnxbridge.runtime.verify.runner import Arrays, Runner, run
from onnxbridge.runtime.verify.samples.accepted import CACHED_RUNS, ResultCache, accepted_samples, accepts, with_example_integers
from onnxbridge.runtime.verify.samples.conditioning import well_conditioned
from onnxbridge.runtime.verify.samples.random_inputs import Bounds, samples_for
from onnxbridge.runtime.verify.samples.samples_file import Sample
from onnxbridge.runtime.verify.samples.sizes import extreme_samples, never_varied, varied
from onnxbridge.runtime.verify.samples.unusual_inputs import unusual_inputs
from onnxbridge.runtime.verify.strength.planted_faults import measured_sensitivity
from onnxbridge.runtime.verify.strength.weaknesses import Outputs, few_caught, unreached_branches
from onnxbridge.runtime.verify.third_opinion import third_opinion
from onnxbridge.runtime.verify.time_limit import SECONDS, within

Tolerances = float | Mapping[str, float] | None
ANNOUNCED = 10.0
"""Verifications that probably take so many seconds are announced."""
_log = logging.getLogger("onnxbridge")


def verify_runners(
    model: ir.Model, reference: Runner, candidate: Runner, *, samples: int | None = None,
    time_limit: float | None = SECONDS, progress: Callable[[str], None] = lambda stage: None, **options: Any,
) -> Report:  # fmt: skip
    """Run both models on the same inputs and compare, within `time_limit` seconds; `options` are those of `compare_runners`.

    If the time limit is reached after the outputs agreed, while faults are planted, the report is returned with a note.

    Of a large model, the time and the memory that this will take are logged before, by the logger "onnxbridge".

    Args:
        samples: how many random samples to draw; None for 3, fewer for models with 10^11 multiplications or more.

    Raises:
        LimitError: if that takes longer.
    """
    stage = ["verification"]

    def reported(text: str) -> None:
        stage[0] = f"verification ({text})"
        progress(text)

    expected = estimate(model, len(options.get("feeds") or ()) or samples)
    samples = samples or (SAMPLES if expected is None else expected.samples)
    if expected is not None and expected.seconds >= ANNOUNCED:
        _log.info("the verification will take %s", expected)
    found: list[Report] = []
    if candidate.finer is None:
        options["agreed"] = found.append
    work = partial(_verified, model, reference, candidate, samples=samples, progress=reported, **options)
    more = f"--time-limit {2 * (time_limit or 0):g} (time_limit=) allows more"
    try:
        return within(time_limit, work, lambda: stage[0], more)
    except LimitError as e:
        if not found:
            raise
        return replace(found[0], notes=(*found[0].notes, f"how many faults it would have caught was not measured: {e}"))


def _verified(model: ir.Model, reference: Runner, candidate: Runner, **options: Any) -> Report:
    """Compare. A candidate of lower precision is first compared without its rounding, on one sample and the user's example,
    which finds errors that are smaller than the rounding."""
    finer = candidate.finer
    notes: tuple[str, ...] = ()
    if finer is not None:
        usual = {
            "samples": 1, "sizes": options.get("sizes", ())[:1], "extremes": (), "max_drift": None, "record": None, "metrics": (),
        }  # fmt: skip
        feeds = options.get("feeds")
        in_float32 = compare_runners(model, reference, finer, **{**options, **usual, "feeds": feeds and feeds[:1]})
        if not in_float32.agrees:
            return in_float32
        worst_output = max(in_float32.outputs, key=lambda o: o.max_abs)
        count = f"{in_float32.samples} sample" + ("s" if in_float32.samples > 1 else "")
        notes = (f"{finer.title}, {worst_output.name} is off by {worst_output.max_abs:.2g} at most, on {count}",)
        options["mutants"] = 0  # the comparison in float32 catches more
    report = compare_runners(model, reference, candidate, **options)
    if finer is not None:
        weak = few_caught(in_float32.sensitivity)
        report = replace(
            report, weak=(*report.weak, *([weak] if weak else [])), sensitivity=in_float32.sensitivity,
            weak_outputs=in_float32.weak_outputs,
        )  # fmt: skip
    return replace(report, notes=(*report.notes, *notes))


def compare_runners(
    model: ir.Model,
    reference: Runner,
    candidate: Runner,
    *,
    first: Arrays | None = None,
    feeds: Sequence[Arrays] | None = None,
    samples: int = SAMPLES,
    seed: int = 0,
    bounds: Bounds | None = None,
    sizes: Sequence[Bounds] = (),
    extremes: Sequence[Bounds] = (),
    rtol: Tolerances = None,
    atol: Tolerances = None,
    max_drift: float | None = None,
    sample_names: Sequence[str] = (),
    tolerances: Mapping[str, Tolerance] | None = None,
    record: list[Sample] | None = None,
    metrics: Sequence[Metric] = (),
    mutants: int | None = None,
    agreed: Callable[[Report], None] = lambda report: None,
    progress: Callable[[str], None] = lambda stage: None,
) -> Report:
    """Run both models on the same inputs and compare.

    Args:
        model: the hub model, from which inputs are drawn and tolerances derived.
        first: the user's example, run before the seeded samples.
        feeds: the user's own inputs, in place of seeded samples.
        bounds: of dynamic sizes by name.
        sizes: if the candidate accepts only some sizes: bounds of those of the samples, then other bounds, for one more sample
            each.
        extremes: bounds of the smallest and the largest sizes, for one more sample each where the reference accepts it.
        rtol, atol: override the derived tolerance, one number or one for each output.
        max_drift: how far lossy compression or lower precision may move an output, as a share of its range. Given for models
            without either, it takes the tolerance's place.
        sample_names: of `feeds`, as users know them.
        tolerances: derived before, for each output; nothing is measured then.
        record: gets each sample with the reference's outputs.
        metrics: to measure at each output that is not random.
        mutants: how many faults to plant; None for as many as are cheap, 0 for none.
        agreed: gets the report of outputs that agree before faults are planted, which may take as long again.
    """
    start = time.perf_counter()
    progress("drawing samples" if feeds is None else "verifying")
    given = feeds is not None
    units = [runner.unit for runner in (reference, candidate) if runner.unit]
    of_integers = [runner.quantized_unit for runner in (reference, candidate) if runner.quantized_unit]
    estimator = Rounding(model, max(units, default=None), max(of_integers, default=None))
    drift_cause = cause_of(reference, candidate, max_drift)
    if drift_cause == "the candidate":
        tolerances = {str(v.name): Tolerance(np.inf, 0.0) for v in model.graph.outputs}
    rounding = None if tolerances or (rtol is not None and atol is not None) else estimator
    inputs: Sequence[Arrays] = feeds or []
    names = list(sample_names)
    cache: ResultCache = deque(maxlen=CACHED_RUNS)  # results of the reference for inputs that were tried
    notes: list[str] = []
    if feeds is None:
        usual, *others = sizes or [{}]
        bounds = {**(bounds or {}), **usual}
        made, notes = accepted_samples(model, samples, seed, bounds, estimator, reference, cache, guess=first is None)
        made += [samples_for(model.graph, 1, seed, {**bounds, **other})[0] for other in others]
        more, left_out = extreme_samples(model.graph, made, seed, bounds, extremes, lambda feed: accepts(reference, feed, cache))
        inputs, notes = [*made, *more], notes + left_out
        if rounding is not None:
            inputs, changes = well_conditioned(inputs, rounding, reference, cache)
            notes += changes
    if first is not None:
        accepted, more_notes = with_example_integers(reference, inputs, first, cache)
        inputs, notes = [first, *accepted], notes + more_notes
        names = names and ["the example inputs", *names]
    random_names = random_outputs(model)
    differences: dict[str, str] = {}
    found: dict[str, list[Comparison]] = {}
    drift, measurements = Drift(), Measurements(metrics)
    seen, drawn = Outputs(model.graph), DrawnElements(len(inputs))
    for i, feed in enumerate(inputs):
        progress(f"verifying {i + 1}/{len(inputs)}")
        if rounding:
            rounding.measure(feed)  # first, since the executor has a budget and the frameworks have none
        side = reference
        try:
            known = next((results for tried, results in cache if tried is feed), None)
            expected = run(reference, feed) if known is None else known
            side = candidate
            actual = run(candidate, feed)
        except VerificationError as e:
            advice = "" if given or side is candidate else "; describe inputs that it accepts (--inputs, inputs=), or give --data"
            raise with_sample(f"{e}{advice}", i, feed, names[i] if names else "") from e
        if record is not None:
            record.append(Sample(names[i] if names else "", feed, expected))
        seen.add(expected)
        drawn.add(expected, actual)
        if random_names and not i:
            runs = [partial(run, runner, feed) for runner in (reference, candidate)]
            compared = [n for n in expected if n in random_names and n in actual]
            differences = statistical_differences(runs, compared, reference.replayed)
        notes += [f"the candidate has no output {name!r}" for name in expected if name not in actual]
        random_differences = {n: differences.get(n, "") for n in random_names}
        compare_with = partial(_compare_outputs, expected, actual, random_differences, rtol=rtol, atol=atol)
        comparisons = compare_with(rounding.tolerances(expected) if rounding else tolerances or {})
        failed = any(not c.passed for earlier in found.values() for c in earlier)
        if rounding and not failed and _may_be_rounding(comparisons) and rounding.remeasure(feed):
            comparisons = compare_with(rounding.tolerances(expected))
        if rounding and not failed and not (units or drift_cause) and not all(c.passed for c in comparisons):
            notes += third_opinion(feed, rounding.results(feed), expected, actual, comparisons, reference, candidate)
        for one in comparisons:
            at = one.worst and replace(one.worst, sample=i)
            found.setdefault(one.name, []).append(replace(one, worst=at))
        exact = {n: v for n, v in expected.items() if n in actual and n not in random_names}
        lossy = actual if candidate.stored is None else run(replace(candidate, run=candidate.stored), feed)
        if drift_cause:
            drift.add(exact, lossy, jumping_shares(model, drift_cause, comparisons))
        for name, value in exact.items():
            measurements.add(name, value, lossy[name])
    if not given and not sizes and not drift_cause and not random_names:
        empty = reference.has_empty_arrays and candidate.has_empty_arrays
        for what, feed in unusual_inputs(model.graph, inputs[-1], seed, bounds or {}, empty):
            try:
                expected, actual = run(reference, feed), run(candidate, feed)
            except VerificationError as e:
                notes.append(f"not verified on {what}: {e}")
                continue
            derived = rounding.tolerances(expected) if rounding else tolerances or {}
            for one in _compare_outputs(expected, actual, {}, derived, rtol=rtol, atol=atol):
                if not one.passed:
                    found.setdefault(one.name, []).append(replace(one, worst=None, notes=(*one.notes, f"on {what}")))
    weak = [runner.weak for runner in (reference, candidate) if runner.weak]
    if rounding is not None and rounding.fault:
        share = "the tolerance is a default" if rounding.reason else "the tolerance is derived from some of the inputs only"
        weak.append(f"{share}, since {rounding.fault}")
    elif rounding is not None and rounding.reason:
        notes.append(f"the tolerance is a default, since {rounding.reason}")
    notes += rounding.notes() if rounding is not None else []
    fixed = {} if given else never_varied(model.graph, inputs)
    fixed = {name: size for name, size in fixed.items() if (bounds or {}).get(name) != (size, size)}
    if fixed:
        weak.append(f"dynamic sizes were never varied: {', '.join(f'{name}={size}' for name, size in fixed.items())}")
    shares = drift.shares({name for name, each in found.items() if all(c.passed for c in each)})
    weak += weaknesses(shares, drift_cause, not given) if max_drift is None else []
    outputs = tuple(with_drift(replace(worst(c), metrics=measurements.of(name)), shares.get(name)) for name, c in found.items())
    report = Report(
        reference.title,
        candidate.title,
        outputs,
        len(inputs),
        None if given else seed,
        tuple({k: np.shape(v) for k, v in feed.items()} for feed in inputs),
        time.perf_counter() - start,
        tuple(dict.fromkeys(notes)),
        tuple(weak),
        max_drift=MAX_DRIFT if max_drift is None else max_drift,
        drift_cause=drift_cause,
        sample_names=tuple(names),
        metrics=tuple(metrics),
        varied_sizes=varied(model.graph, inputs),
        feeds=tuple(inputs),
        weak_outputs=tuple(seen.weaknesses(outputs)),
        drawn=drawn.pairs(),
    )
    if not all(o.passed and np.isfinite(o.tolerance.atol) for o in outputs):
        return report
    agreed(report)
    progress("planting faults")
    sensitivity, note = measured_sensitivity(model, estimator, inputs, found, mutants, seed)
    unreached = unreached_branches(model.graph, estimator.executors[0], inputs) if estimator.executors else ""
    return replace(
        report, seconds=time.perf_counter() - start, sensitivity=sensitivity,
        notes=tuple(dict.fromkeys([*report.notes, *([note] if note else [])])),
        weak=(*report.weak, *(reason for reason in (unreached, few_caught(sensitivity)) if reason)),
    )  # fmt: skip


def _compare_outputs(
    expected: Arrays, actual: Arrays, differences: Mapping[str, str], derived: Mapping[str, Tolerance], *, rtol: Tolerances,
    atol: Tolerances,
) -> list[Comparison]:
    """Compare the outputs of one sample; `differences` has the random ones, with the statistical difference that was found."""
    found = []
    for name, value in expected.items():
        if name not in actual:
            tolerance = derived.get(name, Tolerance(0.0, 0.0))
            found.append(Comparison(name, np.shape(value), "missing", np.inf, np.inf, tolerance, False, np.inf))
        elif name in differences:
            found.append(compare_random(name, value, actual[name], differences[name]))
        else:
            found.append(compare(name, value, actual[name], _tolerance_of(name, derived.get(name), rtol, atol)))
    return found


def _may_be_rounding(comparisons: Sequence[Comparison]) -> bool:
    """Whether outputs failed, all of them with a finite error and a derived tolerance, which more runs may widen."""
    failed = [c for c in comparisons if not c.passed]
    return bool(failed) and all(np.isfinite(c.excess) and c.tolerance.origin == "derived" for c in failed)


def _tolerance_of(name: str, derived: Tolerance | None, rtol: Tolerances, atol: Tolerances) -> Tolerance:
    """The user's tolerance, completed by the derived one."""

    def one(given: Tolerances) -> float | None:
        return given.get(name) if isinstance(given, Mapping) else given

    r, a = one(rtol), one(atol)
    if r is None and a is None and derived is not None:
        return derived
    fallback = derived or Tolerance(0.0, 0.0)
    return Tolerance(fallback.atol if a is None else a, fallback.rtol if r is None else r, origin="given")
