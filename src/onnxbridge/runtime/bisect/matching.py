"""Which values of two models hold the same: paired by name where the two share names, otherwise by what they hold."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from onnxbridge.runtime.bisect.fingerprint import Array, noise, same
from onnxbridge.runtime.bisect.recorded_run import Side

SHARED = 0.6
"""Names are relied on if this share of the candidate's values has a name of the reference's and the same operator there."""
_SMALL = 4
"""Tensors of fewer elements may be equal by chance, so their operators must be the same too."""


@dataclass
class Matches:
    """Pairs of values that hold the same.

    Attributes:
        by_name: whether names decide.
        reference_of, candidate_of: the name on the other side.
    """

    by_name: bool
    reference_of: dict[str, str] = field(default_factory=dict)
    candidate_of: dict[str, str] = field(default_factory=dict)
    allowed: dict[str, Array] = field(default_factory=dict)

    def add(self, reference: str, candidate: str) -> None:
        self.candidate_of.setdefault(reference, candidate)
        self.reference_of.setdefault(candidate, reference)

    @property
    def how(self) -> str:
        return "by name" if self.by_name else "by what they hold"


def match(reference: Side, candidate: Side, inputs: Mapping[str, str]) -> Matches:
    """Pair the values of two recorded runs. `inputs` are the candidate's inputs by the reference's."""
    allowed = {
        name: noise(held, reference.rounded.get(name) or held) for name, held in reference.held.items() if held is not None
    }
    found = Matches(_share_names(reference, candidate), allowed=allowed)
    for a, b in inputs.items():
        found.add(a, b)
    if found.by_name:
        for name in candidate.order:
            if name in reference.held and agree(reference, candidate, name, name, allowed):
                found.add(name, name)
    _match_contents(reference, candidate, found)
    return found


def _share_names(reference: Side, candidate: Side) -> bool:
    computed = [name for name in candidate.order if candidate.node(name) is not None]
    same = [name for name in computed if name in reference.values and _op(reference, name) == _op(candidate, name)]
    return len(same) >= SHARED * max(len(computed), 1)


def _match_contents(reference: Side, candidate: Side, found: Matches) -> None:
    by_size: dict[tuple[str, int], list[str]] = defaultdict(list)
    for name in reference.order:
        held = reference.held.get(name)
        if held is not None and not (found.by_name and name in candidate.values):
            by_size[held.kind, held.size].append(name)
    norms = {key: np.array([_norm(reference, n) for n in names]) for key, names in by_size.items()}
    for name in candidate.order:
        held = candidate.held.get(name)
        if held is None or name in found.reference_of or (found.by_name and name in reference.values):
            continue
        names = by_size.get((held.kind, held.size), [])
        if not names:
            continue
        near = np.abs(norms[held.kind, held.size] - held.scale) <= 0.01 * held.scale + 1e-30
        equal = [names[i] for i in np.flatnonzero(near) if agree(reference, candidate, names[i], name, found.allowed)]
        if held.size < _SMALL:
            equal = [a for a in equal if _op(reference, a) == _op(candidate, name)]
        if not equal:
            continue
        best = max(equal, key=lambda a: _same_inputs(reference, candidate, a, name, found))
        for a in equal:
            found.candidate_of.setdefault(a, name)
        found.add(best, name)


def _norm(side: Side, name: str) -> float:
    held = side.held[name]
    return 0.0 if held is None else held.scale


def agree(reference: Side, candidate: Side, a: str, b: str, allowed: Mapping[str, Array]) -> bool:
    """Whether a value of the reference and one of the candidate hold the same, up to rounding and layout."""
    one, other = reference.held.get(a), candidate.held.get(b)
    return one is not None and other is not None and same(one, other, allowed.get(a))


def _same_inputs(reference: Side, candidate: Side, a: str, b: str, found: Matches) -> tuple[int, bool, bool]:
    """How well two equal values fit together: shared inputs, the same operator, the same name."""
    read = {found.reference_of.get(name) for name in candidate.inputs_of[b]}
    shared = sum(name in read for name in reference.inputs_of[a])
    return shared, _op(reference, a) == _op(candidate, b), a == b


def _op(side: Side, name: str) -> str:
    node = side.node(name)
    return "" if node is None else node.op_type
