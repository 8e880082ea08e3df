"""Measures what a verification would have caught: planted faults are run on its own samples under its own tolerances."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import ConversionError
from onnxbridge.hub.ir.schemas import array_of
from onnxbridge.runtime.executor.executor import Executor
from onnxbridge.runtime.executor.rerun import Variant
from onnxbridge.runtime.executor.work import ELEMENT, PER_SECOND
from onnxbridge.runtime.mutation.choice import spread
from onnxbridge.runtime.mutation.fault import Change, ConstantChanged, Fault
from onnxbridge.runtime.mutation.faults import faults_of
from onnxbridge.runtime.mutation.sensitivity import Sensitivity
from onnxbridge.runtime.mutation.weights import SCALE
from onnxbridge.runtime.verify.compare import Tolerance, compare, result_array

MUTANTS = 50
"""The most faults that are planted by default."""
FEWEST = PER_SECOND // 20
"""The operations that planted faults may always take: a twentieth of a second."""
MEMORY = 512 << 20
"""The bytes that values of variants may take at once, unless one variant alone takes more."""
FIRST_BATCH, MOST_AT_ONCE = 4, 16
FIRST_SHARE = 0.65
"""The share of the operations that is for the first sample; the rest is for the faults that it does not show."""
ALWAYS_TRIED = 4
"""So many of the faults that it does not show are tried on the others and in float64 whatever that takes."""
PASSES = 4
"""So many times a weight is read or written to be changed."""
MOST_SAMPLES = 3
"""The most samples that faults are run on."""
MOST_TRIED = 4
"""Of so many times the faults to plant, those are looked for that the operations allow."""
NEGLIGIBLE = float(np.finfo(np.float32).eps)
"""A fault that moves no output by more than this share of the output's magnitude in float64 changes nothing."""
_OF_WEIGHTS = frozenset({"weight scaled", "weight zeroed", "channel zeroed"})

Feeds = Mapping[str, Any]


@dataclass(frozen=True)
class Sample:
    """The inputs of one sample, and the tolerance of each output that was compared on it."""

    feeds: Feeds
    tolerances: Mapping[str, Tolerance]


@dataclass(frozen=True)
class Executors:
    """Run the model: in its own precision, and in float64. `work` are the operations of a run, 0 if that is not known."""

    own: Executor
    exact: Executor
    work: int = 0


def measure(
    model: ir.Model, executors: Executors, samples: Sequence[Sample], fresh: Callable[[], Sequence[Feeds]], *,
    mutants: int | None = None, work: int = 0,
) -> Sensitivity | None:  # fmt: skip
    """Plant faults in the hub model and count those that a comparison of these samples would have caught.

    Each fault is run on the first sample, those missed on the next ones, and those missed on all of them in float64 on fresh
    samples, which show whether they change anything. Where `work` does not allow that for all that the first sample misses, the
    last faults are not counted at all, those that it shows included, so that the share stays right.

    Args:
        fresh: draws other samples, none where that is not possible.
        mutants: how many faults to plant, whatever that takes; None for as many as `work` allows, at most `MUTANTS`.
        work: the operations that this may take, `FEWEST` at least. They are counted, not timed, so that every machine finds the
            same.

    Returns:
        None where no fault is planted.
    """
    faults = faults_of(model.graph)
    if not faults or not samples or mutants == 0:
        return None
    budget = np.inf if mutants else float(max(work, FEWEST))
    first, *others = samples[:MOST_SAMPLES]
    own = _Planter(model, executors.own, executors.work)
    visible = own.spread_over(faults, first, mutants or MUTANTS, FIRST_SHARE * budget)
    missed = [f for f, seen in visible.items() if seen <= 1]
    drawn = fresh() if missed else []
    tried = own.affordable(missed, (budget - own.spent) / max(len(others) + len(drawn), 1))
    for fault in _after(visible, missed[len(tried) :]):
        del visible[fault]
    missed = tried
    for sample in others:
        for fault, seen in own.seen(missed, sample).items():
            visible[fault] = max(visible[fault], seen)
        missed = [f for f in missed if visible[f] <= 1]
    exact = _Planter(model, executors.exact, own.own_cost)
    equivalent, unreached = exact.without_effect(missed, drawn) if drawn else ([], [])
    silent = {*equivalent, *unreached}
    planted = [f for f in visible if f not in silent]
    if not planted and not unreached:
        return None
    errors = [(SCALE - 1) / visible[f] if visible[f] else np.inf for f in planted if f.kind == "weight scaled"]
    median = float(np.median(errors)) if errors else np.inf
    smallest = median if 0 < median < np.inf else None
    missed = [f for f in missed if f not in silent]
    return Sensitivity(len(planted), tuple(missed), tuple(unreached), smallest, len(equivalent), len(faults))


