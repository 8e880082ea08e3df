"""Runs an operator and its decomposition, with static and with dynamic sizes, and compares the outputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.builder.scratch_target import ScratchTarget
from onnxbridge.hub.decompositions.standard import decompose
from onnxbridge.hub.ir.opset_version import OPSET
from onnxbridge.hub.ir.schemas import binding_of, schema_of
from onnxbridge.lowering import Call, Ref
from onnxbridge.runtime import Executor, devices


@dataclass(frozen=True)
class Constant:
    """An input that is a constant of the model."""

    array: np.ndarray[Any, Any]


@dataclass(frozen=True)
class StaticAxes:
    """A graph input of which these axes (all if empty) are static also in the dynamic variant."""

    array: np.ndarray[Any, Any]
    axes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Case:
    """One node: its inputs (arrays for graph inputs, `Constant`, `StaticAxes` or None) and attributes.

    `unsupported` is the error of the dynamic variant, if it has one. `reference` runs the node, `engine` its decomposition:
    "ort" for ONNX Runtime or "executor" for onnxbridge's executor. `opset` is that of the model for the reference.
    """

    op: str
    inputs: tuple[Any, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    unsupported: str = ""
    reference: str = "ort"
    opset: int = OPSET
    engine: str = "ort"
    rtol: float = 1e-5
    atol: float = 1e-6


def case(op: str, *inputs: Any, **attrs: Any) -> Case:
    """A case from inputs and keywords, which are fields of `Case` or attributes of the node."""
    fields = {k: attrs.pop(k) for k in ("outputs", "unsupported", "reference", "opset", "engine", "rtol", "atol") if k in attrs}
    return Case(op, tuple(np.asarray(v) if isinstance(v, np.generic) else v for v in inputs), attrs, **fields)


def feeds_of(case: Case) -> dict[str, np.ndarray[Any, Any]]:
    """The feeds of the graph inputs."""
    feeds = {f"x{i}": v.array if isinstance(v, StaticAxes) else v for i, v in enumerate(case.inputs)}
    return {k: v for k, v in feeds.items() if isinstance(v, np.ndarray)}


def single_node_model(case: Case) -> onnx.ModelProto:
    """A model of the node alone, built with onnx.helper."""
    domain, _, name = case.op.rpartition("::")
    constants = [numpy_helper.from_array(v.array, f"x{i}") for i, v in enumerate(case.inputs) if isinstance(v, Constant)]
    names = ["" if v is None else f"x{i}" for i, v in enumerate(case.inputs)]
    tensors = {k: numpy_helper.from_array(v) if isinstance(v, np.ndarray) else v for k, v in case.attrs.items()}
    outputs = [f"y{i}" for i in range(case.outputs)]
    node = onnx.helper.make_node(name, names, outputs, domain=domain, **{k: v for k, v in tensors.items() if v is not None})
    values = [
        onnx.helper.make_tensor_value_info(k, onnx.helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for k, v in feeds_of(case).items()
    ]
    graph = onnx.helper.make_graph([node], "g", values, [onnx.ValueInfoProto(name=o) for o in outputs], constants)
    is_deprecated = domain and schema_of(name, domain).deprecated  # TreeEnsembleRegressor and TreeEnsembleClassifier
    imports = [onnx.helper.make_opsetid("", case.opset), onnx.helper.make_opsetid("ai.onnx.ml", 3 if is_deprecated else 5)]
    return onnx.helper.make_model(graph, ir_version=10, opset_imports=imports)


def decomposed_model(case: Case, dynamic: bool) -> ir.Model:
    """The hub model of the node's decomposition."""
    op, values, inputs = Builder(), [], []
    for i, item in enumerate(case.inputs):
        if isinstance(item, Constant):
            values.append(op.constant(item.array, f"constant_input_{i}"))
        elif item is None:
            values.append(None)
        else:
            array, static_axes = (item.array, item.axes or range(item.array.ndim)) if isinstance(item, StaticAxes) else (item, ())
            static_axes = {d % array.ndim for d in static_axes}
            dims = [f"n{i}_{d}" if dynamic and d not in static_axes else n for d, n in enumerate(array.shape)]
            dtype = ir.DataType.STRING if array.dtype == object else ir.DataType.from_numpy(array.dtype)
            inputs.append(op.input(f"x{i}", dtype, dims))
            values.append(inputs[-1])
    domain, _, name = case.op.rpartition("::")
    keys = tuple(("result", i) for i in range(case.outputs))
    refs = tuple(v if v is None else Ref(v) for v in values)
    call = Call(case.op, refs, case.attrs, keys, schema=binding_of(name, domain))
    results = ScratchTarget("decomposition", op, named=False).write(call, decompose)
    outputs = [op.output(op.constant(r), f"y{i}") for i, r in enumerate(results[: case.outputs])]
    return op.model(inputs, outputs)


def run(case: Case, model: ir.Model | onnx.ModelProto, engine: str) -> list[Any]:
    with np.errstate(all="ignore"):
        session = devices.session(model, "cpu", threads=1) if engine == "ort" else Executor(model)
        return list(session.run(None, feeds_of(case)))


def assert_agrees(case: Case, dynamic: bool) -> None:
    """Asserts that the decomposition and the operator have equal shapes, dtypes and values, NaN included."""
    expected = run(case, single_node_model(case), case.reference)
    actual = run(case, decomposed_model(case, dynamic), case.engine)
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        a, e = np.asarray(a), np.asarray(e)
        assert a.shape == e.shape
        assert a.dtype == e.dtype
        if e.dtype.kind in "OUSb":
            assert (a == e).all()
        else:
            assert np.allclose(a.astype(np.float64), e.astype(np.float64), case.rtol, case.atol, equal_nan=True), np.abs(
                a.astype(np.float64) - e
            ).max()
