"""Outputs that hang on random numbers, which no two runs have alike: both sides are run often, and their spread is compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.runtime.verify.compare import Comparison, Tolerance, span_of

RUNS = 16
FAR = 8.0
"""How many standard errors apart two sides may be: by chance that happens once in ten million comparisons of so many runs."""
_SAME = 1e-3
_OPERATORS = ("Random", "Multinomial", "Bernoulli")


def is_chance(node: ir.Node) -> bool:
    """Whether a node draws random numbers: Dropout where it trains."""
    if node.op_type == "Dropout":
        mode = node.inputs[2] if len(node.inputs) > 2 else None
        return mode is not None and (mode.const_value is None or bool(mode.const_value.numpy()))
    return node.op_type.startswith(_OPERATORS)


def by_chance(model: ir.Model) -> frozenset[str]:
    """The outputs that hang on random numbers."""
    chancy = {name for name, function in model.functions.items() if any(map(is_chance, function.all_nodes()))}
    touched: set[ir.Value] = set()
    for node in model.graph:
        own = [node, *(n for a in node.attributes.values() if a.type == ir.AttributeType.GRAPH for n in a.as_graph().all_nodes())]
        met = (v for n in own for v in n.inputs)
        if any(is_chance(n) or n.op_identifier() in chancy for n in own) or any(v in touched for v in met if v is not None):
            touched.update(node.outputs)
    return frozenset(str(v.name) for v in model.graph.outputs if v in touched)


def apart(runs: Sequence[Callable[[], Mapping[str, Any]]], names: Sequence[str]) -> dict[str, str]:
    """In what the two sides differ in each output, "" where they do not, from many runs of both on the same inputs."""
    many = [[run() for _ in range(RUNS)] for run in runs]
    return {name: _difference(*([_numbers(result[name]) for result in side] for side in many)) for name in names}


def alike(name: str, wanted: Any, got: Any, difference: str) -> Comparison:
    """One output of one sample, of which only type and shape can be compared, and the `difference` that many runs told."""
    r, c = np.asarray(wanted), np.asarray(got)
    passed = (r.dtype, r.shape) == (c.dtype, c.shape) and not difference
    notes = [f"it hangs on random numbers: type, shape and, over {RUNS} runs, mean and spread are compared"]
    if (r.dtype, r.shape) != (c.dtype, c.shape):
        notes.append(f"{c.dtype}{list(c.shape)} instead of {r.dtype}{list(r.shape)}")
    notes += [difference] if difference else []
    far, tolerance = 0.0 if passed else np.inf, Tolerance(0.0, 0.0, origin="by chance")
    return Comparison(
        name, r.shape, str(r.dtype), far, far, tolerance, passed, far, tuple(notes), elements=r.size, span=span_of(r)
    )  # fmt: skip


def _numbers(value: Any) -> np.ndarray[Any, Any]:
    return np.asarray(value).astype(np.float64).reshape(-1)


_TOLD: Mapping[str, Callable[[np.ndarray[Any, Any]], Any]] = {
    "mean": np.mean, "mean magnitude": lambda x: np.mean(np.abs(x)), "spread": np.std,
    "share of zeros": lambda x: np.mean(x == 0),
}  # fmt: skip


def _difference(wanted: list[np.ndarray[Any, Any]], got: list[np.ndarray[Any, Any]]) -> str:
    if not all(x.size and np.isfinite(x).all() for x in (*wanted, *got)):
        return ""
    for what, measure in _TOLD.items():
        a, b = (np.array([measure(x) for x in side]) for side in (wanted, got))
        error = np.sqrt((a.var(ddof=1) + b.var(ddof=1)) / RUNS) * FAR + _SAME * max(abs(a.mean()), abs(b.mean()))
        if abs(a.mean() - b.mean()) > error:
            return f"over {RUNS} runs the {what} is {b.mean():.4g} instead of {a.mean():.4g}"
    return ""
