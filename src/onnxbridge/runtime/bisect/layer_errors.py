"""The error of each layer: how far a candidate's intermediate values are from those of the reference's graph in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.ir import source_locations
from onnxbridge.runtime.bisect.fingerprint import Fingerprint, distance, fingerprint
from onnxbridge.runtime.bisect.matching import SHARED, match
from onnxbridge.runtime.bisect.recorded_run import Side
from onnxbridge.runtime.verify.layer_error import LayerError
from onnxbridge.runtime.verify.pairing import Runnable, feeds_for


def layer_errors(
    reference: Side, candidate: Mapping[str, Fingerprint | None], names: Mapping[str, str] | None = None
) -> tuple[LayerError, ...]:
    """The error of each floating-point value that both have, in the order of execution.

    Args:
        reference: the graph, recorded in float64 and in its own precision.
        candidate: fingerprints of the candidate's values.
        names: the candidate's name for each of the reference's; None if it uses the same names.
    """
    found = []
    for name in reference.order:
        node, exact = reference.node(name), reference.held.get(name)
        other = candidate.get(name if names is None else names.get(name, ""))
        if node is None or exact is None or other is None or exact.kind != "f" or exact.size != other.size:
            continue
        rounded = reference.rounded.get(name) or exact
        location = source_locations.read(node)
        found.append(LayerError(name, node.op_type, location, _difference(exact, other), _difference(exact, rounded)))
    return tuple(found)


def measured_layers(
    model: ir.Model, feeds: Mapping[str, Any], candidate: Runnable, inputs: Mapping[str, str]
) -> tuple[LayerError, ...]:
    """The error of each layer, of the values that the candidate's framework shows.

    Where the two models share no names, values are paired by what they hold, so that only those that agree are found.

    Args:
        model: the reference's hub model.
        inputs: the candidate's names of the inputs.

    Returns:
        () if the framework shows no values.
    """
    theirs = feeds_for(candidate, feeds, inputs)
    shown: dict[str, Fingerprint | None] = {}

    def see(name: str, value: Any) -> None:
        shown[name] = fingerprint(value)

    if not candidate.watch(theirs, see):
        return ()
    side = Side("reference", model, feeds)
    side.record()
    side.record_rounding()
    by_name = layer_errors(side, shown)
    if candidate.hub is None or len(by_name) >= SHARED * len([name for name in side.order if side.node(name) is not None]):
        return by_name
    other = Side("candidate", candidate.hub, theirs)
    other.record()
    by_contents = layer_errors(side, shown, match(side, other, inputs).candidate_of)
    return max(by_name, by_contents, key=len)


def _difference(a: Fingerprint, b: Fingerprint) -> float:
    along = 0.0
    if a.shape == b.shape:
        scale = max(a.scale, b.scale) + 1e-300
        axes = zip(a.along_axes, b.along_axes, strict=False)
        along = max((float(np.abs(x - y).max(initial=0.0)) / scale for x, y in axes), default=0.0)
    return max(distance(a, b), along)
