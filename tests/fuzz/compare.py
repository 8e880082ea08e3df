"""Compares a random graph in ONNX Runtime, in the executor in all its modes, and with decomposed operators."""

from __future__ import annotations

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
from onnxbridge.hub.decompositions.standard import decompose
from onnxbridge.hub.io import onnx_files
from onnxbridge.hub.ir import inference
from onnxbridge.hub.ir.schemas import name_of
from onnxbridge.hub.opset import opset_conversion
from onnxbridge.runtime import Executor
from tests.fuzz.graphs import Graph

# Relative, and absolute relative to the largest element of a result: at least half of the digits of the dtype.
TOLERANCE = {"float16": 2e-2, "bfloat16": 6e-2, "float32": 2e-4, "float64": 1e-7}
QUANTIZING = {"QuantizeLinear", "DynamicQuantizeLinear", "QLinearMatMul", "QLinearConv"}
NO_PYTHON_DTYPE = ("bfloat", "float8", "float4", "int4", "uint4", "int2", "uint2")
# Operators whose result in a wider dtype is not a more precise version of the same result.
DTYPE_DEPENDENT = {
    "Cast", "CastLike", "BitCast", "QuantizeLinear", "DequantizeLinear", "BitwiseNot", "BitShift", "IsInf", "IsNaN", "EyeLike",
}  # fmt: skip


@dataclass(frozen=True)
class Disagreement:
    """A difference. `checker` is what the executor was compared with; `node` has equal inputs but different results."""

    checker: str
    node: onnx.NodeProto
    difference: str


def session(model: onnx.ModelProto) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def differs(got: Any, expected: Any, op: str) -> str:
    """A description of how a result differs from the expected one, "" if it does not."""
    if isinstance(expected, list) or isinstance(got, list):
        if not (isinstance(expected, list) and isinstance(got, list)) or len(got) != len(expected):
            return "different sequences"
        return next(filter(None, (differs(g, e, op) for g, e in zip(got, expected, strict=True))), "")
    got, expected = np.asarray(got), np.asarray(expected)
    if got.shape != expected.shape:
        return f"shape {list(got.shape)} against {list(expected.shape)}"
    if got.dtype.kind in "OU" or expected.dtype.kind in "OU":
        same = got.astype(str).tolist() == expected.astype(str).tolist()
        return "" if same or op == "Cast" and _same_numbers(got, expected) else "different strings"
    if got.dtype != expected.dtype:
        return f"type {got.dtype} against {expected.dtype}"
    if _has_no_python_dtype(got) and got.dtype.name not in TOLERANCE:
        return "" if np.array_equal(got.astype(np.float32), expected.astype(np.float32), equal_nan=True) else "different values"
    if got.dtype.name not in TOLERANCE:
        max_error = 1 if op in QUANTIZING else 0
        error = np.abs(got.astype(np.float64) - expected.astype(np.float64))
        return "" if np.array_equal(got, expected) or (error <= max_error).all() else "different values"
    tolerance = TOLERANCE[got.dtype.name]
    got, expected = got.astype(np.float64), expected.astype(np.float64)
    if not np.array_equal(np.isnan(got), np.isnan(expected)):
        return "NaN at different positions"
    if not np.array_equal(np.where(np.isinf(got), got, 0), np.where(np.isinf(expected), expected, 0)):
        return "infinity at different positions"
    finite = np.where(np.isfinite(expected), expected, 0)
    size = 1 if op.endswith("Window") or op in ("RNN", "GRU", "LSTM") else min(np.abs(finite).max(initial=0), 1e3)
    error = np.abs(np.where(np.isfinite(got), got - expected, 0))
    return "" if (error <= tolerance * (np.abs(finite) + size)).all() else "different values"


def _same_numbers(got: Any, expected: Any) -> bool:
    """Whether strings represent close numbers; the number of digits that Cast writes is implementation-defined."""
    try:
        return np.allclose(got.astype(np.float64), expected.astype(np.float64), rtol=2e-3, equal_nan=True)
    except ValueError:
        return False


