"""Comparison of one output with its reference: largest differences, the tolerance, and what a number alone would hide."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

MANY = 0.5
"""The share of elements that may differ from which on a comparison says little."""


@dataclass(frozen=True)
class Tolerance:
    """|candidate - reference| <= atol + rtol * |reference|; `mismatches` is the share of elements allowed to be beyond that or,
    in outputs that are not floating point, to differ at all. `origin` says where the numbers come from.

    As large a share as `choices` may be beyond it too where the candidate has one of the values `seen`, in order, instead.
    """

    atol: float
    rtol: float
    mismatches: float = 0.0
    origin: str = "given"
    choices: float = 0.0
    seen: np.ndarray[Any, Any] = field(default_factory=lambda: np.zeros(0), compare=False, repr=False)

    def unexplained(self, beyond: Any, candidate: Any) -> float:
        """The share of elements that are beyond the tolerance for another reason than the model's own choices."""
        share = float(np.mean(beyond))
        if not self.seen.size or share > self.choices:
            return share
        values = np.asarray(candidate[beyond]).astype(np.float64)
        at = np.searchsorted(self.seen, values)
        near = [np.abs(values - self.seen[np.clip(at - side, 0, self.seen.size - 1)]) for side in (0, 1)]
        known = np.minimum(*near) <= self.atol + self.rtol * np.abs(values)
        return float(np.sum(~known) / beyond.size)


@dataclass(frozen=True)
class Comparison:
    """One output, over all samples seen so far."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    max_abs: float
    max_rel: float
    tolerance: Tolerance
    passed: bool
    excess: float
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name, "shape": list(self.shape), "dtype": self.dtype, "max_abs": self.max_abs, "max_rel": self.max_rel,
            "atol": self.tolerance.atol, "rtol": self.tolerance.rtol, "tolerance": self.tolerance.origin,
            "passed": self.passed, "excess": self.excess, "notes": list(self.notes),
        }  # fmt: skip


def compare(name: str, reference: Any, candidate: Any, tolerance: Tolerance) -> Comparison:
    """Compare one output of one sample."""
    r, c = np.asarray(reference), np.asarray(candidate)
    notes: list[str] = []

    def verdict(passed: bool, max_abs: float = 0.0, max_rel: float = 0.0, excess: float = 0.0) -> Comparison:
        return Comparison(name, r.shape, str(r.dtype), max_abs, max_rel, tolerance, passed, excess, tuple(notes))

    if r.shape != c.shape:
        notes.append(f"shape {list(c.shape)} instead of {list(r.shape)}")
        return verdict(False, np.inf, np.inf, np.inf)
    if r.dtype != c.dtype:
        notes.append(f"dtype {c.dtype} instead of {r.dtype}")
        if _family(r) != _family(c):
            return verdict(False, np.inf, np.inf, np.inf)
    if r.size == 0:
        notes.append("empty output: nothing is compared")
        return verdict(True)
    if r.dtype == object or r.dtype.kind in "USb":
        return _exact(r, c, tolerance, verdict, notes)
    if r.size > 1 and np.all(r == r.reshape(-1)[0]):
        notes.append("the reference is constant: agreement proves little")
    decided = max(tolerance.mismatches, tolerance.choices)
    if tolerance.origin == "derived" and decided >= MANY:
        notes.append(f"rounding alone decides about {decided / 2:.0%} of the elements: agreement proves little")
    if _family(r) == "i":
        a, b = r.astype(np.float64), c.astype(np.float64)
        difference = np.abs(a - b)
        share = float(np.count_nonzero(difference)) / difference.size
        if share:
            notes.append(f"{share:.2%} of the elements differ")
        given = tolerance.origin == "given" and bool(np.all(difference <= tolerance.atol + tolerance.rtol * np.abs(a)))
        passed = given or tolerance.unexplained(difference > 0, b) <= tolerance.mismatches
        return verdict(passed, float(difference.max()), _relative(difference, a), share)
    wide = np.complex128 if r.dtype.kind == "c" else np.float64
    a, b = r.astype(wide), c.astype(wide)
    if np.any(np.isnan(a)):
        notes.append(f"NaN in {int(np.isnan(a).sum())} elements of the reference")
    same = (a == b) | (np.isnan(a) & np.isnan(b))  # infinities of one sign, and NaN in the same places
    with np.errstate(invalid="ignore"):
        difference = np.where(same, 0.0, np.abs(a - b))
    if np.any(~np.isfinite(difference)):
        notes.append(f"{int(np.sum(~np.isfinite(difference)))} elements are NaN or infinite on one side only")
        return verdict(False, np.inf, np.inf, np.inf)
    finite = np.where(np.isfinite(a), np.abs(a), 0.0)
    wide_as_output = tolerance.origin == "derived" and 0 < finite.max() <= tolerance.atol
    if wide_as_output:
        notes.append(f"the tolerance is wider than the output, which is {finite.max():.2g} at most: agreement proves little")
    allowed = tolerance.atol + tolerance.rtol * finite
    excess = float(np.max(difference - allowed))
    share = float(np.mean(difference > allowed))
    if share and (tolerance.mismatches or tolerance.choices):
        notes.append(f"{share:.2%} of the elements are beyond the rest, as far as the model's own choices move them")
    passed = tolerance.unexplained(difference > allowed, b) <= tolerance.mismatches
    if wide_as_output and _explains_nothing(np.where(np.isfinite(a), a, 0.0), difference):
        notes.append("the error is as large as all that varies in the reference: nothing of it is left")
        passed, excess = False, float(difference.max())
    return verdict(passed, float(difference.max()), _relative(difference, finite), 0.0 if passed else max(excess, 0.0))


def _family(a: np.ndarray[Any, Any]) -> str:
    kind = a.dtype.kind
    return "i" if kind in "iu" else "f" if kind in "fV" else kind


def _relative(difference: np.ndarray[Any, Any], reference: np.ndarray[Any, Any]) -> float:
    """The largest relative difference, among elements that are not tiny beside the output's own scale: near zero a relative
    difference says nothing."""
    scale = np.abs(reference)
    kept = scale > 1e-3 * scale.max() if scale.size else scale > 0
    return float(np.max(difference[kept] / scale[kept])) if np.any(kept) else 0.0


def _explains_nothing(reference: np.ndarray[Any, Any], difference: np.ndarray[Any, Any]) -> bool:
    """Whether a constant would have been as near to the reference as what is compared with it (R^2 <= 0)."""
    spread = float(np.mean(np.abs(reference - reference.mean()) ** 2))
    return spread > 0 and float(np.mean(difference**2)) >= spread


def _exact(r: Any, c: Any, tolerance: Tolerance, verdict: Any, notes: list[str]) -> Comparison:
    share = float(np.count_nonzero(r != c)) / r.size
    if share:
        notes.append(f"{share:.2%} of the elements differ")
    result: Comparison = verdict(share <= max(tolerance.mismatches, tolerance.choices), float(share > 0), float(share > 0), share)
    return result


def worst(comparisons: list[Comparison]) -> Comparison:
    """One output over several samples: the largest figures, every note once, passed if all passed."""
    worst_one = max(comparisons, key=lambda c: (not c.passed, c.excess, c.max_abs))
    notes = dict.fromkeys(n for c in comparisons for n in c.notes)
    return replace(
        worst_one,
        max_abs=max(c.max_abs for c in comparisons),
        max_rel=max(c.max_rel for c in comparisons),
        passed=all(c.passed for c in comparisons),
        notes=tuple(notes),
    )
