"""Comparison of one output with its reference: the largest differences, the tolerance, and notes on what the figures hide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from onnxbridge.hub.ir import strings

MANY_MISMATCHES = 0.5
"""From this share of elements that may differ on, agreement proves little."""
PROVES_LITTLE = "agreement proves little"


@dataclass(frozen=True)
class Tolerance:
    """|candidate - reference| <= atol + rtol * |reference|.

    Attributes:
        mismatches: the share of elements that may exceed it or, in outputs that are not floating point, may differ at all.
        origin: where the numbers come from: "given", "derived", or "default" with the reason.
        choices: the share of elements that may also exceed it if the candidate's value is one of `seen`, which is sorted.
        ties: the part of `mismatches` that comes from equal numbers among which the model chooses.
    """

    atol: float
    rtol: float
    mismatches: float = 0.0
    origin: str = "given"
    choices: float = 0.0
    seen: np.ndarray[Any, Any] = field(default_factory=lambda: np.zeros(0), compare=False, repr=False)
    ties: float = 0.0

    def unexplained(self, beyond: Any, candidate: Any) -> float:
        """The share of elements beyond the tolerance, without those that the model's own choices (TopK, NMS) explain."""
        share = float(np.mean(beyond))
        if not self.seen.size or share > self.choices:
            return share
        values = np.asarray(candidate[beyond]).astype(np.float64)
        at = np.searchsorted(self.seen, values)
        near = [np.abs(values - self.seen[np.clip(at - side, 0, self.seen.size - 1)]) for side in (0, 1)]
        known = np.minimum(*near) <= self.atol + self.rtol * np.abs(values)
        return float(np.sum(~known) / beyond.size)


@dataclass(frozen=True)
class Element:
    """One element of an output: its index, both values, and the number of the sample."""

    index: tuple[int, ...]
    reference: Any
    candidate: Any
    sample: int = 0

    def as_dict(self) -> dict[str, Any]:
        return {"sample": self.sample, "index": list(self.index), "reference": self.reference, "candidate": self.candidate}


