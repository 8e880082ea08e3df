"""Inputs with NaN and infinities, and empty inputs, for models whose operators define what they compute of them.

The standard leaves open what Relu or MaxPool make of NaN, and runtimes differ. IEEE 754 defines arithmetic and comparisons, but
not sums of many numbers: compensated ones, as MXNet's, are NaN where a plain one is infinite.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.runtime.verify.samples.not_finite import IEEE, NOT_FINITE
from onnxbridge.runtime.verify.samples.random_inputs import Bounds, samples_for
from onnxbridge.runtime.verify.samples.sizes import dynamic, sizes_of

_OF_EMPTY = IEEE | {
    "Relu", "Clip", "Max", "Min", "Sign", "Cast", "Tanh", "Sigmoid", "Erf", "Pow", "Sin", "Cos", "Round", "ReduceProd", "MatMul",
    "CumSum", "Softmax", "LogSoftmax",
}  # fmt: skip


def unusual_inputs(
    graph: ir.Graph, sample: Mapping[str, Any], seed: int, bounds: Bounds, empty: bool = True
) -> Iterator[tuple[str, dict[str, Any]]]:
    """What is unusual, and such inputs, as far as all operators of the graph are defined on them; `empty`: empty ones, too."""
    operators = {node.op_type if not node.domain else node.domain for node in graph.all_nodes()}
    floating = [v.name or "" for v in graph.inputs if v.dtype is not None and v.dtype.is_floating_point()]
    arrays = bool(floating) and all(isinstance(sample[name], np.ndarray) for name in floating)
    if arrays and operators <= IEEE and not _may_be_complex(graph):
        rng = np.random.default_rng(seed)
        values, what = ((np.nan,), "NaN") if "ReduceSum" in operators else (NOT_FINITE, "NaN and infinities")
        yield f"inputs with {what}", {**sample, **{name: _with(rng, values, sample[name]) for name in floating}}
    if empty and operators <= _OF_EMPTY and dynamic(graph) and not any(low for low, _ in bounds.values()):
        yield "empty inputs", samples_for(graph, 1, seed, dict.fromkeys(sizes_of(graph, sample), (0, 0)))[0]


def _may_be_complex(graph: ir.Graph) -> bool:
    """Whether a last axis of 2 may be the parts of complex numbers, whose products with infinities no standard defines."""
    values = [*graph.inputs, *(o for node in graph.all_nodes() for o in node.outputs)]
    return any(v.shape is not None and len(v.shape) and v.shape[-1] == 2 for v in values)


def _with(rng: np.random.Generator, values: Sequence[float], array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy with these values at a quarter of its elements."""
    made = array.copy()
    positions = rng.permutation(made.size)[: -(-made.size // 4)]
    made.reshape(-1)[positions] = np.resize(values, positions.size)
    return made