class _Planter:
    """Runs faults beside the model that they are planted in.

    Attributes:
        spent: the operations so far.
    """

    def __init__(self, model: ir.Model, executor: Executor, work: int) -> None:
        self._nodes = {node.outputs[0].name: node for node in model.graph if node.outputs}
        self._names, self._inputs = executor.output_names, executor.input_names
        self._rerunner = executor.rerunner(work)
        self.spent = 0

    @property
    def own_cost(self) -> int:
        """The operations of one run of the model."""
        return self._rerunner.own_cost

    def affordable(self, faults: Sequence[Fault], budget: float) -> list[Fault]:
        """As many of the first faults as the budget allows, `ALWAYS_TRIED` at least."""
        costs = itertools.accumulate(map(self._cost, faults), initial=self.own_cost)
        return [f for i, (f, cost) in enumerate(zip(faults, itertools.islice(costs, 1, None), strict=True))
                if i < ALWAYS_TRIED or cost <= budget]  # fmt: skip

    def spread_over(self, faults: Sequence[Fault], sample: Sample, many: int, budget: float) -> dict[Fault, float]:
        """How visible faults are on a sample, of as many as the budget allows."""
        found: dict[Fault, float] = {}
        queue = itertools.islice(spread(faults), MOST_TRIED * many)
        while batch := self._batch(queue, many - len(found), budget - self.spent):
            found |= self.seen(batch, sample)
        return found

    def seen(self, faults: Sequence[Fault], sample: Sample) -> dict[Fault, float]:
        """How visible each fault is on a sample: the largest difference in units of what is allowed; caught if above 1."""
        runs = self._runs(faults, sample.feeds)
        return {f: np.inf if changed is None else self._visibility(own, changed, sample) for f, own, changed in runs}

    def without_effect(self, faults: Sequence[Fault], samples: Sequence[Feeds]) -> tuple[list[Fault], list[Fault]]:
        """The faults that move no output by more than float32 rounds on any of the samples, in two lists.

        The second has the weights that make no difference at all to numbers: the samples do not reach them, but others may.
        """
        moved = dict.fromkeys(faults, 0.0)
        for feeds in samples:
            left = [f for f in faults if moved[f] <= NEGLIGIBLE]
            try:
                for fault, own, changed in self._runs(left, feeds):
                    moved[fault] = max(moved[fault], np.inf if changed is None else _moved(own, changed))
            except Exception:  # drawn inputs may not suit the model
                return [], []
        silent = [f for f in faults if moved[f] <= NEGLIGIBLE]
        unreached = [f for f in silent if not moved[f] and self._may_be_unreached(f)]
        return [f for f in silent if f not in unreached], unreached

    def _may_be_unreached(self, fault: Fault) -> bool:
        node = self._nodes[fault.value]
        return fault.kind in _OF_WEIGHTS and not _is_zero(node, fault.change) and _reaches_numbers(node)

    def _at_once(self) -> int:
        """How many variants run beside the model."""
        if not self._rerunner.peak:
            return FIRST_BATCH
        return max(1, min(MOST_AT_ONCE, MEMORY // self._rerunner.peak))

    def _batch(self, queue: Iterator[Fault], most: int, budget: float) -> list[Fault]:
        """The next faults of the queue; those that the budget does not allow are left out."""
        batch: list[Fault] = []
        cost = self.own_cost
        most = min(most, self._at_once())
        while len(batch) < most and (fault := next(queue, None)) is not None:
            if cost + self._cost(fault) <= budget:
                batch.append(fault)
                cost += self._cost(fault)
        return batch

    def _cost(self, fault: Fault) -> int:
        """The operations of a run with the fault, at most."""
        outputs = (str(v.name) for v in self._nodes[fault.value].outputs if v.name)
        return _cost_of_change(self._nodes[fault.value], fault) + self._rerunner.cost(outputs)

    def _runs(self, faults: Sequence[Fault], feeds: Feeds) -> Iterator[tuple[Fault, list[Any], list[Any] | None]]:
        """Each fault with the outputs of the model and its own, None where it fails. Those that the executor has no rule for are
        left out."""
        supplied = {k: v for k, v in feeds.items() if k in self._inputs}
        at_once = self._at_once()
        for start in range(0, len(faults), at_once):
            batch: dict[Fault, Variant] = {}
            for fault in faults[start : start + at_once]:
                self.spent += _cost_of_change(self._nodes[fault.value], fault)
                with contextlib.suppress(ConversionError):
                    batch[fault] = self._rerunner.variant(fault.changed_node(self._nodes[fault.value]))
            results = self._rerunner.run(list(batch.values()), supplied)
            self.spent += results.work
            for fault, changed in zip(batch, results.variants, strict=True):
                yield fault, results.outputs, None if isinstance(changed, Exception) else changed

    def _visibility(self, own: Sequence[Any], changed: Sequence[Any], sample: Sample) -> float:
        found = 0.0
        for name, a, b in zip(self._names, own, changed, strict=True):
            tolerance = sample.tolerances.get(name)
            if tolerance is not None and a is not b:
                found = max(found, _visibility(name, a, b, tolerance))
        return found


def _cost_of_change(node: ir.Node, fault: Fault) -> int:
    """The operations that copying and changing a constant takes."""
    value = node.inputs[fault.change.index] if isinstance(fault.change, ConstantChanged) else None
    return 0 if value is None or value.const_value is None else PASSES * ELEMENT * value.const_value.size


def _after(faults: Iterable[Fault], some: Sequence[Fault]) -> list[Fault]:
    """The faults from the first of `some` on."""
    return list(itertools.dropwhile(lambda fault: fault is not some[0], faults)) if some else []


def _visibility(name: str, own: Any, changed: Any, tolerance: Tolerance) -> float:
    """The largest difference of an output in units of what is allowed; at most 1 if the comparison would pass, else more."""
    passed = compare(name, own, changed, tolerance).passed
    a, b = result_array(own), result_array(changed)
    if a.shape != b.shape or a.dtype != b.dtype or a.dtype.kind in "USObiu":
        return 0.0 if passed else np.inf
    a, b = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(all="ignore"):
        shares = np.abs(a - b) / (tolerance.atol + tolerance.rtol * np.abs(a))
    largest = float(np.nanmax(np.where(a == b, 0.0, shares), initial=0.0))
    return min(largest, 1.0) if passed else max(largest, np.nextafter(1.0, 2.0))


def _is_zero(node: ir.Node, change: Change) -> bool:
    """Whether the changed constant is zero throughout, so that it stays what it is."""
    value = node.inputs[change.index] if isinstance(change, ConstantChanged) else None
    return value is not None and value.const_value is not None and not np.any(array_of(value.const_value))


def _reaches_numbers(node: ir.Node) -> bool:
    """Whether an output that depends on a node is floating-point."""
    todo, seen = [node], {node}
    while todo:
        for value in todo.pop().outputs:
            if value.is_graph_output() and (value.dtype is None or value.dtype.is_floating_point()):
                return True
            after = [user if user.graph is node.graph else None for user, _ in value.uses()]
            if None in after:  # inside a branch or a loop
                return True
            new = [user for user in after if user is not None and user not in seen]
            seen.update(new)
            todo += new
    return False


def _moved(own: Sequence[Any], changed: Sequence[Any]) -> float:
    """The largest difference of an output as a share of its magnitude, infinity where it is of another kind."""
    found = 0.0
    for a, b in zip(map(result_array, own), map(result_array, changed), strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return np.inf
        if a.dtype.kind not in "fc":
            found = np.inf if np.any(a != b) else found
            continue
        with np.errstate(invalid="ignore"):
            difference = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b)).max(initial=0.0)
        if not difference:
            continue
        scale = np.abs(a[np.isfinite(a)]).max(initial=0.0)
        found = max(found, float(difference / scale) if scale and np.isfinite(difference) else np.inf)
    return found
