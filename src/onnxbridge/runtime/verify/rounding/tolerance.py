"""The tolerance of a verification, derived from the model: how far rounding alone can move each output.

The executor runs the hub model three times on the same inputs: in its own precision, in float64, and in float64 on inputs moved
by one unit in the last place. The distance between the runs is what rounding explains at each output for these inputs. If one of
the two models computes in lower precision, the hub model is also run a few times in simulated low precision: float16's error
accumulates over its own operators and is no multiple of float32's. Source and target take no part in this, so an error of a
conversion cannot widen its own tolerance.

Quantizing models: a rounding error before a quantization moves its result by a whole step or not at all, so one run says little
about another. Such a model is run with simulated noise of the full size that is allowed, and the distance is used unscaled.

Models that choose (TopK, NMS): rounding moves most elements a little and a few by any amount. Those that jump say nothing about
the others: they are counted, and as large a share may exceed the tolerance. Before such a model fails, it is run with noise of
the full size that is allowed: of two nearly equal scores either may come first, and where an element exceeds the tolerance, the
candidate must have a value that some run had.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import ConversionError, LimitError, OnnxbridgeError
from onnxbridge.runtime.executor.executor import Executor
from onnxbridge.runtime.executor.work import PER_SECOND
from onnxbridge.runtime.verify.compare import Tolerance
from onnxbridge.runtime.verify.rounding.simulate_precision import SimulatedPrecision
from onnxbridge.runtime.verify.samples.values_of_interest import values_of_interest

# Correct implementations sum in other orders (blocked, fused, Winograd) than our executor, each with its own error: the fastest
# convolution algorithms lose up to 15 times what direct summation loses.
ORDERS = 16
# Simulated low precision rounds after each ONNX operator; the real implementation may have several operators for one.
OPERATORS = 6
PRECISION_RUNS = 3
"""The number of runs in simulated low precision for each sample; fewer if they exceed `WORK`."""
QUANTIZED_RUNS = 12
"""The most runs of a quantizing model before it fails: a tie may be rounded the same way several times."""
CHOICE_RUNS = 8
"""The most runs of a choosing model before it fails: of two equal scores, half of the runs choose the other."""
# An element jumps if it moves JUMP times as far as the lowest decile of the elements that move, in the run that moves them least,
# and by more than these shares of itself and of the largest element.
JUMP, OF_ITSELF, OF_LARGEST = 32, 1 / 32, 1 / 256
# Elements MASKED times as large as 1 and as all others represent infinity, as in attention masks: float32 has 24 bits, so a sum
# with them leaves almost nothing of the others. They have a tolerance of their own.
MASKED = 2.0**20
# The share of elements that may differ is scaled up by ORDERS to at most this one, unless twice the measured share is larger.
FEW = 0.1
# Units in the last place that any output may differ by: a last division rounded otherwise, for example.
ULPS = 4
# Libraries compute Sigmoid as 1/2 plus a polynomial: near 0 its error is that of 1/2, however small the result.
_ERRORS_OF_ONE = frozenset({"Sigmoid"})
_ERROR_PRESERVING = frozenset({
    "Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Concat", "Split", "Gather", "Expand",
    "ReduceMean", "ReduceMax", "ReduceMin", "AveragePool", "GlobalAveragePool", "MaxPool", "GlobalMaxPool",
})  # fmt: skip
"""Operators that pass on their inputs without increasing the error."""
# With noise of the full allowed size, each of the two models may be as far off as the runs were.
MODELS = 2
_QUANTIZING = frozenset({"DynamicQuantizeLinear", "QuantizeLinear", "Round"})
_QUANTIZING_INSIDE = frozenset({"com.microsoft::DynamicQuantizeLSTM", "QLinearConv", "QLinearMatMul"})
"""Operators that quantize internally; they are decomposed so that noise is added inside."""
WORK = 12 * PER_SECOND
"""The budget in operations for measuring further samples; those beyond it use the largest distance so far. It is not in seconds:
the speed of a machine must not decide what passes."""

_CHOOSING = frozenset({"Ceil", "Floor", "Hardmax", "Sign"})
"""Operators with floating-point results that jump."""
_OF_SIZES = frozenset({"Shape", "Size"})

_FALLBACK = {2: (2e-3, 2e-2), 4: (1e-5, 1e-3), 8: (1e-9, 1e-7)}


@dataclass(frozen=True)
class _Noise:
    """What was measured of one output.

    Attributes:
        distance: the largest distance of an element, without those that jump.
        scale: the largest magnitude.
        share: the share of elements that jump or, in an integer output, that differ.
        masked: the largest relative distance of the elements that represent infinity.
        resized: whether the output's size depends on rounding.
    """

    distance: float = 0.0
    scale: float = 0.0
    share: float = 0.0
    masked: float = 0.0
    resized: bool = False

    def combined(self, other: _Noise) -> _Noise:
        return _Noise(*map(max, astuple(self), astuple(other)))


class Rounding:
    """Measures what rounding explains at each output of a hub model, sample by sample.

    `unit` is the unit roundoff of a lower precision in which one of the two models computes (2^-11 for float16), else None.

    Attributes:
        reason: why tolerances are a default, "" if they are derived.
        fault: an unexpected error of the executor on inputs on which both models run, "" if there was none.
        executors: run the model in its own precision and in float64; None where they have no rule for an operator.
        work_of_a_run: the operations of one run, 0 before any.
    """

    def __init__(self, model: ir.Model, unit: float | None = None) -> None:
        self._unit = unit
        self._quantizes = unit is None and any(map(_is_quantizing, model.graph.all_nodes()))
        self._has_choices = unit is None and not self._quantizes and any(map(_is_choice, model.graph.all_nodes()))
        self._simulated = SimulatedPrecision(unit) if unit else SimulatedPrecision(ORDERS * 2.0**-24) if self._quantizes else None
        self._work_spent = self._largest_work = self.work_of_a_run = 0
        self.executors: tuple[Executor, Executor] | None = None
        self._ran: deque[tuple[Mapping[str, Any], list[Any]]] = deque(maxlen=4)  # the last runs of `fit`
        self._errors_of_one = {v.name for v in model.graph.outputs if _has_errors_of_one(v)}
        self._rounding: dict[str, _Noise] = {}
        self._low_precision: dict[str, _Noise] = {}
        self._choices: dict[str, _Noise] = {}
        self._seen: dict[str, list[np.ndarray[Any, Any]]] = {}
        self._measured: list[Mapping[str, Any]] = []
        # an input that equals a constant of a comparison is not rounded, so it is not moved
        self._exact_inputs = {v.name or "": values_of_interest(v) for v in model.graph.inputs}
        self.reason = self.fault = ""
        self._incomplete: list[str] = []
        try:
            # without compiled kernels, so that their absence does not change a tolerance
            self._own = Executor(model, native=False)
            self._exact = Executor(model, precision="float64")
            self._noisy = Executor(model, expanded=_QUANTIZING_INSIDE, native=False) if self._quantizes else self._own
            self.executors = self._own, self._exact
        except ConversionError as e:
            names = ", ".join(sorted({p.op for p in e.problems})[:5])
            self.reason = f"the executor has no rule for {names}"

    def fit(self, feeds: Mapping[str, Any]) -> int:
        """How inputs of these sizes suit the model: 2 if it computes numbers, 1 if nothing or NaN, 0 if it fails.

        Raises:
            LimitError: if the run would take more than the executor's budget.
        """
        try:
            found = self._own.run(None, self._supplied(feeds))
        except OnnxbridgeError:
            raise
        except Exception:
            return 0
        self._ran.append((feeds, found))
        results = [np.asarray(r) for r in found]
        empty = any(not r.size or (r.dtype.kind == "f" and np.isnan(r).any()) for r in results)
        return 1 if empty else 2

    def measure(self, feeds: Mapping[str, Any]) -> None:
        """Run the model on these inputs and measure the distances.

        Raises:
            LimitError: if a run would take more than the executor's budget.
        """
        known = any(measured is feeds for measured in self._measured)
        if not known and not self.reason and not (self._rounding and self._work_spent + self._largest_work > WORK):
            self._measure(feeds)

    def share(self, feeds: Mapping[str, Any]) -> float:
        """The largest tolerance of a floating-point output for these inputs, as a share of the output's range, or the share of
        its elements that may exceed it if that is larger; infinite where it cannot be measured.

        Raises:
            LimitError: if a run would take more than the executor's budget.
        """
        self.measure(feeds)
        if self.reason:
            return float("inf")
        results = next((results for ran, results in self._ran if ran is feeds), [])
        shares = [0.0]
        for name, value in zip(self._own.output_names, map(np.asarray, results), strict=False):
            finite = value[np.isfinite(value)].astype(np.float64) if _epsilon(value.dtype) else np.zeros(0)
            if span := np.ptp(finite) if finite.size else 0.0:
                tolerance = self._tolerance(name, value)
                shares += [float(tolerance.atol / span), tolerance.mismatches]
        return max(shares)

    @property
    def simulates_precision(self) -> bool:
        """Whether a lower precision is simulated: of one of the two models, or because the model quantizes."""
        return self._simulated is not None

    @property
    def is_costly(self) -> bool:
        """Whether measuring a sample takes a large part of the budget, so that none should be measured on trial."""
        return self._largest_work > WORK / 12

    def forget(self) -> None:
        """Forget the distances that were measured, for other inputs than these."""
        for found in (self._rounding, self._low_precision, self._choices, self._seen, self._measured):
            found.clear()
        self.reason = self.fault = ""

    def remeasure(self, feeds: Mapping[str, Any]) -> bool:
        """Measure these inputs if the budget did not allow it before and, if the model chooses or quantizes, with noise of the
        full allowed size. For inputs on which the two models differ by more than the tolerance. Returns whether anything was
        measured.
        """
        if self.reason:
            return False
        new = not any(known is feeds for known in self._measured)
        try:
            if new:
                self._measure(feeds)
            if self._has_choices and not self.reason:
                self._rerun_choices(feeds)
            if self._quantizes and not self.reason:
                self._rerun_quantized(feeds)
        except LimitError as e:
            self._incomplete.append(f"rounding was not measured again where the models differ: {e}")
            return False
        measured, self.reason = not self.reason and (new or self._has_choices or self._quantizes), ""
        return measured

    def _rerun_quantized(self, feeds: Mapping[str, Any]) -> None:
        """Run a quantizing model more often: of two quantized values next to a number, a few runs may all choose one."""
        supplied, noisy = self._supplied(feeds), SimulatedPrecision(ORDERS * 2.0**-24, seed=1)
        exact = self._exact.run(None, supplied)
        start = self._work()
        for count in range(QUANTIZED_RUNS):
            if count and self._work() - start > WORK / 2:
                break
            run = self._noisy.run(None, supplied, simulated=noisy)
            for name, a, b in zip(self._own.output_names, exact, run, strict=True):
                self._low_precision[name] = _noise(a, [b], True).combined(self._low_precision.get(name, _Noise()))

    def _rerun_choices(self, feeds: Mapping[str, Any]) -> None:
        supplied, noisy = self._supplied(feeds), SimulatedPrecision(ORDERS * 2.0**-24, single=True)
        exact = self._exact.run(None, supplied)
        self._choices, self._seen = {}, {}
        start = self._work()
        for count in range(CHOICE_RUNS):
            if count and self._work() - start > WORK / 2:
                break
            try:
                run = self._own.run(None, supplied, simulated=noisy)
            except OnnxbridgeError:
                raise
            except Exception as e:  # a choice with an empty result, for example
                self._incomplete.append(f"{count} of {CHOICE_RUNS} runs with other choices were measured: {_described(e)}")
                break
            for name, a, b in zip(self._own.output_names, exact, run, strict=True):
                self._choices[name] = _noise(a, [b]).combined(self._choices.get(name, _Noise()))
                self._seen.setdefault(name, []).extend(np.asarray(v).reshape(-1) for v in (a, b))

    def _measure(self, feeds: Mapping[str, Any]) -> None:
        start = self._work()
        rng = np.random.default_rng(0)
        supplied = self._supplied(feeds)
        moved = {k: _moved(np.asarray(v), rng, self._exact_inputs.get(k, ())) for k, v in supplied.items()}
        try:
            known = next((results for ran, results in self._ran if ran is feeds), None)
            before = self._exact.work
            runs = [known or self._own.run(None, supplied), self._exact.run(None, supplied)]
            self._ran.append((feeds, runs[0]))
            self.work_of_a_run = max(self.work_of_a_run, self._exact.work - before)
            if self._simulated is None:
                runs.append(self._exact.run(None, moved))
            low_precision_runs: list[Any] = []
            for count in range(PRECISION_RUNS if self._simulated else 0):
                if count and self._work() - start >= WORK / 2:
                    break
                low_precision_runs.append(self._noisy.run(None, supplied, simulated=self._simulated))
        except OnnxbridgeError:
            raise
        except Exception as e:  # the two models will show whether the inputs are wrong
            self.reason = self.fault = f"the executor fails with {_described(e)}"
            return
        for i, name in enumerate(self._own.output_names):
            own, exact, *near = (run[i] for run in runs)
            self._rounding[name] = _noise(exact, [own, *near], self._quantizes).combined(self._rounding.get(name, _Noise()))
            low_precision = _noise(exact, [run[i] for run in low_precision_runs], self._quantizes)
            self._low_precision[name] = low_precision.combined(self._low_precision.get(name, _Noise()))
        self._measured.append(feeds)
        work = self._work() - start
        self._work_spent, self._largest_work = self._work_spent + work, max(self._largest_work, work)

    @property
    def work(self) -> int:
        """The number of operations so far."""
        return self._work() if self.executors is not None else 0

    def _work(self) -> int:
        return sum(executor.work for executor in {self._own, self._exact, self._noisy})

    def _supplied(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in feeds.items() if k in self._own.input_names}

    def tolerances(self, references: Mapping[str, Any]) -> dict[str, Tolerance]:
        """One tolerance for each output of the reference, from all samples measured so far."""
        return {name: self._tolerance(name, np.asarray(r)) for name, r in references.items()}

    def notes(self) -> list[str]:
        """Notes on outputs whose size depends on rounding, and on what could not be measured."""
        measured = (self._rounding, self._low_precision, self._choices)
        resized = list(dict.fromkeys(name for found in measured for name, noise in found.items() if noise.resized))
        sizes = [f"the size of {', '.join(resized)} depends on rounding; try other inputs"] if resized else []
        return sizes + self._incomplete

    def _tolerance(self, name: str, reference: np.ndarray[Any, Any]) -> Tolerance:
        eps = _epsilon(reference.dtype)
        if self.reason or name not in self._rounding:
            atol, rtol = _FALLBACK.get(reference.dtype.itemsize, _FALLBACK[4]) if eps else (0.0, 0.0)
            return Tolerance(atol, rtol, origin=f"default, since {self.reason or 'the output is not one of the hub model'}")
        rounding, low_precision = self._rounding[name], self._low_precision.get(name, _Noise())
        choices = min(MODELS * self._choices.get(name, _Noise()).share, 1.0)
        seen = np.unique(np.concatenate(self._seen[name]).astype(np.float64)) if choices else np.zeros(0)
        share = min(max(2 * rounding.share, 2 * low_precision.share, min(ORDERS * rounding.share, FEW)), 1.0)
        if not eps:
            return Tolerance(0.0, 0.0, mismatches=share, origin="derived", choices=choices, seen=seen)
        scale = max(rounding.scale, 1.0) if name in self._errors_of_one else rounding.scale
        # a model of lower precision rounds its last operator by more, too
        last_operator = ULPS * max(eps, 2 * self._unit if self._unit else 0.0)
        distance = max(ORDERS * rounding.distance, OPERATORS * low_precision.distance)
        if self._quantizes:
            distance = MODELS * max(rounding.distance, low_precision.distance)
        rtol = max(last_operator, ORDERS * rounding.masked, OPERATORS * low_precision.masked)
        return Tolerance(distance + last_operator * scale, rtol, share, "derived", choices, seen)


def depends_on_ties(model: ir.Model) -> bool:
    """Whether the model quantizes or chooses, so that its tolerance is measured anew where two models differ."""
    return any(_is_quantizing(node) or _is_choice(node) for node in model.graph.all_nodes())


def _is_quantizing(node: ir.Node) -> bool:
    """Whether a node quantizes or rounds to integers."""
    kind = node.op_type
    return kind in _QUANTIZING or kind.startswith(("QLinear", "QGemm", "QAttention", "DynamicQuantize"))


def _is_choice(node: ir.Node) -> bool:
    """Whether a node compares numbers or rounds them to integers, so that a small error can change the result entirely."""
    if node.op_type in _CHOOSING or node.op_type in _QUANTIZING:
        return True
    floating = any(v is not None and v.dtype is not None and v.dtype.is_floating_point() for v in node.inputs)
    others = [v for v in node.outputs if v.dtype is not None and not v.dtype.is_floating_point()]
    return floating and bool(others) and node.op_type not in _OF_SIZES


def _has_errors_of_one(value: ir.Value) -> bool:
    """Whether the value is the result of Sigmoid, or a mean or selection of such results: its error does not shrink with it."""
    todo, seen = [value], {value}
    while todo:
        found = todo.pop()
        node = found.producer()
        if node is None:
            continue
        if node.op_type in _ERRORS_OF_ONE:
            return True
        before: list[ir.Value | None] = []
        if node.op_type in _ERROR_PRESERVING:
            before = list(node.inputs)
        elif node.op_type == "If":
            before = [a.as_graph().outputs[found.index()] for a in node.attributes.values()]  # type: ignore[index]
        todo += [v for v in dict.fromkeys(before) if v is not None and v not in seen]
        seen.update(todo)
    return False


def _described(error: Exception) -> str:
    """An error's type and the first line of its message."""
    return f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"


