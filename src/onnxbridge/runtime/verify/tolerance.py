"""The tolerance of a verification, derived from the model: how far rounding alone can move each output.

The hub model is run three times on the same inputs: in its own precision, in float64, and in float64 on inputs moved by one unit
in the last place. How far the runs lie apart is what rounding explains, at that output, for those inputs. Where one side computes
in coarser numbers, the model is run in such numbers too, a few times: float16's noise is that of its own rounding, step by step,
and not a multiple of what float32 lost. Source and target are never asked, so an error in a conversion cannot widen its own
tolerance.

Where the model rounds to codes, what rounding moved a little before a code moves it by the whole of one, or by nothing: no run
shows what another one has lost. Such a model is run with all the noise that is granted, so that codes change as they may, and
what comes of it is taken as it is.

Where the model chooses (the largest, the boxes that are kept), rounding moves most elements a little and some by as much as there
is. Those that jump are no measure for the others: they are counted, and as large a share may be beyond the tolerance. Before
such a model fails, it is run with all the noise that is granted: of two scores next to each other, either may come first, and
what the candidate has in the place of an element must be what some run had.
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
from onnxbridge.runtime.verify.simulate_precision import Coarse
from onnxbridge.runtime.verify.values_of_interest import values_of_interest

# Two correct implementations add in other orders (blocked, fused, Winograd) than our executor, and each has its own error:
# the fastest convolution algorithms lose up to 15 times what direct summation loses.
ORDERS = 16
# The coarse runs round as the coarse side does, but at other places: an operator there is a few here.
PLACES = 6
RUNS = 3
"""How often the model is run in coarser numbers on each sample; fewer times if that takes long."""
TIES = 12
"""How often, at most, a model that rounds to codes is run before it fails: a tie may go the same way several times."""
CHOICES = 8
"""How often, at most, it is looked at how a model chooses: of two scores that are equal, half of the runs take the other."""
# An element jumps if it moves this many times as far as a tenth of those that move, in the run that moved them least, and by such
# parts of itself and of the largest.
JUMP, OF_ITSELF, OF_LARGEST = 32, 1 / 32, 1 / 256
# Elements this many times as large as 1 and as all others stand for infinity, as those of an attention mask do: float32 has 24
# bits, so in a sum with them next to nothing of the others would be left. Each kind has a tolerance of its own.
MASKED = 2.0**20
# Where one in a hundred hangs on rounding, more than this share is not rounding, unless twice as many as were measured are.
FEW = 0.1
# What a chain of exact operators may lose, such as one last division rounded another way.
ULPS = 4
# Libraries compute it as 1/2 plus a polynomial: near 0 its error is that of 1/2, however small the result.
_OF_ONE = frozenset({"Sigmoid"})
_CARRIERS = frozenset({
    "Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Concat", "Split", "Gather", "Expand",
    "ReduceMean", "ReduceMax", "ReduceMin", "AveragePool", "GlobalAveragePool", "MaxPool", "GlobalMaxPool",
})  # fmt: skip
"""What gives its inputs on with no more than their errors."""
# Where the noise that is granted was put in, each of the two sides may be as far off as the runs were.
SIDES = 2
_TO_CODES = frozenset({"DynamicQuantizeLinear", "QuantizeLinear", "Round"})
_INSIDE = frozenset({"com.microsoft::DynamicQuantizeLSTM", "QLinearConv", "QLinearMatMul"})
"""Operators that make codes inside, where noise is put in as it is between others."""
WORK = 12 * PER_SECOND
"""The operations in which the rounding of further samples is measured, as many as are expected to end within them; for the others
the largest so far stands. Operations and no seconds: how fast a machine is must not decide what passes."""

_CHOOSING = frozenset({"Ceil", "Floor", "Hardmax", "Sign"})
"""Operators that give numbers for numbers and jump from one to another."""
_OF_SIZES = frozenset({"Shape", "Size"})

_FALLBACK = {2: (2e-3, 2e-2), 4: (1e-5, 1e-3), 8: (1e-9, 1e-7)}


@dataclass(frozen=True)
class _Noise:
    """What was measured of one output: how far its elements moved, its largest magnitude, and the share that jumped or, of whole
    numbers, that moved at all; of those that stand for infinity, how far they moved for their size. `resized` says that the
    output's size hangs on rounding."""

    apart: float = 0.0
    scale: float = 0.0
    share: float = 0.0
    masked: float = 0.0
    resized: bool = False

    def joined(self, other: _Noise) -> _Noise:
        return _Noise(*map(max, astuple(self), astuple(other)))


