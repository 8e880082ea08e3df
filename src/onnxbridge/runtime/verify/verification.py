"""Verification: run two sides on the same seeded inputs and say, output by output, whether they compute the same."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import OnnxbridgeError, VerificationError, main_line
from onnxbridge.runtime.verify.compare import Comparison, Tolerance, compare, worst
from onnxbridge.runtime.verify.compare_random import alike, apart, by_chance
from onnxbridge.runtime.verify.compression_drift import Drift
from onnxbridge.runtime.verify.report import MAX_DRIFT, Report
from onnxbridge.runtime.verify.sample_inputs import Bounds, samples_for
from onnxbridge.runtime.verify.sample_sizes import at_ends, drawn, dynamic, never_varied
from onnxbridge.runtime.verify.time_limit import SECONDS, within
from onnxbridge.runtime.verify.tolerance import Rounding

Arrays = Mapping[str, Any]
Tolerances = float | Mapping[str, float] | None
Ran = deque[tuple[Arrays, Mapping[str, Any]]]
TRIED = 6  # inputs on which the reference was tried whose results are not computed again


@dataclass(frozen=True)
class Side:
    """One of the two that are compared: `run` takes feeds by the hub's input names and gives outputs by the hub's names.

    `unit` is the unit roundoff in which it computes where that is coarser than the hub model's dtypes; then `finer` may be the
    same without that rounding. `stored` runs a model with its weights as lossy compression stores them, where `run` takes those
    from before it. `weak` says why a comparison with this side proves little.
    """

    title: str
    run: Callable[[Arrays], Mapping[str, Any]]
    unit: float | None = None
    finer: Side | None = None
    stored: Callable[[Arrays], Mapping[str, Any]] | None = None
    weak: str = ""


def verify_sides(
    model: ir.Model, reference: Side, candidate: Side, *, time_limit: float | None = SECONDS,
    progress: Callable[[str], None] = lambda stage: None, **options: Any,
) -> Report:  # fmt: skip
    """Run both sides on the same inputs and compare, within `time_limit` seconds; `options` are those of `compared`.

    Raises:
        LimitError: if that takes longer.
    """
    stage = ["verification"]

    def reported(text: str) -> None:
        stage[0] = f"verification ({text})"
        progress(text)

    work = partial(_verified, model, reference, candidate, progress=reported, **options)
    more = f"--time-limit {2 * (time_limit or 0):g} (time_limit=) allows more"
    return within(time_limit, work, lambda: stage[0], more)


def _verified(model: ir.Model, reference: Side, candidate: Side, **options: Any) -> Report:
    """A candidate that rounds more than its source is first compared without its rounding, on one sample beside the user's
    example: what is wrong by less than the rounding moves is seen there."""
    finer = candidate.finer
    notes: tuple[str, ...] = ()
    if finer is not None:
        usual = {"samples": 1, "sizes": options.get("sizes", ())[:1], "ends": ()}
        feeds = options.get("feeds")
        fine = compared(model, reference, finer, **{**options, **usual, "feeds": feeds and feeds[:1]})
        if not fine.agrees:
            return fine
        off = max(fine.outputs, key=lambda o: o.max_abs)
        count = f"{fine.samples} sample" + ("s" if fine.samples > 1 else "")
        notes = (f"{finer.title}, {off.name} is off by {off.max_abs:.2g} at most, on {count}",)
    report = compared(model, reference, candidate, **options)
    return replace(report, notes=(*report.notes, *notes))


def compared(
    model: ir.Model,
    reference: Side,
    candidate: Side,
    *,
    first: Arrays | None = None,
    feeds: Sequence[Arrays] | None = None,
    samples: int = 3,
    seed: int = 0,
    bounds: Bounds | None = None,
    sizes: Sequence[Bounds] = (),
    ends: Sequence[Bounds] = (),
    rtol: Tolerances = None,
    atol: Tolerances = None,
    max_drift: float | None = None,
    progress: Callable[[str], None] = lambda stage: None,
) -> Report:
    """Run both sides on the same inputs and compare.

    Args:
        model: the hub model, which tells the inputs and how far rounding can move each output.
        first: the user's example, run before the seeded samples.
        feeds: the user's own inputs, in place of seeded samples.
        bounds: of dynamic sizes by name.
        sizes: where the candidate takes some sizes only, bounds of those that samples have, and of others, each of which one more
            sample has.
        ends: bounds of the least and the largest sizes, of which one more sample has each that the reference takes.
        rtol, atol: override the derived tolerance, one number or one for each output.
        max_drift: how far lossy compression may move an output, as a share of its range.
    """
    start = time.perf_counter()
    progress("drawing samples" if feeds is None else "verifying")
    given = feeds is not None
    units = [side.unit for side in (reference, candidate) if side.unit]
    measured = Rounding(model, max(units) if units else None)
    rounding = None if rtol is not None and atol is not None else measured
    told: Sequence[Arrays] = feeds or []
    ran: Ran = deque(maxlen=TRIED)  # what the reference gave for inputs that were tried
    notes: list[str] = []
    if feeds is None:
        usual, *others = sizes or [{}]
        bounds = {**(bounds or {}), **usual}
        made, notes = _drawn(model, samples, seed, bounds, measured, reference, ran, guess=first is None)
        made += [samples_for(model.graph, 1, seed, {**bounds, **other})[0] for other in others]
        more, left_out = at_ends(model.graph, made, seed, bounds, ends, lambda feed: _runs(reference, feed, ran))
        told, notes = [*made, *more], notes + left_out
    if first is not None:
        taken, said = _taken(reference, told, first, ran)
        told, notes = [first, *taken], notes + said
    lucky = by_chance(model)
    luck: dict[str, str] = {}
    found: dict[str, list[Comparison]] = {}
    drift = Drift()
    for i, feed in enumerate(told):
        progress(f"verifying {i + 1}/{len(told)}")
        if rounding:
            rounding.measure(feed)  # first, since the executor keeps to a budget and the frameworks do not
        try:
            known = next((results for tried, results in ran if tried is feed), None)
            wanted = _run(reference, feed) if known is None else known
        except VerificationError as e:
            if given:
                raise
            raise VerificationError(f"{e}; describe inputs that it takes (inputs=, --inputs), or give some") from e
        got = _run(candidate, feed)
        if lucky and not i:
            sides = (reference, candidate)
            luck = apart([partial(_run, side, feed) for side in sides], [n for n in wanted if n in lucky and n in got])
        notes += [f"the candidate has no output {name!r}" for name in wanted if name not in got]
        judged = partial(_judged, wanted, got, {n: luck.get(n, "") for n in lucky}, rtol=rtol, atol=atol)
        lines = judged(rounding.tolerances(wanted) if rounding else {})
        failed = any(not c.passed for earlier in found.values() for c in earlier)
        if rounding and not failed and _may_be_rounding(lines) and rounding.closer(feed):
            lines = judged(rounding.tolerances(wanted))
        for one in lines:
            at = one.worst and replace(one.worst, sample=i)
            found.setdefault(one.name, []).append(replace(one, worst=at))
        if candidate.stored is not None:
            drift.add(wanted, _run(replace(candidate, run=candidate.stored), feed))
    if rounding is not None and rounding.reason:
        notes.append(f"the tolerance is a default, since {rounding.reason}")
    notes += rounding.notes() if rounding is not None else []
    weak = [side.weak for side in (reference, candidate) if side.weak]
    fixed = {} if given else never_varied(model.graph, told)
    fixed = {name: size for name, size in fixed.items() if (bounds or {}).get(name) != (size, size)}
    if fixed:
        weak.append(f"dynamic sizes were never varied: {', '.join(f'{name}={size}' for name, size in fixed.items())}")
    shares = drift.shares()
    return Report(
        reference.title,
        candidate.title,
        tuple(replace(worst(c), drift=shares.get(name)) for name, c in found.items()),
        len(told),
        None if given else seed,
        tuple({k: np.shape(v) for k, v in feed.items()} for feed in told),
        time.perf_counter() - start,
        tuple(dict.fromkeys(notes)),
        tuple(weak),
        MAX_DRIFT if max_drift is None else max_drift,
    )


def _judged(
    wanted: Arrays, got: Arrays, luck: Mapping[str, str], derived: Mapping[str, Tolerance], *, rtol: Tolerances, atol: Tolerances
) -> list[Comparison]:
    """The outputs of one sample; those in `luck` are drawn by chance, and it may say what is known of them."""
    found = []
    for name, value in wanted.items():
        if name not in got:
            tolerance = derived.get(name, Tolerance(0.0, 0.0))
            found.append(Comparison(name, np.shape(value), "missing", np.inf, np.inf, tolerance, False, np.inf))
        elif name in luck:
            found.append(alike(name, value, got[name], luck[name]))
        else:
            found.append(compare(name, value, got[name], _chosen(name, derived.get(name), rtol, atol)))
    return found


def _may_be_rounding(lines: Sequence[Comparison]) -> bool:
    """Whether outputs failed, and all that did by an amount that a derived tolerance might yet allow."""
    failed = [c for c in lines if not c.passed]
    return bool(failed) and all(np.isfinite(c.excess) and c.tolerance.origin == "derived" for c in failed)


def _drawn(
    model: ir.Model, samples: int, seed: int, bounds: Bounds, measured: Rounding, reference: Side, ran: Ran, guess: bool
) -> tuple[list[dict[str, Any]], list[str]]:
    """Samples that the reference takes: with the model's own constants among them, without, or with likelier numbers where
    these have to be guessed, since the user gave no example."""
    fit = _fits(model, measured, reference, ran)

    def takes(feed: Arrays) -> bool:
        if not measured.reason and not any(tried is feed for tried, _ in ran):
            measured.fit(feed)  # first, since the executor keeps to a budget and the frameworks do not
        return any(tried is feed for tried, _ in ran) or _runs(reference, feed, ran)

    made, notes = drawn(model.graph, samples, seed, bounds, fit)
    if all(map(takes, made)):
        return made, notes
    plain, others = drawn(model.graph, samples, seed, bounds, fit, special=False)
    if all(map(takes, plain)):
        return plain, [*others, f"the model's own constants are not among the inputs, since {reference.title} fails on them"]
    for what, change in _LIKELIER if guess else ():
        changed = [{k: change(v) if isinstance(v, np.ndarray) else v for k, v in feed.items()} for feed in plain]
        if all(map(takes, changed)):
            return changed, [*others, f"{what}, since {reference.title} fails on others"]
    return made, notes


def _if_integers(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda v: np.asarray(change(v)) if v.dtype.kind in "iu" else v


def _small(value: Any) -> Any:
    """Integers are 0, and floating-point numbers between 0 and 1."""
    if value.dtype.kind in "iu":
        return np.zeros_like(value)
    return np.asarray(np.clip(np.abs(value), 0.01, 0.99).astype(value.dtype)) if value.dtype.kind == "f" else value


_LIKELIER: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("integers ascend", _if_integers(lambda v: np.sort(v) if v.ndim else v)),
    ("integers are 1 and more", _if_integers(lambda v: np.maximum(v, v.dtype.type(1)))),
    ("integers are 0 and other numbers between 0 and 1", _small),
)
"""What inputs may have to be where nothing in the graph shows it."""


def _fits(model: ir.Model, rounding: Rounding, reference: Side, ran: Ran) -> Callable[[Arrays], int]:
    """Tells how the model takes a sample: 2 if it computes something, 1 if nothing or NaN, 0 if it fails."""

    def fit(feed: Arrays) -> int:
        if rounding.reason or not dynamic(model.graph):
            return 2
        found = rounding.fit(feed)
        return found if found and _runs(reference, feed, ran) else 0

    return fit


def _taken(reference: Side, drawn: Sequence[Arrays], first: Arrays, ran: Ran) -> tuple[list[Arrays], list[str]]:
    """The samples, with the whole numbers of the user's example where the reference takes none of those that were drawn."""
    found = []
    notes = []
    for feed in drawn:
        whole = [name for name, value in feed.items() if np.asarray(value).dtype.kind in "iub" and np.size(first.get(name, ()))]
        if whole and not any(tried is feed for tried, _ in ran) and not _runs(reference, feed, ran):
            own = {name: np.resize(first[name], np.shape(feed[name])) for name in whole}
            if _runs(reference, {**feed, **own}, ran):
                feed = ran[-1][0]
                notes = [f"whole numbers are the example's ({', '.join(whole)}), since {reference.title} fails on others"]
        found.append(feed)
    return found, notes


