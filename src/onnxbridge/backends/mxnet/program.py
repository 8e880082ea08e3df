"""Hub models as MXNet symbols."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.backends.mxnet.ops import rule
from onnxbridge.backends.mxnet.writer import Value, Writer
from onnxbridge.errors import ConversionError, Problem, SourceLocation, Unsupported
from onnxbridge.formats.mxnet import write_params
from onnxbridge.hub.decompositions import lookup
from onnxbridge.hub.io.safe_files import replacing
from onnxbridge.hub.ir import fold, graph_reader
from onnxbridge.lowering import Body, Call, Ref, Target, lower, resolve

Array = np.ndarray[Any, Any]
DIRECTION = "ONNX to MXNet"


@dataclass(frozen=True)
class MXNetModel:
    """The content of a symbol file, its parameters ("arg:weight", "aux:mean"), and the hub's input and output names."""

    symbol: str
    params: dict[str, Array]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def save(self, path: Path) -> list[Path]:
        """Write the two files of the checkpoint `path`, epoch 0; `path` may be that of the symbol file."""
        stem = path.name.removesuffix("-symbol.json")
        symbol, values = (path.with_name(stem + end) for end in ("-symbol.json", "-0000.params"))
        with replacing(symbol) as temporary:
            temporary.write_text(self.symbol, encoding="utf-8")
        write_params.write(values, self.params)
        return [symbol, values]


def convert(model: ir.Model) -> MXNetModel:
    """The hub model as a symbol.

    Raises:
        ConversionError: with every operator that cannot be converted.
    """
    with _folded(model.graph):
        return _convert(model)


def _convert(model: ir.Model) -> MXNetModel:
    target = _SymbolTarget(Writer(_np_shape(model.graph)))
    values = graph_reader.HubValues(target.constant)
    problems = []
    for v in model.graph.inputs:
        try:
            values[v] = target.writer.variable(v.name or "", _dtype(v), _shape(v))
        except Unsupported as e:
            problems.append(Problem(f"the input {v.name}", e.reason, e.hint, (SourceLocation(node=v.name or ""),)))
    if problems:
        raise ConversionError(DIRECTION, problems)
    lower([c for n in model.graph if not _known(n) for c in [graph_reader.call_of(n)]], rule, values, target)
    heads: list[Value] = []
    for v, result in zip(model.graph.outputs, resolve([Ref(v) for v in model.graph.outputs], values), strict=True):
        heads.append(target.output(v, result, heads))
    inputs, outputs = (tuple(v.name or "" for v in vs) for vs in (model.graph.inputs, model.graph.outputs))
    symbol = target.writer.symbol(heads)
    return MXNetModel(symbol, target.writer.params, inputs, outputs)


@contextmanager
def _folded(graph: ir.Graph) -> Iterator[None]:
    """Temporarily set the constant values of foldable results; the model is restored afterwards."""
    folded = []
    try:
        for node in graph:
            for output, array in zip(node.outputs, fold.fold(node) or [], strict=False):
                output.const_value = ir.tensor(array, name=output.name)
                folded.append(output)
        yield
    finally:
        for output in folded:
            output.const_value = None


def _known(node: ir.Node) -> bool:
    return all(o.const_value is not None for o in node.outputs)


def _np_shape(graph: ir.Graph) -> bool:
    """Whether there are arrays without dimensions or elements, which MXNet supports under np-shape semantics only."""
    values = [*graph.inputs, *graph.outputs, *(o for n in graph if not _known(n) for o in n.outputs)]
    return any(v.shape is not None and (len(v.shape) == 0 or 0 in v.shape) for v in values)


def _dtype(value: ir.Value) -> np.dtype[Any]:
    if not isinstance(value.type, ir.TensorType) or value.dtype is None:
        raise Unsupported("MXNet supports tensors only")
    if value.dtype == ir.DataType.STRING:
        raise Unsupported("MXNet has no strings")
    dtype = np.dtype(value.dtype.numpy())
    write_params.flag(dtype)
    return dtype


def _shape(value: ir.Value) -> tuple[int | str | None, ...] | None:
    return None if value.shape is None else tuple(d if isinstance(d, int) else d.value for d in value.shape)


class _SymbolTarget(Target):
    """The lowering target: the symbol being written."""

    direction = DIRECTION
    writer: Writer

    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    def constant(self, value: ir.Value) -> Value:
        assert value.const_value is not None
        _dtype(ir.Value(type=ir.TensorType(value.const_value.dtype)))
        return self.writer.constant(value.const_value.numpy(), value.name or "")

    def static(self, key: Hashable, value: Any) -> Array | None:
        if isinstance(key, ir.Value):
            known = fold.constant_array(key)
            if known is None:
                sizes = fold.known_sizes(key)
                known = None if sizes is None or None in sizes else np.array(sizes, np.int64)
            return known
        return None

    def scope(self, call: Call) -> AbstractContextManager[None]:
        key = next((k for k in call.outputs if k is not None), None)
        return self.writer.scope(_stem(key) if isinstance(key, ir.Value) else call.op)

    def bind_outputs(self, call: Call, results: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(self._adopt(k, r) for k, r in zip(call.outputs, results, strict=False))

    def _adopt(self, key: Any, result: Any) -> Any:
        if not isinstance(key, ir.Value):
            return result
        if not isinstance(result, Value):
            result = self.writer.constant(np.asarray(result))
        return Value(result.node, result.index, _dtype(key), _shape(key), result.array)

    def decompose(self, call: Call) -> Body | None:
        return lookup.decomposition_of(call)

    def output(self, value: ir.Value, result: Value, before: list[Value]) -> Value:
        """The symbol's output for an output of the model, with its name if that is unused."""
        if self.writer.nodes[result.node]["op"] == "null" or any(b.node == result.node for b in before):
            result = self.writer.identity(result)
        self.writer.rename(result, _stem(value))
        return result


def _stem(value: ir.Value) -> str:
    """The node name for which MXNet's output name equals the hub's: MXNet appends "_output"."""
    name = value.name or ""
    return name.removesuffix("_output") or name