def _epsilon(dtype: np.dtype[Any]) -> float:
    """The distance from 1 to the next number of the dtype, 0 for exact dtypes."""
    if dtype.kind in "biuUSO":
        return 0.0
    import ml_dtypes

    return float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]


def _moved(array: np.ndarray[Any, Any], rng: np.random.Generator, exact: Sequence[Any] = ()) -> np.ndarray[Any, Any]:
    """Floating-point inputs moved up or down by half of eps, as float64, except numbers in `exact`."""
    eps = _epsilon(array.dtype)
    if not eps:
        return array
    wide = array.astype(np.float64)
    moved = wide * (1 + eps * rng.choice([-0.5, 0.5], wide.shape))
    return np.asarray(np.where(np.isin(wide, np.asarray(exact, np.float64)), wide, moved) if len(exact) else moved)


def _noise(exact: Any, others: Sequence[Any], whole: bool = False) -> _Noise:
    """The distance of other runs from the exact one; with `whole`, elements that jump count as others do."""
    a = np.asarray(exact)
    runs = [np.asarray(other) for other in others]
    found = _Noise(resized=any(run.shape != a.shape for run in runs))
    runs = [run for run in runs if run.shape == a.shape]
    if not a.size or not runs:
        return found
    if a.dtype == bool or a.dtype.kind in "USOiu":
        return found.combined(_Noise(share=max(float(np.mean(a != run)) for run in runs)))
    a = a.astype(np.float64).reshape(-1)
    with np.errstate(invalid="ignore"):
        distances = [np.abs(a - run.astype(np.float64).reshape(-1)) for run in runs]
    masked = _masked(np.abs(a))
    for d in distances:
        with np.errstate(invalid="ignore"):
            relative = d[masked] / np.abs(a[masked])
        chosen = (relative > OF_ITSELF) & (not whole)  # whether it is masked depends on rounding
        still = relative[~chosen & np.isfinite(relative)].max(initial=0.0)
        found = found.combined(_Noise(share=float(chosen.sum()) / masked.size, masked=float(still)))
    a, distances = a[~masked], [d[~masked] for d in distances]
    scale = float(np.abs(a[np.isfinite(a)]).max(initial=0.0))
    found = found.combined(_Noise(scale=scale))
    moved_at = [np.flatnonzero(np.isfinite(d) & (d > 0)) for d in distances]
    usual = min((float(np.quantile(d[at], 0.1)) for d, at in zip(distances, moved_at, strict=True) if at.size), default=0.0)
    for d, at in zip(distances, moved_at, strict=True):
        moved = d[at]
        jumps = (moved > JUMP * usual) & (moved > OF_ITSELF * np.abs(a[at])) & (moved > OF_LARGEST * scale) & (not whole)
        found = found.combined(_Noise(float(moved[~jumps].max(initial=0.0)), scale, float(jumps.sum()) / masked.size))
    return found


def _masked(sizes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Which elements represent infinity."""
    ordered = np.unique(sizes[np.isfinite(sizes)])
    beyond = np.flatnonzero(ordered[1:] >= MASKED * np.maximum(ordered[:-1], 1.0))
    return sizes >= ordered[beyond[0] + 1] if beyond.size else np.zeros(sizes.shape, bool)