def _runs(side: Side, feed: Arrays, ran: Ran) -> bool:
    """Whether a side takes these inputs; what it gives for them is put into `ran`."""
    try:
        ran.append((feed, _run(side, feed)))
    except VerificationError:
        return False
    return True


def _run(side: Side, feed: Arrays) -> Mapping[str, Any]:
    try:
        return side.run(feed)
    except Exception as e:
        if isinstance(e, OnnxbridgeError) and e.exit_code != OnnxbridgeError.exit_code:
            raise
        shapes = ", ".join(f"{k}{list(np.shape(v))}" for k, v in feed.items())
        given = shapes or "no inputs"
        raise VerificationError(f"{side.title} cannot run the model on {given}: {type(e).__name__}: {main_line(e)}") from e


def _chosen(name: str, derived: Tolerance | None, rtol: Tolerances, atol: Tolerances) -> Tolerance:
    """The user's numbers where given, the derived ones elsewhere."""

    def one(given: Tolerances) -> float | None:
        return given.get(name) if isinstance(given, Mapping) else given

    r, a = one(rtol), one(atol)
    if r is None and a is None and derived is not None:
        return derived
    fallback = derived or Tolerance(0.0, 0.0)
    return Tolerance(fallback.atol if a is None else a, fallback.rtol if r is None else r, origin="given")