def compare(graph: Graph) -> tuple[list[Disagreement], list[str]]:
    """The disagreements on a graph's nodes, and descriptions of the nodes that could not be compared."""
    if graph.error is not None:
        return _compare_error(graph)
    model = graph.model()
    feeds = graph.feeds_of(model)
    disagreements: list[Disagreement] = []
    skipped: list[str] = []
    names = [o.name for o in model.graph.output]
    for checker, results in _execution_modes(model, feeds):
        whole = dict(zip(names, results, strict=True))
        for node in graph.nodes:
            for name in node.output:
                if difference := differs(whole[name], graph.values[name], node.op_type):
                    disagreements.append(Disagreement(checker, node, difference))
    for node in graph.nodes:
        single = graph.model([node])
        feeds = graph.feeds_of(single)
        if all(map(_is_moderate, feeds.values())) and node.op_type not in QUANTIZING:
            exact = Executor(single, precision="float64").run(None, feeds)
            actual = [graph.values[o] for o in node.output]
            disagreements += _differences(
                "float64", node, [_as_declared(e, o) for e, o in zip(exact, actual, strict=True)], actual
            )
        try:
            expected = _run_onnxruntime(graph, node, graph.model([node]), feeds)
        except Exception as e:
            expected = _run_in_wider_dtypes(graph, node, feeds)
            if expected is None:
                skipped.append(f"ort: {node.op_type}: {str(e)[:90]}")
        if expected is not None:
            disagreements += _differences("ort", node, [graph.values[o] for o in node.output], expected)
        if name_of(node.op_type, node.domain) in decompose or any(a.HasField("g") for a in node.attribute):
            try:
                decomposed = Executor(_inferred(single), expanded=decompose).run(None, feeds)
            except inference.Contradiction as e:
                skipped.append(f"decomposition: {node.op_type}: {str(e)[:90]}")
            except ConversionError as e:
                skipped.append(f"decomposition: {node.op_type}: {e.problems[0].reason}")
            except Exception as e:
                disagreements.append(Disagreement("decomposition", node, f"{type(e).__name__}: {e}"))
            else:
                disagreements += _differences("decomposition", node, decomposed, [graph.values[o] for o in node.output])
    return disagreements, skipped


