"""Bisection: which values of two hub models differ first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxbridge.hub.ir import source_locations
from onnxbridge.runtime.bisect.align import aligned
from onnxbridge.runtime.bisect.bisection import FirstDivergence
from onnxbridge.runtime.bisect.causes import causes
from onnxbridge.runtime.bisect.first_divergence import Divergence, first_divergence
from onnxbridge.runtime.bisect.layer_errors import layer_errors
from onnxbridge.runtime.bisect.matching import agree, match
from onnxbridge.runtime.bisect.neighbourhood import Neighbourhood, neighbourhood
from onnxbridge.runtime.bisect.recorded_run import Side
from onnxbridge.runtime.bisect.reproduction import Part
from onnxbridge.runtime.verify.compare import Comparison, compare
from onnxbridge.runtime.verify.layer_error import LayerError

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Found:
    """What comparing two hub models found; `first` is None where they compute the same."""

    first: FirstDivergence | None
    runs: tuple[int, int]
    paired: str
    values: tuple[int, int]
    parts: tuple[Part, ...] = ()
    layers: tuple[LayerError, ...] = ()
    graph: Neighbourhood | None = None


def search(a: Side, b: Side, inputs: Mapping[str, str], outputs: Mapping[str, str], progress: Progress) -> Found:
    """Run the reference and the candidate in float64 and find the first values that differ.

    `inputs` and `outputs` are the candidate's names by the reference's.
    """
    progress("running the reference in float64")
    a.record()
    progress("measuring rounding")
    a.record_rounding()
    progress("running the candidate in float64")
    b.record()
    progress("pairing values")
    matches = match(a, b, inputs)
    differing = [(one, other) for one, other in outputs.items() if not agree(a, b, one, other, matches.allowed)]
    pair = first_divergence(a, b, matches, differing) if differing else None
    counted = len(a.held), len(b.held)
    layers = layer_errors(a, b.held, None if matches.by_name else matches.candidate_of)
    if pair is None:
        return Found(None, (a.runs, b.runs), matches.how, counted, layers=layers)
    progress("fetching the values that differ")
    first, parts = _described(a, b, pair)
    graph = neighbourhood(a, pair.reference, set(matches.candidate_of))
    return Found(first, (a.runs, b.runs), matches.how, counted, parts, layers, graph)


def _described(a: Side, b: Side, pair: Divergence) -> tuple[FirstDivergence, tuple[Part, ...]]:
    of_a = a.fetch([pair.reference, *pair.reference_inputs])
    of_b = b.fetch([pair.candidate, *pair.candidate_inputs])
    node, other = a.node(pair.reference), b.node(pair.candidate)
    assert node is not None and other is not None  # inputs always agree
    first = FirstDivergence(
        pair.reference, pair.candidate, node.op_type, other.op_type, source_locations.read(node),
        np.asarray(of_a[pair.reference]), np.asarray(of_b[pair.candidate]), _compared(a, pair, of_a, of_b),
        causes(a.nodes_between(pair.reference_inputs, pair.reference), b.nodes_between(pair.candidate_inputs, pair.candidate)),
        pair.others,
    )  # fmt: skip
    parts = (
        Part("reference", a.model, {n: of_a[n] for n in pair.reference_inputs}, pair.reference),
        Part("candidate", b.model, {n: of_b[n] for n in pair.candidate_inputs}, pair.candidate),
    )
    return first, parts


def _compared(a: Side, pair: Divergence, of_a: Mapping[str, Any], of_b: Mapping[str, Any]) -> Comparison | None:
    """The two arrays under the tolerance that rounding at this value explains."""
    reference, candidate = np.asarray(of_a[pair.reference]), np.asarray(of_b[pair.candidate])
    moved = aligned(reference, candidate)
    if moved is None:
        return None
    return compare(pair.reference, reference, moved, a.tolerance_at(pair.reference, reference))
