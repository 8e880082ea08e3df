"""The first values that differ although everything that they are computed from agrees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnxbridge.runtime.bisect.fingerprint import distance
from onnxbridge.runtime.bisect.matching import Matches
from onnxbridge.runtime.bisect.recorded_run import Side

_NEAR = 12
"""How many unmatched values behind the first are considered as its counterpart: a fused layer or a decomposed operator."""
_PER_STEP = 1.5
"""A counterpart one step further away must be so much closer in content."""


@dataclass(frozen=True)
class Divergence:
    """A pair of values that should be equal.

    Attributes:
        reference, candidate: their names.
        reference_inputs, candidate_inputs: the values, in agreement, that they are computed from.
        others: further values of the candidate that differ although what they are computed from agrees.
    """

    reference: str
    candidate: str
    reference_inputs: tuple[str, ...]
    candidate_inputs: tuple[str, ...]
    others: tuple[str, ...] = ()


def first_divergence(reference: Side, candidate: Side, matches: Matches, outputs: Sequence[tuple[str, str]]) -> Divergence | None:
    """Walk back from the outputs that differ (pairs of names), over values without an equal on the other side."""
    of_reference = _unmatched(reference, set(matches.candidate_of), [a for a, _ in outputs])
    of_candidate = _unmatched(candidate, set(matches.reference_of), [b for _, b in outputs])
    if not of_reference or not of_candidate:
        return None
    first_reference, first_candidate = (
        [n for n in found if not any(i in found for i in side.inputs_of[n])]
        for side, found in ((reference, of_reference), (candidate, of_candidate))
    )
    if matches.by_name and (named := [n for n in first_candidate if n in of_reference]):
        a = b = named[0]
    else:
        a, b = _counterparts(reference, candidate, of_reference, of_candidate, first_reference, first_candidate)
    others = tuple(n for n in first_candidate if n != b and n in reference.values) if matches.by_name else ()
    return Divergence(a, b, _boundary(reference, of_reference, a), _boundary(candidate, of_candidate, b), others)


def _unmatched(side: Side, matched: set[str], outputs: Sequence[str]) -> dict[str, None]:
    """The values without an equal that lead to the outputs, in the order of execution."""
    found: set[str] = set()
    pending = [name for name in outputs if name in side.inputs_of]
    while pending:
        name = pending.pop()
        if name in found or (name in matched and name not in outputs):
            continue
        if side.node(name) is not None:
            found.add(name)
            pending += side.inputs_of[name]
    return dict.fromkeys(name for name in side.order if name in found)


def _counterparts(
    reference: Side,
    candidate: Side,
    of_reference: dict[str, None],
    of_candidate: dict[str, None],
    first_reference: list[str],
    first_candidate: list[str],
) -> tuple[str, str]:
    """The first value of one side, with the value near the other side's first ones that is closest to it.

    One operator may be several on the other side (a decomposition), and several may be one (a fused layer), so either side's
    first value is compared with the values that follow the other's.
    """
    near_reference = _following(reference, of_reference, first_reference)
    near_candidate = _following(candidate, of_candidate, first_candidate)
    pairs = [(a, b, depth) for a in first_reference[:3] for b, depth in near_candidate]
    pairs += [(a, b, depth) for b in first_candidate[:3] for a, depth in near_reference]
    scored = [(_score(reference, candidate, a, b, depth), a, b) for a, b, depth in pairs]
    score, a, b = min(scored, key=lambda s: s[0])
    if score == float("inf"):
        return first_reference[0], first_candidate[0]
    return a, b


def _score(reference: Side, candidate: Side, a: str, b: str, depth: int) -> float:
    one, other = reference.held.get(a), candidate.held.get(b)
    if one is None or other is None:
        return float("inf")
    return (distance(one, other) + 1e-6) * _PER_STEP**depth


def _following(side: Side, unmatched: dict[str, None], first: list[str]) -> list[tuple[str, int]]:
    """The unmatched values from the first ones on, with their distance in operators."""
    depth = dict.fromkeys(first, 0)
    for name in unmatched:
        steps = [depth[i] + 1 for i in side.inputs_of[name] if i in depth]
        if name not in depth and steps:
            depth[name] = min(steps)
    return sorted(((n, d) for n, d in depth.items() if d <= _NEAR), key=lambda found: found[1])


def _boundary(side: Side, unmatched: dict[str, None], name: str) -> tuple[str, ...]:
    """The values with an equal on the other side from which a value is computed."""
    found: dict[str, None] = {}
    seen: set[str] = set()
    pending = [name]
    while pending:
        for read in side.inputs_of[pending.pop()]:
            if read not in unmatched:
                found[read] = None
            elif read not in seen:
                seen.add(read)
                pending.append(read)
    return tuple(found)
