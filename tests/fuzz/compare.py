"""A random graph in ONNX Runtime, in our executor with all it joins, and by the expansions of its operators."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort

from onnxbridge.errors import ConversionError
from onnxbridge.hub import passes
from onnxbridge.hub.decompositions.standard import expand
from onnxbridge.hub.io import onnx_files
from onnxbridge.hub.ir import inference
from onnxbridge.hub.ir.schemas import name_of
from onnxbridge.hub.opset import opset_conversion
from onnxbridge.runtime import Executor
from onnxbridge.runtime.executor import compiled_model
from onnxbridge.runtime.executor.numpy.ops import rule
from onnxbridge.runtime.executor.plan_compiler import Settings
from tests.fuzz.graphs import Graph

# Relative, and absolute to the largest number of a result: half of the type's digits or more.
TOLERANCE = {"float16": 2e-2, "bfloat16": 6e-2, "float32": 2e-4, "float64": 1e-7}
QUANTIZING = {"QuantizeLinear", "DynamicQuantizeLinear", "QLinearMatMul", "QLinearConv"}
STRANGE = ("bfloat", "float8", "float4", "int4", "uint4", "int2", "uint2")
# Of these a result in a wider type is not the same in more digits.
ONE_TYPE = {
    "Cast", "CastLike", "BitCast", "QuantizeLinear", "DequantizeLinear", "BitwiseNot", "BitShift", "IsInf", "IsNaN", "EyeLike",
}  # fmt: skip


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
    if _strange(got) and got.dtype.name not in TOLERANCE:
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
    from onnxbridge.hub.decompositions.lookup import body_of

    core = {op: r for op, r in rule.items() if op not in expand}

    def settings(*how: Any) -> Settings:
        return Settings(core, _plain(*how).constant, body_of)

    _plain = compiled_model._settings
    with mock.patch.object(compiled_model, "_settings", settings):
        yield


def compare(graph: Graph) -> tuple[list[Disagreement], list[str]]:
    """The disagreements on a graph's nodes, and who could not run it: "ort" has no kernel for it, or refuses it."""
    if graph.error is not None:
        return _refused(graph)
    model = graph.model()
    feeds = graph.inputs_of(model)
    found: list[Disagreement] = []
    skipped: list[str] = []
    names = [o.name for o in model.graph.output]
    for whom, results in _ways(model, feeds):
        whole = dict(zip(names, results, strict=True))
        for node in graph.nodes:
            for name in node.output:
                if what := differs(whole[name], graph.values[name], node.op_type):
                    found.append(Disagreement(whom, node, what))
    for node in graph.nodes:
        one = graph.model([node])
        given = graph.inputs_of(one)
        if all(map(_ordinary, given.values())) and node.op_type not in QUANTIZING:
            exact = Executor(one, precision="float64").run(None, given)
            ours = [graph.values[o] for o in node.output]
            found += _each("float64", node, [_as(e, o) for e, o in zip(exact, ours, strict=True)], ours)
        try:
            expected = _by_ort(graph, node, graph.model([node]), given)
        except Exception as e:
            expected = _by_wider(graph, node, given)
            if expected is None:
                skipped.append(f"ort: {node.op_type}: {str(e)[:90]}")
        if expected is not None:
            found += _each("ort", node, [graph.values[o] for o in node.output], expected)
        if name_of(node.op_type, node.domain) in expand or any(a.HasField("g") for a in node.attribute):
            try:
                with only_core():
                    written = Executor(_inferred(one)).run(None, given)
            except inference.Contradiction as e:
                skipped.append(f"expansion: {node.op_type}: {str(e)[:90]}")
            except ConversionError as e:
                skipped.append(f"expansion: {node.op_type}: {e.problems[0].reason}")
            except Exception as e:
                found.append(Disagreement("expansion", node, f"{type(e).__name__}: {e}"))
            else:
                found += _each("expansion", node, written, [graph.values[o] for o in node.output])
    return found, skipped