class Rounding:
    """Measures what rounding explains at each output of a hub model, sample by sample.

    `unit` is the unit roundoff of the coarser of the two sides: 2^-24 for float32, 2^-11 for a target that computes in float16.
    """

    def __init__(self, model: ir.Model, unit: float | None = None) -> None:
        self._unit = unit
        self._coded = unit is None and any(map(_makes_codes, model.graph.all_nodes()))
        self._chooses = unit is None and not self._coded and any(map(_chooses, model.graph.all_nodes()))
        self._coarse = Coarse(unit) if unit else Coarse(ORDERS * 2.0**-24) if self._coded else None
        self._spent = self._largest = 0
        self._ran: deque[tuple[Mapping[str, Any], list[Any]]] = deque(maxlen=4)  # the last inputs that `fit` looked at
        self._of_one = {v.name for v in model.graph.outputs if _has_errors_of_one(v)}
        self._fine: dict[str, _Noise] = {}
        self._rough: dict[str, _Noise] = {}
        self._choices: dict[str, _Noise] = {}
        self._seen: dict[str, list[np.ndarray[Any, Any]]] = {}
        self._measured: list[Mapping[str, Any]] = []
        # a number that the graph compares with a constant, as it is, is not rounded before
        self._exact_inputs = {v.name or "": values_of_interest(v) for v in model.graph.inputs}
        self.reason = ""
        try:
            # without kernels, so that whether there are any does not change a tolerance
            self._own = Executor(model, native=False)
            self._exact = Executor(model, precision="float64")
            self._rougher = Executor(model, expanded=_INSIDE, native=False) if self._coded else self._own
        except ConversionError as e:
            names = ", ".join(sorted({p.op for p in e.problems})[:5])
            self.reason = f"the executor has no rule for {names}"

    def fit(self, feeds: Mapping[str, Any]) -> int:
        """How the model takes inputs of these sizes: 2 if it computes numbers, 1 if nothing or NaN, 0 if it fails.

        Raises:
            LimitError: if the run would take more than the executor's budget.
        """
        try:
            found = self._own.run(None, self._taken(feeds))
        except OnnxbridgeError:
            raise
        except Exception:
            return 0
        self._ran.append((feeds, found))
        results = [np.asarray(r) for r in found]
        empty = any(not r.size or (r.dtype.kind == "f" and np.isnan(r).any()) for r in results)
        return 1 if empty else 2

    def measure(self, feeds: Mapping[str, Any]) -> None:
        """Run the model on these inputs as often as it takes.

        Raises:
            LimitError: if a run would take more than the executor's budget.
        """
        if not self.reason and not (self._fine and self._spent + self._largest > WORK):
            self._measure(feeds)

    def closer(self, feeds: Mapping[str, Any]) -> bool:
        """Measure these inputs if there was no time to, and where the model chooses, how it does with all the noise that is
        granted; whether that was something new. For inputs on which the two sides differ by more than was thought to be rounding.
        """
        if self.reason:
            return False
        new = not any(known is feeds for known in self._measured)
        try:
            if new:
                self._measure(feeds)
            if self._chooses and not self.reason:
                self._choose(feeds)
            if self._coded and not self.reason:
                self._round_more(feeds)
        except LimitError:
            return False
        told, self.reason = not self.reason and (new or self._chooses or self._coded), ""
        return told

    def _round_more(self, feeds: Mapping[str, Any]) -> None:
        """Run a model that rounds to codes more often: of two codes that a number lies between, a few runs may all take one."""
        taken, noisy = self._taken(feeds), Coarse(ORDERS * 2.0**-24, seed=1)
        exact = self._exact.run(None, taken)
        start = self._work()
        for count in range(TIES):
            if count and self._work() - start > WORK / 2:
                break
            run = self._rougher.run(None, taken, coarse=noisy)
            for name, a, b in zip(self._own.output_names, exact, run, strict=True):
                self._rough[name] = _noise(a, [b], True).joined(self._rough.get(name, _Noise()))

    def _choose(self, feeds: Mapping[str, Any]) -> None:
        taken, noisy = self._taken(feeds), Coarse(ORDERS * 2.0**-24, single=True)
        exact = self._exact.run(None, taken)
        self._choices, self._seen = {}, {}
        start = self._work()
        for turn in range(CHOICES):
            if turn and self._work() - start > WORK / 2:
                break
            try:
                run = self._own.run(None, taken, coarse=noisy)
            except OnnxbridgeError:
                raise
            except Exception:  # a choice that leaves nothing to go on with
                break
            for name, a, b in zip(self._own.output_names, exact, run, strict=True):
                self._choices[name] = _noise(a, [b]).joined(self._choices.get(name, _Noise()))
                self._seen.setdefault(name, []).extend(np.asarray(v).reshape(-1) for v in (a, b))

    def _measure(self, feeds: Mapping[str, Any]) -> None:
        start = self._work()
        rng = np.random.default_rng(0)
        taken = self._taken(feeds)
        moved = {k: _moved(np.asarray(v), rng, self._exact_inputs.get(k, ())) for k, v in taken.items()}
        try:
            known = next((results for ran, results in self._ran if ran is feeds), None)
            runs = [known or self._own.run(None, taken), self._exact.run(None, taken)]
            if self._coarse is None:
                runs.append(self._exact.run(None, moved))
            rough: list[Any] = []
            while self._coarse and len(rough) < RUNS and (not rough or self._work() - start < WORK / 2):
                rough.append(self._rougher.run(None, taken, coarse=self._coarse))
        except OnnxbridgeError:
            raise
        except Exception as e:  # the two sides are to say whether the inputs are at fault
            self.reason = f"the executor fails with {type(e).__name__}: {(str(e).strip() or 'no message').splitlines()[0]}"
            return
        for i, name in enumerate(self._own.output_names):
            own, exact, *near = (run[i] for run in runs)
            self._fine[name] = _noise(exact, [own, *near], self._coded).joined(self._fine.get(name, _Noise()))
            rougher = _noise(exact, [run[i] for run in rough], self._coded)
            self._rough[name] = rougher.joined(self._rough.get(name, _Noise()))
        self._measured.append(feeds)
        took = self._work() - start
        self._spent, self._largest = self._spent + took, max(self._largest, took)

    def _work(self) -> int:
        """The operations so far."""
        return sum(executor.work for executor in {self._own, self._exact, self._rougher})

    def _taken(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in feeds.items() if k in self._own.input_names}

    def tolerances(self, references: Mapping[str, Any]) -> dict[str, Tolerance]:
        """One tolerance for each output of the reference, from all samples measured so far."""
        return {name: self._tolerance(name, np.asarray(r)) for name, r in references.items()}

    def notes(self) -> list[str]:
        """What a user should know of outputs that rounding decides about."""
        sized = [name for found in (self._fine, self._rough, self._choices) for name, n in found.items() if n.resized]
        sized = list(dict.fromkeys(sized))
        if not sized:
            return []
        return [f"how many elements {', '.join(sized)} has hangs on rounding; other inputs may tell more"]

    def _tolerance(self, name: str, reference: np.ndarray[Any, Any]) -> Tolerance:
        eps = _epsilon(reference.dtype)
        if self.reason or name not in self._fine:
            atol, rtol = _FALLBACK.get(reference.dtype.itemsize, _FALLBACK[4]) if eps else (0.0, 0.0)
            return Tolerance(atol, rtol, origin=f"default, since {self.reason or 'the output is not one of the hub model'}")
        fine, rough = self._fine[name], self._rough.get(name, _Noise())
        choices = min(SIDES * self._choices.get(name, _Noise()).share, 1.0)
        seen = np.unique(np.concatenate(self._seen[name]).astype(np.float64)) if choices else np.zeros(0)
        share = min(max(2 * fine.share, 2 * rough.share, min(ORDERS * fine.share, FEW)), 1.0)
        if not eps:
            return Tolerance(0.0, 0.0, mismatches=share, origin="derived", choices=choices, seen=seen)
        scale = max(fine.scale, 1.0) if name in self._of_one else fine.scale
        # a coarser side rounds by that much more at every step
        last = ULPS * max(eps, 2 * self._unit if self._unit else 0.0)
        apart = max(ORDERS * fine.apart, PLACES * rough.apart)
        if self._coded:
            apart = SIDES * max(fine.apart, rough.apart)
        rtol = max(last, ORDERS * fine.masked, PLACES * rough.masked)
        return Tolerance(apart + last * scale, rtol, share, "derived", choices, seen)


