"""Pairs the weights of two models and compares each pair."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from onnxbridge.hub.analysis.graph_diff.difference import WeightChange, WeightSummary
from onnxbridge.hub.analysis.graph_diff.weights import distance, is_transposed, tensor_text


@dataclass(frozen=True)
class Weight:
    """A weight and its name, which for a subgraph or function contains the path."""

    name: str
    value: ir.Value
    tensor: ir.TensorProtocol
    digest: bytes


@dataclass
class WeightPairs:
    """Weights of the second model by those of the first, as values, and what differs."""

    values: dict[ir.Value, ir.Value] = field(default_factory=dict)
    changed: list[WeightChange] = field(default_factory=list)
    renamed: list[tuple[str, str]] = field(default_factory=list)
    added: list[WeightSummary] = field(default_factory=list)
    removed: list[WeightSummary] = field(default_factory=list)


def compare_weights(
    first: Sequence[Weight], second: Sequence[Weight], proposed: Sequence[tuple[ir.Value, ir.Value]]
) -> WeightPairs:
    """Pair the weights: those with equal names and elements, then those that matched nodes read (`proposed`), then by name,
    by digest, and matrices that were transposed."""
    left, right = {w.value: w for w in first}, {w.value: w for w in second}
    found = WeightPairs()

    def pair(a: Weight, b: Weight) -> None:
        if a.value in left and b.value in right:
            del left[a.value], right[b.value]
            found.values[a.value] = b.value
            _compare(a, b, found)

    def by(key: Callable[[Weight], object]) -> None:
        groups: dict[object, list[Weight]] = defaultdict(list)
        for w in list(right.values()):
            groups[key(w)].append(w)
        for a in list(left.values()):
            if same := groups.get(key(a)):
                pair(a, same.pop(0))

    by(lambda w: (w.name, w.digest))
    for x, y in proposed:
        if x in left and y in right:
            pair(left[x], right[y])
    by(lambda w: w.name)
    by(lambda w: w.digest)
    for a in list(left.values()):
        for b in list(right.values()) if len(right) * len(left) <= 10_000 else ():
            if is_transposed(a.tensor, b.tensor):
                pair(a, b)
                break
    found.removed += [_summary(w) for w in left.values()]
    found.added += [_summary(w) for w in right.values()]
    found.changed.sort(key=lambda c: -(c.distance.relative if c.distance is not None else float("inf")))
    return found


def _compare(a: Weight, b: Weight, found: WeightPairs) -> None:
    if a.digest == b.digest:
        if a.name != b.name:
            found.renamed.append((a.name, b.name))
        return
    gap = distance(a.tensor, b.tensor)
    new_name = "" if a.name == b.name else b.name
    found.changed.append(
        WeightChange(
            a.name, new_name, tensor_text(a.tensor), tensor_text(b.tensor), gap, gap is None and is_transposed(a.tensor, b.tensor)
        )
    )


def _summary(w: Weight) -> WeightSummary:
    return WeightSummary(w.name, tensor_text(w.tensor), w.tensor.nbytes)
