"""The data of the page's charts, in the form that its script gives to Chart.js."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Values = Mapping[str, Any]
_BINS = 40


def charts_of_output(output: Values, drawn: Values) -> dict[str, Any]:
    """Histograms of both models' elements, one against the other, and the error of each beside what is allowed."""
    reference, candidate = (np.asarray(drawn[key], np.float64) for key in ("reference", "candidate"))
    low, high = _range(reference, candidate)
    edges = np.linspace(low, high, _BINS + 1)
    counts = [np.histogram(values, edges)[0].tolist() for values in (reference, candidate)]
    centers = ((edges[:-1] + edges[1:]) / 2).tolist()
    error = np.abs(candidate - reference)
    order = np.argsort(reference, kind="stable")
    atol, rtol = (_finite(output[key]) for key in ("atol", "rtol"))
    limits = [] if atol is None else _points(reference[order], atol + (rtol or 0.0) * np.abs(reference[order]))
    return {
        "histogram": {"centers": _short(centers), "reference": counts[0], "candidate": counts[1]},
        "scatter": {"points": _points(reference, candidate), "ends": _short([low, high])},
        "error": {"points": _points(reference[order], error[order]), "allowed": _thinned(limits)},
    }


def chart_of_layers(layers: Sequence[Values]) -> dict[str, Any]:
    """The error of each layer and that of rounding, in the order of execution."""
    return {
        "titles": [f"{layer['name']} ({layer['op']})" for layer in layers],
        "locations": [layer["location"] for layer in layers],
        "error": _short([_drawable(layer["error"]) for layer in layers]),
        "rounding": _short([_drawable(layer["rounding"]) for layer in layers]),
    }


def _range(*arrays: Any) -> tuple[float, float]:
    values = np.concatenate(arrays)
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)
    return (low, high) if low < high else (low - 0.5, low + 0.5)


def _drawable(value: Any) -> float:
    """On a logarithmic axis: equal values at 1e-9, infinite errors at 1."""
    number = _finite(value)
    return 1.0 if number is None else max(number, 1e-9)


def _finite(value: Any) -> float | None:
    number = float(value)
    return number if np.isfinite(number) else None


def _points(x: Any, y: Any) -> list[dict[str, float]]:
    return [{"x": a, "y": b} for a, b in zip(_short(x), _short(y), strict=True)]


def _thinned(points: list[dict[str, float]]) -> list[dict[str, float]]:
    """A line through some of the points: the last is always one of them."""
    step = max(1, len(points) // 50)
    return [*points[::step], *points[-1:]]


def _short(values: Any) -> list[float]:
    return [float(f"{float(v):.6g}") for v in values]