def _makes_codes(node: ir.Node) -> bool:
    """Whether a node rounds to whole numbers that stand for others."""
    kind = node.op_type
    return kind in _TO_CODES or kind.startswith(("QLinear", "QGemm", "QAttention", "DynamicQuantize"))


def _chooses(node: ir.Node) -> bool:
    """Whether a node asks which numbers are larger or rounds them to whole ones, so that a little decides about all."""
    if node.op_type in _CHOOSING or node.op_type in _TO_CODES:
        return True
    floating = any(v is not None and v.dtype is not None and v.dtype.is_floating_point() for v in node.inputs)
    others = [v for v in node.outputs if v.dtype is not None and not v.dtype.is_floating_point()]
    return floating and bool(others) and node.op_type not in _OF_SIZES


def _has_errors_of_one(value: ir.Value) -> bool:
    """Whether the value comes, unchanged or as a mean, from an operator whose error does not shrink with its result."""
    todo, seen = [value], {value}
    while todo:
        found = todo.pop()
        node = found.producer()
        if node is None:
            continue
        if node.op_type in _OF_ONE:
            return True
        before: list[ir.Value | None] = []
        if node.op_type in _CARRIERS:
            before = list(node.inputs)
        elif node.op_type == "If":
            before = [a.as_graph().outputs[found.index()] for a in node.attributes.values()]  # type: ignore[index]
        todo += [v for v in dict.fromkeys(before) if v is not None and v not in seen]
        seen.update(todo)
    return False


