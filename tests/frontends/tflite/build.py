"""Writes TensorFlow Lite files by the generated classes of its schema: models of one operator, and whole ones as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import numpy as np

from onnxbridge.formats.tflite.read_model import ENUMS
from onnxbridge.formats.tflite.schema import schema

TYPES = {
    "float32": "FLOAT32", "float16": "FLOAT16", "float64": "FLOAT64", "int8": "INT8", "uint8": "UINT8", "int16": "INT16",
    "uint16": "UINT16", "int32": "INT32", "uint32": "UINT32", "int64": "INT64", "bool": "BOOL", "complex64": "COMPLEX64",
}  # fmt: skip


@dataclass(eq=False)
class T:
    """A tensor: an array (an input of the model, or a constant), or only a type (a result)."""

    value: Any = None
    type: str = ""
    constant: bool = False
    scale: Any = None
    zero_point: Any = 0
    axis: int = 0
    dynamic: tuple[int, ...] = ()
    name: str = ""
    variable: bool = False
    shape: tuple[int, ...] | None = None
    sparsity: Any = None
    raw: bytes | None = None

    @property
    def kind(self) -> str:
        return self.type or TYPES[np.asarray(self.value).dtype.name]

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.shape if self.shape is not None else np.shape(self.value)


@dataclass(eq=False)
class Op:
    name: str
    inputs: list[T | None]
    outputs: list[T]
    options: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    custom_options: bytes = b""
    second: bool = False
    intermediates: list[T] = field(default_factory=list)
    version: int = 1


@dataclass(eq=False)
class G:
    inputs: list[T]
    outputs: list[T]
    ops: list[Op]


def constant(value):
    return T(np.asarray(value), constant=True)


def model(*graphs: G, signatures: tuple[Any, ...] = (), **more: Any) -> bytes:
    """A file with these graphs. A signature is (key, graph, {name: T}, {name: T})."""
    s = schema()
    made = s.ModelT()
    made.version, made.description = 3, b"onnxbridge tests"
    made.operatorCodes, made.subgraphs, made.buffers = [], [], [s.BufferT()]
    codes: dict[str, int] = {}
    numbers: dict[int, tuple[int, int]] = {}
    for g, graph in enumerate(graphs):
        found: list[T] = []
        for t in [*graph.inputs, *(t for o in graph.ops for t in (*o.inputs, *o.outputs, *o.intermediates)), *graph.outputs]:
            if t is not None and not any(t is f for f in found):
                found.append(t)
        sub = s.SubGraphT()
        sub.name, sub.tensors, sub.operators = f"graph{g}".encode(), [], []
        for i, t in enumerate(found):
            numbers[id(t)] = g, i
            sub.tensors.append(_tensor(s, made, t, f"t{i}"))

        def index(t: T | None) -> int:
            return -1 if t is None else numbers[id(t)][1]

        sub.inputs, sub.outputs = [index(t) for t in graph.inputs], [index(t) for t in graph.outputs]
        for o in graph.ops:
            sub.operators.append(_operator(s, made, codes, o, index))
        made.subgraphs.append(sub)
    made.signatureDefs = []
    for key, graph_index, inputs, outputs in signatures:
        signature = s.SignatureDefT()
        signature.signatureKey, signature.subgraphIndex = key.encode(), graph_index
        signature.inputs, signature.outputs = (
            [_map(s, name, numbers[id(t)][1]) for name, t in ends.items()] for ends in (inputs, outputs)
        )
        made.signatureDefs.append(signature)
    for name, value in more.items():
        setattr(made, name, value)
    builder = flatbuffers.Builder(1024)
    builder.Finish(made.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _map(s: Any, name: str, index: int) -> Any:
    made = s.TensorMapT()
    made.name, made.tensorIndex = name.encode(), index
    return made


def _tensor(s: Any, made: Any, t: T, name: str) -> Any:
    tensor = s.TensorT()
    tensor.name, tensor.type, tensor.isVariable = (t.name or name).encode(), getattr(s.TensorType, t.kind), t.variable
    tensor.shape, tensor.hasRank = list(t.sizes), t.value is not None or t.shape is not None
    if t.dynamic:
        tensor.shapeSignature = [-1 if i in t.dynamic else d for i, d in enumerate(t.sizes)]
    if t.constant:
        buffer = s.BufferT()
        buffer.data = np.frombuffer(t.raw if t.raw is not None else np.ascontiguousarray(t.value).tobytes(), np.uint8)
        made.buffers.append(buffer)
        tensor.buffer = len(made.buffers) - 1
    if t.scale is not None:
        q = s.QuantizationParametersT()
        q.scale = np.atleast_1d(np.float32(t.scale))
        q.zeroPoint = np.broadcast_to(np.int64(t.zero_point), q.scale.shape).copy()
        q.quantizedDimension = t.axis
        tensor.quantization = q
    tensor.sparsity = t.sparsity
    return tensor


def _operator(s: Any, made: Any, codes: dict[str, int], o: Op, index: Any) -> Any:
    if o.name not in codes:
        code = s.OperatorCodeT()
        number = getattr(s.BuiltinOperator, o.name, None)
        code.builtinCode = s.BuiltinOperator.CUSTOM if number is None else number
        code.deprecatedBuiltinCode, code.version = min(code.builtinCode, 127), o.version
        code.customCode = o.name.encode() if number is None else None
        made.operatorCodes.append(code)
        codes[o.name] = len(made.operatorCodes) - 1
    operator = s.OperatorT()
    operator.opcodeIndex = codes[o.name]
    operator.inputs, operator.outputs = [index(t) for t in o.inputs], [index(t) for t in o.outputs]
    operator.intermediates = [index(t) for t in o.intermediates]
    if o.options:
        values = getattr(s, f"{o.options}T")()
        for name, value in o.values.items():
            if name in ENUMS and isinstance(value, str):
                value = getattr(getattr(s, ENUMS[name]), value)
            head, *rest = name.split("_")
            setattr(values, head + "".join(r.capitalize() for r in rest), value)
        union = s.BuiltinOptions2 if o.second else s.BuiltinOptions
        if o.second:
            operator.builtinOptions2Type, operator.builtinOptions2 = getattr(union, o.options), values
        else:
            operator.builtinOptionsType, operator.builtinOptions = getattr(union, o.options), values
    if o.custom_options:
        operator.customOptions = list(o.custom_options)
    return operator
