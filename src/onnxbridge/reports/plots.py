"""What HTML reports draw beside the document: elements of outputs, the error of each layer, the graph around a divergence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_ELEMENTS, _OF_ALL = 1000, 20000
"""The most elements of an output that are drawn, and of all outputs of a report together."""
_LAYERS = 3000
"""Of models with more layers those with the largest errors are drawn."""


def plots(found: Any) -> dict[str, Any]:
    """What is drawn of a result of `convert`, `verify`, `bisect` or `round_trip`.

    Returns:
        A dict with `outputs`, `layers` and `graph`; for a round trip with `steps`, one such dict for each.
    """
    if hasattr(found, "steps"):
        return {"steps": [plots(step) for step in found.steps]}
    report = getattr(found, "report", found)
    if report is None:
        return {}
    layers = getattr(found, "layers", ()) or report.layers
    graph = getattr(found, "graph", None)
    return {
        "outputs": _outputs(report.drawn), "layers": _layers(layers), "all_layers": len(layers),
        "graph": None if graph is None else graph.as_dict(),
    }  # fmt: skip


def _outputs(drawn: Mapping[str, tuple[Any, Any]]) -> dict[str, Any]:
    most = max(1, min(_ELEMENTS, _OF_ALL // max(len(drawn), 1)))
    found = {}
    for name, (reference, candidate) in drawn.items():
        finite = np.isfinite(reference) & np.isfinite(candidate)
        pair = reference[finite], candidate[finite]
        step = -(-len(pair[0]) // most) or 1
        found[name] = {"reference": _numbers(pair[0][::step]), "candidate": _numbers(pair[1][::step])}
    return found


def _numbers(values: Any) -> list[float]:
    return [float(f"{v:.8g}") for v in values.tolist()]


def _layers(layers: Sequence[Any]) -> list[dict[str, Any]]:
    order: Sequence[int] = range(len(layers))
    if len(layers) > _LAYERS:
        order = sorted(sorted(order, key=lambda i: -layers[i].error)[:_LAYERS])
    return [
        {"name": one.name, "op": one.op, "location": str(one.location), "error": one.error, "rounding": one.rounding}
        for one in (layers[i] for i in order)
    ]