def _execution_modes(model: onnx.ModelProto, feeds: dict[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    """Runs a model as one plan, repeatedly (which records and replays it), and without native code."""
    with mock.patch.dict(os.environ, {"ONNXBRIDGE_NATIVE": "1"}):
        whole = Executor(model)
        yield "plan", whole.run(None, feeds)
        yield "second run", whole.run(None, feeds)
        yield "third run", whole.run(None, feeds)
    with mock.patch.dict(os.environ, {"ONNXBRIDGE_NATIVE": "0"}):
        yield "without native code", Executor(model).run(None, feeds)


def _inferred(model: onnx.ModelProto) -> ir.Model:
    """The hub model with inferred types and shapes, which decompositions may need."""
    hub = opset_conversion.to_hub(onnx_files.from_proto(model))
    passes.infer(hub)
    return hub


def _run_onnxruntime(graph: Graph, node: onnx.NodeProto, single: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    """A node's results in ONNX Runtime; dtypes that its Python API does not support are cast to and from float32."""
    unsupported_outputs = [o for o in node.output if _has_no_python_dtype(graph.values[o])]
    feeds = dict(feeds)
    for graph_input in [i for i in single.graph.input if _has_no_python_dtype(feeds[i.name])]:
        # the Python API has no such dtype; float32 represents all its values
        kind, name = graph_input.type.tensor_type.elem_type, graph_input.name
        graph_input.type.tensor_type.elem_type, graph_input.name = onnx.TensorProto.FLOAT, f"{name}_given"
        feeds[f"{name}_given"] = feeds.pop(name).astype(np.float32)
        single.graph.node.insert(0, onnx.helper.make_node("Cast", [f"{name}_given"], [name], to=kind))
    for name in unsupported_outputs:
        single.graph.node.append(onnx.helper.make_node("Cast", [name], [f"{name}_seen"], to=onnx.TensorProto.FLOAT))
        next(o for o in single.graph.output if o.name == name).name = f"{name}_seen"
    results = session(single).run(None, feeds)
    return [r.astype(graph.values[o].dtype) if o in unsupported_outputs else r for o, r in zip(node.output, results, strict=True)]


WIDER = {
    "bfloat16": np.float32, "float16": np.float32, "float64": np.float32, "int8": np.int64, "int16": np.int64, "int32": np.int64,
    "uint8": np.int64, "uint16": np.int64, "uint32": np.int64, "uint64": np.int64,
}  # fmt: skip


def _run_in_wider_dtypes(graph: Graph, node: onnx.NodeProto, feeds: dict[str, Any]) -> list[Any] | None:
    """A node's results in ONNX Runtime in wider dtypes that it has a kernel for, cast back; None if there is none."""
    if node.op_type in DTYPE_DEPENDENT or any(a.HasField("g") for a in node.attribute):
        return None
    for kinds in (WIDER, {**WIDER, **dict.fromkeys([k for k in WIDER if "int" in k], np.int32)}):
        wide = replace(graph, values=dict(graph.values), constants=dict(graph.constants))
        for name in {n for n in node.input if n}:
            value = graph.values[name]
            kind = kinds.get(value.dtype.name) if isinstance(value, np.ndarray) else None
            if kind is not None:
                wide.values[name] = value.astype(kind)
                if name in wide.constants:
                    wide.constants[name] = wide.values[name]
        if not all(_represents(wide.values[n], graph.values[n]) for n in node.input if n):
            continue
        single = wide.model([node])
        try:
            results = session(single).run(None, wide.feeds_of(single))
        except Exception:
            continue
        actual = [graph.values[o] for o in node.output]
        if all(isinstance(r, np.ndarray) and isinstance(o, np.ndarray) for r, o in zip(results, actual, strict=True)):
            return [_cast_back(r, o) for r, o in zip(results, actual, strict=True)]
    return None


def _represents(wide: Any, value: Any) -> bool:
    """Whether the wider dtype represents all elements of a value."""
    if not isinstance(value, np.ndarray) or value.dtype == object:
        return True
    large, original = wide.astype(np.float64), value.astype(np.float64)
    return bool(
        (np.isfinite(large) == np.isfinite(original)).all() and (value.dtype.kind not in "iu" or (large == original).all())
    )


def _cast_back(wide: Any, actual: Any) -> Any:
    """Casts a result to our dtype. A float64 result that agrees with the float32 one is returned as it is."""
    if actual.dtype != np.float64 or wide.dtype != np.float32 or wide.shape != actual.shape:
        return wide.astype(actual.dtype)
    return actual if not differs(actual.astype(np.float32), wide, "") else wide.astype(actual.dtype)


def _is_moderate(value: Any) -> bool:
    """Whether products and powers of the elements stay in the range of float32."""
    if isinstance(value, list):
        return all(map(_is_moderate, value))
    if value.dtype == object or value.dtype.kind not in "fV":
        return True
    size = np.abs(value.astype(np.float64))
    return bool(np.isfinite(size).all() and ((size == 0) | ((size > 1e-3) & (size < 8))).all())


def _as_declared(exact: Any, actual: Any) -> Any:
    """Casts a result of float64 mode to the declared dtype."""
    if isinstance(exact, list):
        return [_as_declared(e, o) for e, o in zip(exact, actual, strict=True)]
    wide = isinstance(exact, np.ndarray) and exact.dtype == np.float64 and hasattr(actual, "dtype")
    return exact.astype(actual.dtype) if wide and actual.dtype.kind in "fV" else exact


def _has_no_python_dtype(value: Any) -> bool:
    """Whether ONNX Runtime's Python API does not support the dtype of a value."""
    return isinstance(value, np.ndarray) and value.dtype.name.startswith(NO_PYTHON_DTYPE)


def _differences(checker: str, node: onnx.NodeProto, got: list[Any], expected: list[Any]) -> list[Disagreement]:
    descriptions = (differs(g, e, node.op_type) for g, e in zip(got, expected, strict=True))
    return [Disagreement(checker, node, difference) for difference in descriptions if difference][:1]


def _compare_error(graph: Graph) -> tuple[list[Disagreement], list[str]]:
    """The executor raised on the last node: ONNX Runtime should raise too."""
    node = graph.nodes[-1]
    single = graph.model([node])
    try:
        session(single).run(None, graph.feeds_of(single))
    except Exception:
        return [], [f"both: {node.op_type}"]
    return [Disagreement("ort", node, f"the executor raises: {type(graph.error).__name__}: {str(graph.error)[:200]}")], []
