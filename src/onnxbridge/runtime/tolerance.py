"""The tolerance of a verification, derived from the model: how far rounding alone can move each output.

The hub model is run three times on the same inputs: in its own precision, in float64, and in float64 on inputs moved by one unit
in the last place. How far the runs lie apart is what rounding explains, at that output, for those inputs. Source and target
are never asked, so an error in a conversion cannot widen its own tolerance.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import ConversionError, OnnxbridgeError
from onnxbridge.runtime.compare import Tolerance
from onnxbridge.runtime.executor import Executor

# Two correct implementations add in other orders (blocked, fused, Winograd) than our executor, and each has its own error:
# the fastest convolution algorithms lose up to 15 times what direct summation loses.
ORDERS = 16
# What a chain of exact operators may lose, such as one last division rounded another way.
ULPS = 4
# Libraries compute it as 1/2 plus a polynomial: near 0 its error is that of 1/2, however small the result.
_OF_ONE = frozenset({"Sigmoid"})
_CARRIERS = frozenset({"Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Concat", "Split"})
SECONDS = 20.0
"""How long the rounding of further samples is measured; past that, the largest measured so far stands for them."""

_FALLBACK = {2: (2e-3, 2e-2), 4: (1e-5, 1e-3), 8: (1e-9, 1e-7)}


class Rounding:
    """Measures what rounding explains at each output of a hub model, sample by sample.

    `unit` is the unit roundoff of the coarser of the two sides: 2^-24 for float32, 2^-11 for a target that computes in float16.
    """

    def __init__(self, model: ir.Model, unit: float | None = None) -> None:
        self._unit = unit
        self._spent = 0.0
        self._of_one = {v.name for v in model.graph.outputs if _has_errors_of_one(v)}
        self._largest: dict[str, tuple[float, float, float]] = {}
        self.reason = ""
        try:
            self._own = Executor(model)
            self._exact = Executor(model, precision="float64")
        except ConversionError as e:
            names = ", ".join(sorted({p.op for p in e.problems})[:5])
            self.reason = f"the executor has no rule for {names}"

    def fit(self, feeds: Mapping[str, Any]) -> int:
        """How the model takes inputs of these sizes: 2 if it computes numbers, 1 if nothing or NaN, 0 if it fails.

        Raises:
            LimitError: if the run would take more than the executor's budget.
        """
        try:
            results = [np.asarray(r) for r in self._own.run(None, self._taken(feeds))]
        except OnnxbridgeError:
            raise
        except Exception:
            return 0
        empty = any(not r.size or (r.dtype.kind == "f" and np.isnan(r).any()) for r in results)
        return 1 if empty else 2

    def measure(self, feeds: Mapping[str, Any]) -> None:
        """Run the model three times on these inputs.

        Raises:
            LimitError: if a run would take more than the executor's budget.
        """
        if self.reason or (self._spent >= SECONDS and self._largest):
            return
        start = time.perf_counter()
        rng = np.random.default_rng(0)
        taken = self._taken(feeds)
        moved = {k: _moved(np.asarray(v), rng) for k, v in taken.items()}
        try:
            runs = [self._own.run(None, taken), self._exact.run(None, taken), self._exact.run(None, moved)]
        except OnnxbridgeError:
            raise
        except Exception as e:  # the two sides are to say whether the inputs are at fault
            self.reason = f"the executor fails with {type(e).__name__}: {(str(e).strip() or 'no message').splitlines()[0]}"
            return
        for name, a, b, c in zip(self._own.output_names, *runs, strict=True):
            self._largest[name] = _larger(self._largest.get(name, (0.0, 0.0, 0.0)), _apart(a, b, c))
        self._spent += time.perf_counter() - start

    def _taken(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in feeds.items() if k in self._own.input_names}

    def tolerances(self, references: Mapping[str, Any]) -> dict[str, Tolerance]:
        """One tolerance for each output of the reference, from all samples measured so far."""
        return {name: self._tolerance(name, np.asarray(r)) for name, r in references.items()}

    def _tolerance(self, name: str, reference: np.ndarray[Any, Any]) -> Tolerance:
        eps = _epsilon(reference.dtype)
        if self.reason or name not in self._largest:
            atol, rtol = _FALLBACK.get(reference.dtype.itemsize, _FALLBACK[4]) if eps else (0.0, 0.0)
            return Tolerance(atol, rtol, origin=f"default, since {self.reason or 'the output is not one of the hub model'}")
        noise, scale, share = self._largest[name]
        if not eps:
            return Tolerance(0.0, 0.0, mismatches=ORDERS * share, origin="derived")
        scale = max(scale, 1.0) if name in self._of_one else scale
        # a coarser side rounds by that much more at every step
        coarser = max(1.0, self._unit / (eps / 2)) if self._unit else 1.0
        return Tolerance(ORDERS * noise * coarser + ULPS * eps * coarser * scale, ULPS * eps * coarser, origin="derived")


def _has_errors_of_one(value: ir.Value) -> bool:
    """Whether the value comes, unchanged, from an operator whose error does not shrink with its result."""
    todo = [value]
    while todo:
        node = todo.pop().producer()
        if node is not None and node.op_type in _OF_ONE:
            return True
        if node is not None and node.op_type in _CARRIERS:
            todo += [v for v in node.inputs if v is not None]
    return False


def _epsilon(dtype: np.dtype[Any]) -> float:
    """The distance from 1 to the next number of the dtype, 0 for dtypes that are exact."""
    if dtype.kind in "biuUSO":
        return 0.0
    import ml_dtypes

    return float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]


def _moved(array: np.ndarray[Any, Any], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Floating inputs moved up or down by one unit in the last place, in float64."""
    eps = _epsilon(array.dtype)
    if not eps:
        return array
    wide = array.astype(np.float64)
    return np.asarray(wide * (1 + eps * rng.choice([-0.5, 0.5], wide.shape)))


def _apart(own: Any, exact: Any, moved: Any) -> tuple[float, float, float]:
    """How far the three runs lie apart, the output's scale, and the share of elements that differ at all."""
    a, b, c = np.asarray(own), np.asarray(exact), np.asarray(moved)
    if a.dtype.kind in "USO" or a.dtype == bool or a.dtype.kind in "iu":
        if a.shape != b.shape or a.shape != c.shape or not a.size:
            return 0.0, 0.0, 0.0
        return 0.0, 0.0, float(np.mean((a != b) | (b != c)))
    if a.shape != b.shape or a.shape != c.shape or not a.size:
        return 0.0, 0.0, 0.0
    a, b, c = (x.astype(np.float64) for x in (a, b, c))
    with np.errstate(invalid="ignore"):
        apart = np.maximum(np.abs(a - b), np.abs(b - c))
    finite = np.abs(b[np.isfinite(b)])
    kept = apart[np.isfinite(apart)]
    return float(kept.max()) if kept.size else 0.0, float(finite.max()) if finite.size else 0.0, 0.0


def _larger(a: tuple[float, ...], b: tuple[float, ...]) -> tuple[float, float, float]:
    return max(a[0], b[0]), max(a[1], b[1]), max(a[2], b[2])
