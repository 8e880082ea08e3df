"""Statistical comparison of outputs that depend on random operators: both models run many times, and statistics are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.runtime.verify.compare import Comparison, Tolerance, result_array, span_of

RUNS = 16
STANDARD_ERRORS = 8.0
"""The number of standard errors by which two statistics may differ: correct models exceed it once in ten million comparisons."""
_NEGLIGIBLE = 1e-3
_MORE = 4
"""More runs of the second model, from which it is known which elements are larger on average."""
_OPERATORS = ("Random", "Multinomial", "Bernoulli")


def is_random(node: ir.Node) -> bool:
    """Whether a node draws random numbers; Dropout does in training mode."""
    if node.op_type == "Dropout":
        mode = node.inputs[2] if len(node.inputs) > 2 else None
        return mode is not None and (mode.const_value is None or bool(mode.const_value.numpy()))
    return node.op_type.startswith(_OPERATORS)


def random_outputs(model: ir.Model) -> frozenset[str]:
    """The outputs that depend on random numbers."""
    random_functions = {name for name, function in model.functions.items() if any(map(is_random, function.all_nodes()))}
    dependent: set[ir.Value] = set()
    for node in model.graph:
        own = [node, *(n for a in node.attributes.values() if a.type == ir.AttributeType.GRAPH for n in a.as_graph().all_nodes())]
        inputs = (v for n in own for v in n.inputs)
        random = any(is_random(n) or n.op_identifier() in random_functions for n in own)
        if random or any(v in dependent for v in inputs if v is not None):
            dependent.update(node.outputs)
    return frozenset(str(v.name) for v in model.graph.outputs if v in dependent)


def statistical_differences(
    runs: Sequence[Callable[[], Mapping[str, Any]]], names: Sequence[str], replayed: bool = False
) -> dict[str, str]:
    """For each output, the statistic in which many runs of both models on the same inputs differ, "" where none does.

    `replayed`: the first model's outputs are stored ones of a single run.
    """
    reference, candidate = runs
    wanted, got, more = ([run() for _ in range(n)] for run, n in ((reference, RUNS), (candidate, RUNS), (candidate, _MORE)))

    def numbers(results: list[Mapping[str, Any]], name: str) -> list[np.ndarray[Any, Any]]:
        return [_numbers(result[name]) for result in results]

    return {name: _difference(numbers(wanted, name), numbers(got, name), numbers(more, name), replayed) for name in names}


def compare_random(name: str, wanted: Any, got: Any, difference: str) -> Comparison:
    """One output of one sample: its dtype and shape are compared, and `difference` is what `statistical_differences` found."""
    r, c = np.asarray(wanted), np.asarray(got)
    passed = (r.dtype, r.shape) == (c.dtype, c.shape) and not difference
    notes = [f"random output: compared by dtype, shape, mean and deviation over {RUNS} runs"]
    if (r.dtype, r.shape) != (c.dtype, c.shape):
        notes.append(f"{c.dtype}{list(c.shape)} instead of {r.dtype}{list(r.shape)}")
    notes += [difference] if difference else []
    excess, tolerance = 0.0 if passed else np.inf, Tolerance(0.0, 0.0, origin="statistical")
    return Comparison(
        name, r.shape, str(r.dtype), excess, excess, tolerance, passed, excess, tuple(notes), elements=r.size, span=span_of(r)
    )  # fmt: skip


def _numbers(value: Any) -> np.ndarray[Any, Any]:
    return result_array(value).astype(np.float64).reshape(-1)


_STATISTICS: Mapping[str, Callable[[np.ndarray[Any, Any]], Any]] = {
    "mean": np.mean, "mean magnitude": lambda x: np.mean(np.abs(x)), "deviation": np.std,
    "share of zeros": lambda x: np.mean(x == 0),
}  # fmt: skip


def _difference(
    wanted: list[np.ndarray[Any, Any]], got: list[np.ndarray[Any, Any]], more: list[np.ndarray[Any, Any]], replayed: bool
) -> str:
    if not all(x.size and np.isfinite(x).all() for x in (*wanted, *got, *more)):
        return ""
    statistics = dict(_STATISTICS)
    repeats = np.array_equal(more[0], more[1])  # it has a seed
    if not repeats and len({x.size for x in (*wanted, *got, *more)}) == 1:
        pattern = np.mean(more, axis=0)
        pattern = (pattern - pattern.mean()) / max(float(np.abs(pattern - pattern.mean()).sum()), np.finfo(np.float64).tiny)
        statistics["mean of the elements that are larger on average, minus that of the others,"] = lambda x: pattern @ x
    for what, measure in statistics.items():
        a, b = (np.array([measure(x) for x in side]) for side in (wanted, got))
        error = np.sqrt((a.var(ddof=1) + b.var(ddof=1)) / RUNS)
        if replayed:  # one run varies as each of the other model's runs does
            error = np.sqrt((1 + 1 / RUNS) * b.var(ddof=1))
        if abs(a.mean() - b.mean()) > STANDARD_ERRORS * error + _NEGLIGIBLE * max(abs(a.mean()), abs(b.mean())):
            return f"over {RUNS} runs the {what} is {b.mean():.4g} instead of {a.mean():.4g}"
    return ""