def _epsilon(dtype: np.dtype[Any]) -> float:
    """The distance from 1 to the next number of the dtype, 0 for dtypes that are exact."""
    if dtype.kind in "biuUSO":
        return 0.0
    import ml_dtypes

    return float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]


def _moved(array: np.ndarray[Any, Any], rng: np.random.Generator, exact: Sequence[Any] = ()) -> np.ndarray[Any, Any]:
    """Floating inputs moved up or down by one unit in the last place, in float64, but for numbers that are `exact`."""
    eps = _epsilon(array.dtype)
    if not eps:
        return array
    wide = array.astype(np.float64)
    moved = wide * (1 + eps * rng.choice([-0.5, 0.5], wide.shape))
    return np.asarray(np.where(np.isin(wide, np.asarray(exact, np.float64)), wide, moved) if len(exact) else moved)


def _noise(exact: Any, others: Sequence[Any], whole: bool = False) -> _Noise:
    """How far other runs lie from the exact one, those elements included that jump where `whole` says so."""
    a = np.asarray(exact)
    runs = [np.asarray(other) for other in others]
    found = _Noise(resized=any(run.shape != a.shape for run in runs))
    runs = [run for run in runs if run.shape == a.shape]
    if not a.size or not runs:
        return found
    if a.dtype == bool or a.dtype.kind in "USOiu":
        return found.joined(_Noise(share=max(float(np.mean(a != run)) for run in runs)))
    a = a.astype(np.float64).reshape(-1)
    with np.errstate(invalid="ignore"):
        apart = [np.abs(a - run.astype(np.float64).reshape(-1)) for run in runs]
    masked = _masked(np.abs(a))
    for d in apart:
        with np.errstate(invalid="ignore"):
            relative = d[masked] / np.abs(a[masked])
        chosen = (relative > OF_ITSELF) & (not whole)  # whether it is one hangs on rounding
        still = relative[~chosen & np.isfinite(relative)].max(initial=0.0)
        found = found.joined(_Noise(share=float(chosen.sum()) / masked.size, masked=float(still)))
    a, apart = a[~masked], [d[~masked] for d in apart]
    scale = float(np.abs(a[np.isfinite(a)]).max(initial=0.0))
    found = found.joined(_Noise(scale=scale))
    places = [np.flatnonzero(np.isfinite(d) & (d > 0)) for d in apart]
    usual = min((float(np.quantile(d[at], 0.1)) for d, at in zip(apart, places, strict=True) if at.size), default=0.0)
    for d, at in zip(apart, places, strict=True):
        moved = d[at]
        jumps = (moved > JUMP * usual) & (moved > OF_ITSELF * np.abs(a[at])) & (moved > OF_LARGEST * scale) & (not whole)
        found = found.joined(_Noise(float(moved[~jumps].max(initial=0.0)), scale, float(jumps.sum()) / masked.size))
    return found


def _masked(sizes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Which elements stand for infinity."""
    ordered = np.unique(sizes[np.isfinite(sizes)])
    beyond = np.flatnonzero(ordered[1:] >= MASKED * np.maximum(ordered[:-1], 1.0))
    return sizes >= ordered[beyond[0] + 1] if beyond.size else np.zeros(sizes.shape, bool)
