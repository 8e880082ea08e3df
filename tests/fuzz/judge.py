"""A random graph in ONNX Runtime, in our executor with all it joins, and by the expansions of its operators."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import onnx
import onnxruntime as ort
from graphs import Graph

from onnxbridge.errors import ConversionError
from onnxbridge.hub.expand import expand
from onnxbridge.hub.schemas import name_of
from onnxbridge.runtime import Executor, executor
from onnxbridge.runtime.numpy.ops import rule
from onnxbridge.runtime.plan import Settings

# Relative, and absolute to the largest number of a result: half of the type's digits or more.
TOLERANCE = {"float16": 2e-2, "bfloat16": 6e-2, "float32": 2e-4, "float64": 1e-7}
QUANTIZING = {"QuantizeLinear", "DynamicQuantizeLinear", "QLinearMatMul", "QLinearConv"}


@dataclass(frozen=True)
class Disagreement:
    """`whom` is "ort", "plan" or "expansion"; `node` the first node with the same inputs and other results."""

    whom: str
    node: onnx.NodeProto
    what: str


def session(model: onnx.ModelProto) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def differs(got: Any, expected: Any, op: str) -> str:
    """How a result differs from what was expected, "" where it does not."""
    if isinstance(expected, list) or isinstance(got, list):
        if not (isinstance(expected, list) and isinstance(got, list)) or len(got) != len(expected):
            return "another sequence"
        return next(filter(None, (differs(g, e, op) for g, e in zip(got, expected, strict=True))), "")
    got, expected = np.asarray(got), np.asarray(expected)
    if got.shape != expected.shape:
        return f"shape {list(got.shape)} against {list(expected.shape)}"
    if got.dtype.kind in "OU" or expected.dtype.kind in "OU":
        same = got.astype(str).tolist() == expected.astype(str).tolist()
        return "" if same or op == "Cast" and _same_numbers(got, expected) else "other texts"
    if got.dtype != expected.dtype:
        return f"type {got.dtype} against {expected.dtype}"
    if got.dtype.name.startswith("float8"):
        return "" if np.array_equal(got.astype(np.float32), expected.astype(np.float32), equal_nan=True) else "other numbers"
    if got.dtype.name not in TOLERANCE:
        most = 1 if op in QUANTIZING else 0
        apart = np.abs(got.astype(np.float64) - expected.astype(np.float64))
        return "" if np.array_equal(got, expected) or (apart <= most).all() else "other numbers"
    tolerance = TOLERANCE[got.dtype.name]
    got, expected = got.astype(np.float64), expected.astype(np.float64)
    if not np.array_equal(np.isnan(got), np.isnan(expected)):
        return "NaN in other places"
    if not np.array_equal(np.where(np.isinf(got), got, 0), np.where(np.isinf(expected), expected, 0)):
        return "infinity in other places"
    finite = np.where(np.isfinite(expected), expected, 0)
    size = 1 if op.endswith("Window") or op in ("RNN", "GRU", "LSTM") else min(np.abs(finite).max(initial=0), 1e3)
    apart = np.abs(np.where(np.isfinite(got), got - expected, 0))
    return "" if (apart <= tolerance * (np.abs(finite) + size)).all() else "other numbers"


def _same_numbers(got: Any, expected: Any) -> bool:
    """Numbers that were written as texts: how many digits are written is the engine's own affair."""
    try:
        return np.allclose(got.astype(np.float64), expected.astype(np.float64), rtol=2e-3, equal_nan=True)
    except ValueError:
        return False


@contextlib.contextmanager
def only_core() -> Iterator[None]:
    """The executor without its rules for operators that have an expansion."""
    from onnxbridge.hub.expand import body_of

    core = {op: r for op, r in rule.items() if op not in expand}

    def settings(wide: bool) -> Settings:
        made = _plain(wide)
        return Settings(core, made.constant, body_of)  # type: ignore[arg-type]

    _plain = executor._settings
    with mock.patch.object(executor, "_settings", settings):
        yield


def compare(graph: Graph) -> tuple[list[Disagreement], list[str]]:
    """The disagreements on a graph's nodes, and who could not run it: "ort" has no kernel for it, or refuses it."""
    if graph.error is not None:
        return _refused(graph)
    model = graph.model()
    feeds = graph.inputs_of(model)
    found: list[Disagreement] = []
    skipped: list[str] = []
    whole = dict(zip([o.name for o in model.graph.output], Executor(model).run(None, feeds), strict=True))
    for node in graph.nodes:
        for name in node.output:
            if what := differs(whole[name], graph.values[name], node.op_type):
                found.append(Disagreement("plan", node, what))
    for node in graph.nodes:
        one = graph.model([node])
        given = graph.inputs_of(one)
        try:
            expected = _by_ort(graph, node, one, given)
        except Exception as e:
            skipped.append(f"ort: {node.op_type}: {str(e)[:90]}")
        else:
            found += _each("ort", node, [graph.values[o] for o in node.output], expected)
        if name_of(node.op_type, node.domain) in expand:
            try:
                with only_core():
                    written = Executor(one).run(None, given)
            except ConversionError as e:
                skipped.append(f"expansion: {node.op_type}: {e.problems[0].reason}")
            except Exception as e:
                found.append(Disagreement("expansion", node, f"{type(e).__name__}: {e}"))
            else:
                found += _each("expansion", node, written, [graph.values[o] for o in node.output])
    return found, skipped


def _by_ort(graph: Graph, node: onnx.NodeProto, one: onnx.ModelProto, given: dict[str, Any]) -> list[Any]:
    """A node's results; those of a type that ONNX Runtime does not give to Python come through float32."""
    unseen = [o for o in node.output if getattr(graph.values[o], "dtype", np.dtype(bool)).name.startswith(("bfloat", "float8"))]
    for name in unseen:
        one.graph.node.append(onnx.helper.make_node("Cast", [name], [f"{name}_seen"], to=onnx.TensorProto.FLOAT))
        next(o for o in one.graph.output if o.name == name).name = f"{name}_seen"
    results = session(one).run(None, given)
    return [r.astype(graph.values[o].dtype) if o in unseen else r for o, r in zip(node.output, results, strict=True)]


def _each(whom: str, node: onnx.NodeProto, got: list[Any], expected: list[Any]) -> list[Disagreement]:
    told = (differs(g, e, node.op_type) for g, e in zip(got, expected, strict=True))
    return [Disagreement(whom, node, what) for what in told if what][:1]


def _refused(graph: Graph) -> tuple[list[Disagreement], list[str]]:
    """Our executor raises on the last node: ONNX Runtime should too."""
    node = graph.nodes[-1]
    one = graph.model([node])
    try:
        session(one).run(None, graph.inputs_of(one))
    except Exception:
        return [], [f"both: {node.op_type}"]
    return [Disagreement("ort", node, f"we refuse: {type(graph.error).__name__}: {str(graph.error)[:200]}")], []