def _ways(model: onnx.ModelProto, feeds: dict[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    """The same model as one plan, as it is recorded and played again, and without machine code."""
    with mock.patch.dict(os.environ, {"ONNXBRIDGE_NATIVE": "1"}):
        whole = Executor(model)
        yield "plan", whole.run(None, feeds)
        yield "second run", whole.run(None, feeds)
        yield "third run", whole.run(None, feeds)
    with mock.patch.dict(os.environ, {"ONNXBRIDGE_NATIVE": "0"}):
        yield "NumPy alone", Executor(model).run(None, feeds)


def _inferred(model: onnx.ModelProto) -> ir.Model:
    """The model with the types and shapes of its values, which expansions may ask for."""
    hub = opset_conversion.to_hub(onnx_files.from_proto(model))
    passes.infer(hub)
    return hub


def _by_ort(graph: Graph, node: onnx.NodeProto, one: onnx.ModelProto, given: dict[str, Any]) -> list[Any]:
    """A node's results; those of a type that ONNX Runtime does not give to Python come through float32."""
    unseen = [o for o in node.output if _strange(graph.values[o])]
    given = dict(given)
    for put in [i for i in one.graph.input if _strange(given[i.name])]:
        # Python hands it no such numbers: float32 holds them all
        kind, name = put.type.tensor_type.elem_type, put.name
        put.type.tensor_type.elem_type, put.name = onnx.TensorProto.FLOAT, f"{name}_given"
        given[f"{name}_given"] = given.pop(name).astype(np.float32)
        one.graph.node.insert(0, onnx.helper.make_node("Cast", [f"{name}_given"], [name], to=kind))
    for name in unseen:
        one.graph.node.append(onnx.helper.make_node("Cast", [name], [f"{name}_seen"], to=onnx.TensorProto.FLOAT))
        next(o for o in one.graph.output if o.name == name).name = f"{name}_seen"
    results = session(one).run(None, given)
    return [r.astype(graph.values[o].dtype) if o in unseen else r for o, r in zip(node.output, results, strict=True)]


WIDER = {
    "bfloat16": np.float32, "float16": np.float32, "float64": np.float32, "int8": np.int64, "int16": np.int64, "int32": np.int64,
    "uint8": np.int64, "uint16": np.int64, "uint32": np.int64, "uint64": np.int64,
}  # fmt: skip


def _by_wider(graph: Graph, node: onnx.NodeProto, given: dict[str, Any]) -> list[Any] | None:
    """The results of a node for whose types ONNX Runtime has no kernel, in wider types, brought to ours; None without one."""
    if node.op_type in ONE_TYPE or any(a.HasField("g") for a in node.attribute):
        return None
    for kinds in (WIDER, {**WIDER, **dict.fromkeys([k for k in WIDER if "int" in k], np.int32)}):
        wide = replace(graph, values=dict(graph.values), held=dict(graph.held))
        for name in {n for n in node.input if n}:
            value = graph.values[name]
            kind = kinds.get(value.dtype.name) if isinstance(value, np.ndarray) else None
            if kind is not None:
                wide.values[name] = value.astype(kind)
                if name in wide.held:
                    wide.held[name] = wide.values[name]
        if not all(_holds(wide.values[n], graph.values[n]) for n in node.input if n):
            continue
        one = wide.model([node])
        try:
            results = session(one).run(None, wide.inputs_of(one))
        except Exception:
            continue
        ours = [graph.values[o] for o in node.output]
        if all(isinstance(r, np.ndarray) and isinstance(o, np.ndarray) for r, o in zip(results, ours, strict=True)):
            return [_wrapped(r, o) for r, o in zip(results, ours, strict=True)]
    return None


def _holds(wide: Any, value: Any) -> bool:
    """Whether no number of a value left the type that it was brought to."""
    if not isinstance(value, np.ndarray) or value.dtype == object:
        return True
    large, given = wide.astype(np.float64), value.astype(np.float64)
    return bool((np.isfinite(large) == np.isfinite(given)).all() and (value.dtype.kind not in "iu" or (large == given).all()))


def _wrapped(wide: Any, ours: Any) -> Any:
    """A result of wider numbers in our type; float64, which was judged in float32, keeps our digits where those agree."""
    if ours.dtype != np.float64 or wide.dtype != np.float32 or wide.shape != ours.shape:
        return wide.astype(ours.dtype)
    return ours if not differs(ours.astype(np.float32), wide, "") else wide.astype(ours.dtype)


def _ordinary(value: Any) -> bool:
    """Whether no product or power of such numbers leaves float32, as it would not leave float64."""
    if isinstance(value, list):
        return all(map(_ordinary, value))
    if value.dtype == object or value.dtype.kind not in "fV":
        return True
    size = np.abs(value.astype(np.float64))
    return bool(np.isfinite(size).all() and ((size == 0) | ((size > 1e-3) & (size < 8))).all())


def _as(exact: Any, ours: Any) -> Any:
    """A result of float64 mode in the type that the model declares."""
    if isinstance(exact, list):
        return [_as(e, o) for e, o in zip(exact, ours, strict=True)]
    wide = isinstance(exact, np.ndarray) and exact.dtype == np.float64 and hasattr(ours, "dtype")
    return exact.astype(ours.dtype) if wide and ours.dtype.kind in "fV" else exact


def _strange(value: Any) -> bool:
    """Whether a value is of a type that ONNX Runtime does not hand over to Python."""
    return isinstance(value, np.ndarray) and value.dtype.name.startswith(STRANGE)


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
