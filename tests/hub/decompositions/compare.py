"""Runs one operator as itself and as its expansion, with sizes that are known when converting and with sizes that are not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from onnxbridge.hub.decompositions.standard import expand
from onnxbridge.hub.ir.builder import Builder
from onnxbridge.hub.ir.opset_version import OPSET
from onnxbridge.hub.ir.schemas import binding_of, schema_of
from onnxbridge.hub.ir.scratch_target import Scratch
from onnxbridge.lowering import Call, Ref
from onnxbridge.runtime import Executor, devices


@dataclass(frozen=True)
class Fixed:
    """An input that is known when converting."""

    array: np.ndarray[Any, Any]


@dataclass(frozen=True)
class Kept:
    """An input of the graph of which these axes (all, where none is named) have a known size in every run."""

    array: np.ndarray[Any, Any]
    axes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Case:
    """One node: its inputs (arrays of the graph, `Fixed` ones, None) and attributes.

    `refuses` is why the expansion does not cover it where no size is known. `judge` computes the operator itself: ONNX Runtime
    where it has the operator (at `opset`, where that is not the hub's), otherwise our executor. `runs` computes the expansion.
    """

    op: str
    inputs: tuple[Any, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    refuses: str = ""
    judge: str = "ort"
    opset: int = OPSET
    runs: str = "ort"
    rtol: float = 1e-5
    atol: float = 1e-6


def case(op: str, *inputs: Any, **attrs: Any) -> Case:
    """A case; what is a field of `Case` is not an attribute."""
    own = {k: attrs.pop(k) for k in ("outputs", "refuses", "judge", "opset", "runs", "rtol", "atol") if k in attrs}
    return Case(op, tuple(np.asarray(v) if isinstance(v, np.generic) else v for v in inputs), attrs, **own)


def inputs_of(case: Case) -> dict[str, np.ndarray[Any, Any]]:
    """What a session is fed."""
    given = {f"x{i}": v.array if isinstance(v, Kept) else v for i, v in enumerate(case.inputs)}
    return {k: v for k, v in given.items() if isinstance(v, np.ndarray)}


def alone(case: Case) -> onnx.ModelProto:
    """The node as onnx itself writes it."""
    domain, _, name = case.op.rpartition("::")
    fixed = [numpy_helper.from_array(v.array, f"x{i}") for i, v in enumerate(case.inputs) if isinstance(v, Fixed)]
    names = ["" if v is None else f"x{i}" for i, v in enumerate(case.inputs)]
    tensors = {k: numpy_helper.from_array(v) if isinstance(v, np.ndarray) else v for k, v in case.attrs.items()}
    outputs = [f"y{i}" for i in range(case.outputs)]
    node = onnx.helper.make_node(name, names, outputs, domain=domain, **{k: v for k, v in tensors.items() if v is not None})
    values = [
        onnx.helper.make_tensor_value_info(k, onnx.helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for k, v in inputs_of(case).items()
    ]
    graph = onnx.helper.make_graph([node], "g", values, [onnx.ValueInfoProto(name=o) for o in outputs], fixed)
    given_up = domain and schema_of(name, domain).deprecated  # TreeEnsembleRegressor and TreeEnsembleClassifier
    imports = [onnx.helper.make_opsetid("", case.opset), onnx.helper.make_opsetid("ai.onnx.ml", 3 if given_up else 5)]
    return onnx.helper.make_model(graph, ir_version=10, opset_imports=imports)


def written_out(case: Case, dynamic: bool) -> ir.Model:
    """What the node is written out as."""
    op, values, inputs = Builder(), [], []
    for i, item in enumerate(case.inputs):
        if isinstance(item, Fixed):
            values.append(op.constant(item.array, f"constant_input_{i}"))
        elif item is None:
            values.append(None)
        else:
            array, kept = (item.array, item.axes or range(item.array.ndim)) if isinstance(item, Kept) else (item, ())
            kept = {d % array.ndim for d in kept}
            dims = [f"n{i}_{d}" if dynamic and d not in kept else n for d, n in enumerate(array.shape)]
            dtype = ir.DataType.STRING if array.dtype == object else ir.DataType.from_numpy(array.dtype)
            inputs.append(op.input(f"x{i}", dtype, dims))
            values.append(inputs[-1])
    domain, _, name = case.op.rpartition("::")
    keys = tuple(("result", i) for i in range(case.outputs))
    refs = tuple(v if v is None else Ref(v) for v in values)
    call = Call(case.op, refs, case.attrs, keys, schema=binding_of(name, domain))
    results = Scratch("an expansion", op, named=False).write(call, expand)
    outputs = [op.output(op.constant(r), f"y{i}") for i, r in enumerate(results[: case.outputs])]
    return op.model(inputs, outputs)


def run(case: Case, made: ir.Model | onnx.ModelProto, engine: str) -> list[Any]:
    with np.errstate(all="ignore"):
        engine = devices.session(made, "cpu", threads=1) if engine == "ort" else Executor(made)
        return list(engine.run(None, inputs_of(case)))


def assert_agrees(case: Case, dynamic: bool) -> None:
    """The expansion gives what the operator gives: shapes, dtypes, places of NaN, numbers."""
    expected = run(case, alone(case), case.judge)
    found = run(case, written_out(case, dynamic), case.runs)
    assert len(found) == len(expected)
    for f, e in zip(found, expected, strict=True):
        f, e = np.asarray(f), np.asarray(e)
        assert f.shape == e.shape
        assert f.dtype == e.dtype
        if e.dtype.kind in "OUSb":
            assert (f == e).all()
        else:
            assert np.allclose(f.astype(np.float64), e.astype(np.float64), case.rtol, case.atol, equal_nan=True), np.abs(
                f.astype(np.float64) - e
            ).max()
