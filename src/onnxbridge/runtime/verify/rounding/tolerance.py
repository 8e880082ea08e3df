"""The tolerance of a verification, derived from the model: how far rounding alone can move each output.

The executor runs the hub model three times on the same inputs: in its own precision, in float64, and in float64 on inputs moved
by one unit in the last place. The distance between the runs is what rounding explains at each output for these inputs. If one of
the two models computes in lower precision, the hub model is also run a few times in simulated low precision: float16's error
accumulates over its own operators and is no multiple of float32's. Source and target take no part in this, so an error of a
conversion cannot widen its own tolerance.

Models with long sums (a pooling over a whole image) are also run in their own precision with these added one element after the
other, as some libraries do: of 50,000 numbers, the error is then a hundred times that of the executor, which adds in pairs.

Quantizing models: a rounding error before a quantization moves its result by a whole step or not at all, so one run says little
about another. Such a model is run with simulated noise of the full size that is allowed, and the distance is used unscaled.
Kernels that compute with integers, as TensorFlow Lite's, are further from the numbers that they quantize than floating point is.

Models that choose (TopK, NMS): rounding moves most elements a little and a few by any amount. Those that jump say nothing about
the others: they are counted, and as large a share may exceed the tolerance. Before such a model fails, it is run with noise of
the full size that is allowed: of two nearly equal scores either may come first, and where an element exceeds the tolerance, the
candidate must have a value that some run had.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import ConversionError, LimitError, OnnxbridgeError
from onnxbridge.runtime.executor.executor import Executor
from onnxbridge.runtime.executor.numpy.sums import watching_sums
from onnxbridge.runtime.executor.work import PER_SECOND
from onnxbridge.runtime.verify.compare import Tolerance, result_array
from onnxbridge.runtime.verify.rounding.derive_tolerance import ORDERS, default_tolerance, derived_tolerance
from onnxbridge.runtime.verify.rounding.noise import Noise, epsilon, moved_by_rounding, noise_between
from onnxbridge.runtime.verify.rounding.quantized_means import with_inexact_means
from onnxbridge.runtime.verify.rounding.sensitive_operators import (
    QUANTIZING_INSIDE,
    has_errors_of_one,
    is_choice,
    is_quantized,
    is_quantizing,
)
from onnxbridge.runtime.verify.rounding.simulate_precision import SimulatedPrecision
from onnxbridge.runtime.verify.rounding.ties import with_other_ties
from onnxbridge.runtime.verify.samples.input_uses import rounds_down
from onnxbridge.runtime.verify.samples.values_of_interest import values_of_interest

PRECISION_RUNS = 3
"""The number of runs in simulated low precision for each sample; fewer if they exceed `WORK`."""
QUANTIZED_RUNS = 12
"""The most runs of a quantizing model before it fails: a tie may be rounded the same way several times."""
TIE_RUNS = 3
"""The runs of a model that fails with other choices among equal scores."""
CHOICE_RUNS = 8
"""The most runs of a choosing model before it fails: of two equal scores, half of the runs choose the other."""
WORK = 12 * PER_SECOND
"""The budget in operations for measuring further samples; those beyond it use the largest distance so far. It is not in seconds:
the speed of a machine must not decide what passes."""


class Rounding:
    """Measures what rounding explains at each output of a hub model, sample by sample.

    `unit` is the unit roundoff of a lower precision in which one of the two models computes (2^-11 for float16), else None.
    `quantized_unit` is how far one of them is, relatively, from the numbers that it quantizes, if it computes with integers.

    Attributes:
        reason: why tolerances are a default, "" if they are derived.
        fault: an unexpected error of the executor on inputs on which both models run, "" if there was none.
        executors: run the model in its own precision and in float64; None where they have no rule for an operator.
        work_of_a_run: the operations of one run, 0 before any.
    """

    def __init__(self, model: ir.Model, unit: float | None = None, quantized_unit: float | None = None) -> None:
        self._unit, self._quantized_unit = unit, quantized_unit or ORDERS * 2.0**-24
        self._quantizes = unit is None and any(map(is_quantizing, model.graph.all_nodes()))
        self._has_choices = unit is None and not self._quantizes and any(map(is_choice, model.graph.all_nodes()))
        simulated = unit or (self._quantized_unit if self._quantizes else None)
        self._simulated = None if simulated is None else SimulatedPrecision(simulated)
        self._work_spent = self._largest_work = self.work_of_a_run = 0
        self.executors: tuple[Executor, Executor] | None = None
        self._ran: deque[tuple[Mapping[str, Any], list[Any]]] = deque(maxlen=4)  # the last runs of `fit`
        self._errors_of_one = {v.name for v in model.graph.outputs if has_errors_of_one(v)}
        self._quantized = {v.name for v in model.graph.outputs if self._quantizes and is_quantized(v)}
        self._rounding: dict[str, Noise] = {}
        self._has_long_sums = False
        self._in_sequence: dict[str, Noise] = {}
        self._low_precision: dict[str, Noise] = {}
        self._choices: dict[str, Noise] = {}
        self._seen: dict[str, list[np.ndarray[Any, Any]]] = {}
        self._ties: dict[str, float] = {}
        self._model = model
        self._measured: list[Mapping[str, Any]] = []
        # an input that equals a constant of a comparison is not rounded, so it is not moved; nor are indices, in any dtype
        self._exact_inputs = {v.name or "": values_of_interest(v) for v in model.graph.inputs}
        floating = [v for v in model.graph.inputs if v.dtype is not None and v.dtype.is_floating_point()]
        self._indices = {v.name for v in floating if rounds_down(v)}
        self.reason = self.fault = ""
        self._incomplete: list[str] = []
        try:
            # without compiled kernels, so that their absence does not change a tolerance
            self._own = Executor(model, native=False)
            self._exact = Executor(model, precision="float64")
            noisy = with_inexact_means(model) if quantized_unit else model
            self._noisy = Executor(noisy, expanded=QUANTIZING_INSIDE, native=False) if self._quantizes else self._own
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
            found = self._run(feeds)
        except OnnxbridgeError:
            raise
        except Exception:
            return 0
        self._ran.append((feeds, found))
        results = [result_array(r) for r in found]
        empty = any(not r.size or (r.dtype.kind == "f" and np.isnan(r).any()) for r in results)
        return 1 if empty else 2

    def _run(self, feeds: Mapping[str, Any]) -> list[Any]:
        """The outputs in the model's own precision."""
        with watching_sums() as sums:
            found = self._own.run(None, self._supplied(feeds))
        self._has_long_sums |= sums.long
        return found

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
        for name, value in zip(self._own.output_names, map(result_array, results), strict=False):
            finite = value[np.isfinite(value)].astype(np.float64) if epsilon(value.dtype) else np.zeros(0)
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
        noise = (self._rounding, self._in_sequence, self._low_precision, self._choices)
        for found in (*noise, self._seen, self._ties, self._measured):
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
                self._rerun_ties(feeds)
            if self._quantizes and not self.reason:
                self._rerun_quantized(feeds)
        except LimitError as e:
            self._incomplete.append(f"rounding was not measured again where the models differ: {e}")
            return False
        measured, self.reason = not self.reason and (new or self._has_choices or self._quantizes), ""
        return measured

    def _rerun_quantized(self, feeds: Mapping[str, Any]) -> None:
        """Run a quantizing model more often: of two quantized values next to a number, a few runs may all choose one."""
        supplied, noisy = self._supplied(feeds), SimulatedPrecision(self._quantized_unit, seed=1)
        exact = self._exact.run(None, supplied)
        start = self._work()
        for count in range(QUANTIZED_RUNS):
            if count and self._work() - start > WORK / 2:
                break
            run = self._noisy.run(None, supplied, simulated=noisy)
            for name, a, b in zip(self._own.output_names, exact, run, strict=True):
                self._low_precision[name] = noise_between(a, [b], True).combined(self._low_precision.get(name, Noise()))

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
                self._choices[name] = noise_between(a, [b]).combined(self._choices.get(name, Noise()))
                self._seen.setdefault(name, []).extend(result_array(v).reshape(-1) for v in (a, b))

    def _rerun_ties(self, feeds: Mapping[str, Any]) -> None:
        """Measure the share of elements that other choices among equal numbers change; no rounding error tells these apart."""
        supplied, names = self._supplied(feeds), self._own.output_names
        usual = self._own.run(None, supplied)
        found: dict[str, np.ndarray[Any, Any]] = {}
        start = self._work()
        for seed in range(TIE_RUNS):
            other = with_other_ties(self._model, seed)
            if other is None or (seed and self._work() - start > WORK / 2):
                break
            try:
                run = Executor(other, native=False).run(None, supplied)
            except OnnxbridgeError:
                raise
            except Exception as e:
                self._incomplete.append(f"other choices among equal scores were not measured: {_described(e)}")
                break
            for name, a, b in zip(names, map(result_array, usual), map(result_array, run), strict=True):
                if a.shape == b.shape and a.size:
                    differs = np.asarray(a != b) & ~(np.asarray(a != a) & np.asarray(b != b))  # NaN in both is the same
                    found[name] = found.get(name, np.zeros(a.shape, bool)) | differs
        for name, differs in found.items():
            self._ties[name] = max(self._ties.get(name, 0.0), float(differs.mean()))

    def _measure(self, feeds: Mapping[str, Any]) -> None:
        start = self._work()
        rng = np.random.default_rng(0)
        supplied = self._supplied(feeds)
        moved = {k: self._moved(k, v, rng) for k, v in supplied.items()}
        try:
            known = next((results for ran, results in self._ran if ran is feeds), None)
            before = self._exact.work
            runs = [known or self._run(feeds), self._exact.run(None, supplied)]
            self._ran.append((feeds, runs[0]))
            self.work_of_a_run = max(self.work_of_a_run, self._exact.work - before)
            if self._simulated is None:
                runs.append(self._exact.run(None, moved))
            sequential_runs: list[Any] = []
            if self._has_long_sums:
                with watching_sums(in_sequence=True):
                    sequential_runs.append(self._own.run(None, supplied))
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
            self._rounding[name] = noise_between(exact, [own, *near], self._quantizes).combined(self._rounding.get(name, Noise()))
            in_sequence = noise_between(exact, [run[i] for run in sequential_runs], self._quantizes)
            self._in_sequence[name] = in_sequence.combined(self._in_sequence.get(name, Noise()))
            low_precision = noise_between(exact, [run[i] for run in low_precision_runs], self._quantizes)
            self._low_precision[name] = low_precision.combined(self._low_precision.get(name, Noise()))
        self._measured.append(feeds)
        work = self._work() - start
        self._work_spent, self._largest_work = self._work_spent + work, max(self._largest_work, work)

    def results(self, feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        """The executor's outputs for these inputs, in the model's own precision; none where it cannot run the model."""
        known = next((results for ran, results in self._ran if ran is feeds), None)
        if known is None and self.executors is not None:
            try:
                known = self._run(feeds)
            except Exception:  # why it cannot is said beside the tolerance
                known = None
        return {} if known is None else dict(zip(self._own.output_names, known, strict=True))

    @property
    def work(self) -> int:
        """The number of operations so far."""
        return self._work() if self.executors is not None else 0

    def _work(self) -> int:
        return sum(executor.work for executor in {self._own, self._exact, self._noisy})

    def _moved(self, name: str, value: Any, rng: np.random.Generator) -> Any:
        if isinstance(value, (list, tuple)):
            return [self._moved(name, item, rng) for item in value]
        return moved_by_rounding(np.asarray(value), rng, self._exact_elements(name, value))

    def _exact_elements(self, name: str, value: Any) -> list[Any]:
        """The numbers in an input that rounding does not move."""
        exact = list(self._exact_inputs.get(name, ()))
        if name in self._indices:
            numbers = np.unique(np.asarray(value))
            exact += numbers[numbers == np.floor(numbers)].tolist()
        return exact

    def _supplied(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in feeds.items() if k in self._own.input_names}

    def tolerances(self, references: Mapping[str, Any]) -> dict[str, Tolerance]:
        """One tolerance for each output of the reference, from all samples measured so far."""
        return {name: self._tolerance(name, result_array(r)) for name, r in references.items()}

    def notes(self) -> list[str]:
        """Notes on outputs whose size depends on rounding, and on what could not be measured."""
        measured = (self._rounding, self._low_precision, self._choices)
        resized = list(dict.fromkeys(name for found in measured for name, noise in found.items() if noise.resized))
        sizes = [f"the size of {', '.join(resized)} depends on rounding; try other inputs"] if resized else []
        return sizes + self._incomplete

    def _tolerance(self, name: str, reference: np.ndarray[Any, Any]) -> Tolerance:
        if self.reason or name not in self._rounding:
            return default_tolerance(reference.dtype, self.reason or "the output is not one of the hub model")
        return derived_tolerance(
            reference.dtype,
            self._rounding[name],
            self._in_sequence.get(name, Noise()),
            self._low_precision.get(name, Noise()),
            self._choices.get(name, Noise()),
            self._seen.get(name, []),
            unit=self._unit,
            quantizes=self._quantizes,
            has_errors_of_one=name in self._errors_of_one,
            is_quantized=name in self._quantized,
            ties=self._ties.get(name, 0.0),
        )


def _described(error: Exception) -> str:
    """An error's type and the first line of its message."""
    return f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"