@dataclass(frozen=True)
class Comparison:
    """One output, over all samples seen so far.

    Attributes:
        worst: the element that exceeds its tolerance most or comes closest to it; None where no elements were compared.
        weak: why agreement of this output proves little, "" otherwise.
        elements, span: the number of elements compared, and the smallest and largest finite value of the reference.
        drift: how far lossy compression moves the output, as a share of its range; None without compression.
        metrics: those that were requested, by name.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    max_abs: float
    max_rel: float
    tolerance: Tolerance
    passed: bool
    excess: float
    notes: tuple[str, ...] = ()
    worst: Element | None = None
    weak: str = ""
    elements: int = 0
    span: tuple[Any, Any] | None = None
    drift: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name, "shape": list(self.shape), "dtype": self.dtype, "max_abs": self.max_abs, "max_rel": self.max_rel,
            "atol": self.tolerance.atol, "rtol": self.tolerance.rtol, "tolerance": self.tolerance.origin,
            "passed": self.passed, "excess": self.excess, "worst": self.worst.as_dict() if self.worst else None,
            "weak": self.weak, "drift": self.drift, "metrics": dict(self.metrics), "notes": list(self.notes),
        }  # fmt: skip


def result_array(value: Any) -> np.ndarray[Any, Any]:
    """A tensor as it is, a sequence of tensors stacked; of tensors that differ in shape, all elements one after the other."""
    if isinstance(value, (list, tuple)) and len(set(shapes(value))) > 1:
        return np.concatenate([np.asarray(item).reshape(-1) for item in value])
    return np.asarray(value)


def shapes(value: Any) -> list[tuple[int, ...]]:
    """The shape of a tensor, or of each tensor in a sequence."""
    return [np.shape(item) for item in value] if isinstance(value, (list, tuple)) else [np.shape(value)]


def compare(name: str, reference: Any, candidate: Any, tolerance: Tolerance) -> Comparison:
    """Compare one output of one sample."""
    r, c = result_array(reference), result_array(candidate)
    notes: list[str] = []
    dtype = "string" if strings.is_strings(r) else str(r.dtype)
    comparison = Comparison(name, r.shape, dtype, 0.0, 0.0, tolerance, True, 0.0, elements=r.size, span=span_of(r))
    wrong = replace(comparison, passed=False, max_abs=np.inf, max_rel=np.inf, excess=np.inf)
    if shapes(reference) != shapes(candidate) and r.shape == c.shape:
        return replace(wrong, notes=(f"tensors of shapes {_listed(candidate)} instead of {_listed(reference)}",))
    if r.shape != c.shape and _is_without_iterations(r.shape, c.shape):
        expected = f"instead of {list(r.shape)}, as runtimes return if a Loop without iterations does not declare its sizes"
        notes.append(f"shape {list(c.shape)} {expected}")
        r = r.reshape(c.shape)
    if r.shape != c.shape:
        return replace(wrong, notes=(f"shape {list(c.shape)} instead of {list(r.shape)}",))
    if r.dtype != c.dtype:
        notes.append(f"dtype {c.dtype} instead of {r.dtype}")
        if _family(r) != _family(c):
            return replace(wrong, notes=tuple(notes))
    if r.size == 0:
        return replace(comparison, notes=(*notes, "empty output: nothing is compared"))
    if strings.is_strings(r) or r.dtype.kind == "b":
        found = _compare_exact(comparison, r, c)
        return replace(found, notes=(*notes, *found.notes))
    found = _compare_integers(comparison, r, c) if _family(r) == "i" else _compare_floats(comparison, r, c)
    decided, weak = max(tolerance.mismatches, tolerance.choices), found.weak
    if tolerance.origin == "derived" and decided >= MANY_MISMATCHES:
        what = "the choice among equal numbers" if tolerance.ties >= decided else "rounding alone"
        weak = f"{what} decides about {decided / 2:.0%} of the elements"
    return replace(found, notes=(*notes, *found.notes), weak=weak)


def _is_without_iterations(reference: tuple[int, ...], candidate: tuple[int, ...]) -> bool:
    """Whether both are rows of no iteration, of which the reference does not know the rank, or has 0 for sizes."""
    if not (len(reference) and len(candidate) and reference[0] == candidate[0] == 0):
        return False
    same_rank = len(reference) == len(candidate)
    return len(reference) == 1 or (same_rank and all(a in (0, b) for a, b in zip(reference, candidate, strict=True)))


def _listed(sequence: Any) -> str:
    return ", ".join(str(list(shape)) for shape in shapes(sequence))


def _compare_exact(comparison: Comparison, r: Any, c: Any) -> Comparison:
    """Strings and booleans."""
    different = np.asarray(r != c)
    share = float(np.count_nonzero(different)) / r.size
    passed = share <= max(comparison.tolerance.mismatches, comparison.tolerance.choices)
    notes = (f"{share:.2%} of the elements differ",) if share else ()
    at = _element(different, r, c)
    differs = float(share > 0)
    return replace(comparison, passed=passed, max_abs=differs, max_rel=differs, excess=share, notes=notes, worst=at)


def _compare_integers(comparison: Comparison, r: Any, c: Any) -> Comparison:
    tolerance = comparison.tolerance
    a, b = r.astype(np.float64), c.astype(np.float64)
    difference = np.maximum(np.abs(a - b), r != c)  # large 64-bit integers may differ and be equal in float64
    share = float(np.count_nonzero(difference)) / difference.size
    given = tolerance.origin == "given" and bool(np.all(difference <= tolerance.atol + tolerance.rtol * np.abs(a)))
    return replace(
        comparison,
        passed=given or tolerance.unexplained(difference > tolerance.atol, b) <= tolerance.mismatches,
        max_abs=float(difference.max()),
        max_rel=_relative(difference, a),
        excess=share,
        notes=(f"{share:.2%} of the elements differ",) if share else (),
        worst=_element(difference, r, c),
    )


def _compare_floats(comparison: Comparison, r: Any, c: Any) -> Comparison:
    tolerance = comparison.tolerance
    wide = np.complex128 if r.dtype.kind == "c" else np.float64
    a, b = r.astype(wide), c.astype(wide)
    notes: list[str] = []
    if np.any(np.isnan(a)):
        notes.append(f"NaN in {int(np.isnan(a).sum())} elements of the reference")
    same = (a == b) | (np.isnan(a) & np.isnan(b))  # infinities of the same sign, and NaN in both
    with np.errstate(invalid="ignore"):
        difference = np.where(same, 0.0, np.abs(a - b))
    not_finite = ~np.isfinite(difference)
    if np.any(not_finite):
        notes.append(f"{int(np.sum(not_finite))} elements are NaN or infinite in one of the two only")
        at = _element(not_finite, r, c)
        return replace(comparison, passed=False, max_abs=np.inf, max_rel=np.inf, excess=np.inf, notes=tuple(notes), worst=at)
    finite = np.where(np.isfinite(a), np.abs(a), 0.0)
    wide_as_output = tolerance.origin == "derived" and 0 < finite.max() <= tolerance.atol
    weak = f"the tolerance is wider than the output, which is {finite.max():.2g} at most" if wide_as_output else ""
    allowed = tolerance.atol + tolerance.rtol * finite
    excess = float(np.max(difference - allowed))
    share = float(np.mean(difference > allowed))
    if share and (tolerance.mismatches or tolerance.choices):
        notes.append(f"{share:.2%} of the elements exceed the tolerance, within the variation from the model's own choices")
    passed = tolerance.unexplained(difference > allowed, b) <= tolerance.mismatches
    # A choice among equal numbers may move any of these elements by as much as the output varies.
    by_choice = float(np.mean(difference > tolerance.rtol * finite)) <= max(tolerance.choices, tolerance.ties)
    if wide_as_output and not by_choice and _constant_is_as_close(np.where(np.isfinite(a), a, 0.0), difference):
        notes.append("the error is as large as the variation of the reference: a constant would be as close")
        passed, excess = False, float(difference.max())
    return replace(
        comparison,
        passed=passed,
        max_abs=float(difference.max()),
        max_rel=_relative(difference, finite),
        excess=0.0 if passed else max(excess, 0.0),
        notes=tuple(notes),
        worst=_element(difference - allowed, r, c),
        weak=weak,
    )


def _element(measure: np.ndarray[Any, Any], r: Any, c: Any) -> Element:
    """The element at the maximum of `measure`."""
    index = np.unravel_index(int(np.argmax(measure)), r.shape)
    return Element(tuple(int(i) for i in index), _plain(r[index]), _plain(c[index]))


def _plain(value: Any) -> Any:
    """An element as a JSON value: a number, a boolean or a string."""
    value = np.asarray(value)
    if value.dtype.kind in "biu":
        return value.item()
    return float(value) if _family(value) == "f" else str(value.item())


def span_of(r: np.ndarray[Any, Any]) -> tuple[Any, Any] | None:
    """The smallest and the largest finite value, None where there is none."""
    flat = r.reshape(-1)
    if flat.dtype == object or flat.dtype.kind in "USb":
        return (min(flat.tolist(), key=str), max(flat.tolist(), key=str)) if flat.size else None
    if flat.dtype.kind == "c":
        flat = np.concatenate([flat.real, flat.imag])
    numbers = flat if flat.dtype.kind in "iu" else flat.astype(np.float64)
    numbers = numbers[np.isfinite(numbers)]
    return (numbers.min().item(), numbers.max().item()) if numbers.size else None


def _family(a: np.ndarray[Any, Any]) -> str:
    kind = a.dtype.kind
    return "i" if kind in "iu" else "f" if kind in "fV" else kind


def _relative(difference: np.ndarray[Any, Any], reference: np.ndarray[Any, Any]) -> float:
    """The largest relative difference among elements above a thousandth of the largest: near zero it means nothing."""
    scale = np.abs(reference)
    significant = scale > 1e-3 * scale.max() if scale.size else scale > 0
    return float(np.max(difference[significant] / scale[significant])) if np.any(significant) else 0.0


def _constant_is_as_close(reference: np.ndarray[Any, Any], difference: np.ndarray[Any, Any]) -> bool:
    """Whether a constant would be as close to the reference as the candidate (R^2 <= 0)."""
    spread = float(np.mean(np.abs(reference - reference.mean()) ** 2))
    return spread > 0 and float(np.mean(difference**2)) >= spread


def worst(comparisons: list[Comparison]) -> Comparison:
    """One output over several samples: the largest figures, each note once, passed if all passed.

    `weak` is judged over all samples: an output that is constant in each may differ between them.
    """
    most = max(comparisons, key=lambda c: (not c.passed, c.excess, c.max_abs))
    elements = sum(c.elements for c in comparisons)
    spans = [c.span for c in comparisons if c.span is not None]
    span = (min(low for low, _ in spans), max(high for _, high in spans)) if spans else None
    weak = ""
    if not elements:
        weak = "it is empty"
    elif span is None:
        weak = "it is NaN or infinite throughout"
    elif span[0] == span[1] and elements > 1:
        weak = f"it is constant ({span[0]!r})"
    elif all(c.weak for c in comparisons):
        weak = most.weak
    notes = dict.fromkeys(n for c in comparisons for n in c.notes)
    if weak:
        notes[f"{weak}: {PROVES_LITTLE}"] = None
    return replace(
        most,
        max_abs=max(c.max_abs for c in comparisons),
        max_rel=max(c.max_rel for c in comparisons),
        passed=all(c.passed for c in comparisons),
        notes=tuple(notes),
        weak=weak,
        elements=elements,
        span=span,
        drift=max((c.drift for c in comparisons if c.drift is not None), default=None),
    )
