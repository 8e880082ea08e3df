"""Hub models as MXNet symbols."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
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
from onnxbridge.hub.ir import fold, graph_reader, provenance
from onnxbridge.hub.ir.trainable import is_trained
from onnxbridge.hub.passes import infer_static_operands
from onnxbridge.lowering import Body, Call, Ref, Target, lower, resolve
from onnxbridge.rules import Rule

Array = np.ndarray[Any, Any]
_ON_BITS = frozenset({"BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Cast", "Identity", "Where"})
DIRECTION = "ONNX to MXNet"
_ARRAYS = frozenset(map(np.dtype, ("float16", "float32", "float64", "uint8", "int8", "int32", "int64", "bool")))
"""The dtypes that MXNet's users can pass and get; symbols know more."""
_TRANSPOSED = re.compile(r"\.transpose(_\d+)?$")
"""The suffix that the frontends give to the transpose of a weight."""


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
        _check_ends(model.graph)
        parameters = _parameters(model.graph)
        nodes = _computed(model.graph, parameters)
        writer = Writer(_np_shape(model.graph, nodes))
        try:
            found = _converted(model, writer, parameters, nodes)
        except ConversionError:
            if writer.np_shape or not writer.needs_np_shape:
                raise
        if writer.needs_np_shape and not writer.np_shape:  # which operators are written depends on it
            found = _converted(model, Writer(np_shape=True), parameters, nodes)
        return found


def _converted(model: ir.Model, writer: Writer, parameters: set[ir.Value], nodes: list[ir.Node]) -> MXNetModel:
    target = _SymbolTarget(writer, parameters)
    values = graph_reader.HubValues(target.constant)
    for v in model.graph.inputs:
        values[v] = made = target.writer.variable(v.name or "", _dtype(v), _shape(v))
        for axis, size in enumerate(made.shape or ()):
            if isinstance(size, str):
                target.writer.sizes.setdefault(size, (made, axis))
    lower([graph_reader.call_of(n) for n in nodes], rule, values, target)
    heads: list[Value] = []
    for v, result in zip(model.graph.outputs, resolve([Ref(v) for v in model.graph.outputs], values), strict=True):
        heads.append(target.output(v, result, heads))
    inputs, outputs = (tuple(v.name or "" for v in vs) for vs in (model.graph.inputs, model.graph.outputs))
    symbol = target.writer.symbol(heads)
    return MXNetModel(symbol, target.writer.params, inputs, outputs)


def _check_ends(graph: ir.Graph) -> None:
    """Check that MXNet has arrays like the inputs and outputs.

    Raises:
        ConversionError: with those that it has not.
    """
    problems = []
    for kind, v in [*(("input", v) for v in graph.inputs), *(("output", v) for v in graph.outputs)]:
        try:
            if _dtype(v) not in _ARRAYS:
                raise Unsupported(f"MXNet has no arrays of {_dtype(v)}", "cast it inside the model")
        except Unsupported as e:
            problems.append(Problem(f"the {kind} {v.name}", e.reason, e.hint, (SourceLocation(node=v.name or ""),)))
    if problems:
        raise ConversionError(DIRECTION, problems)


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


def _parameters(graph: ir.Graph) -> set[ir.Value]:
    """The parameters of the model, also of its subgraphs."""
    graphs = [g for g in (graph, *graph.subgraphs()) if isinstance(g, ir.Graph)]
    return {v for g in graphs for v in g.initializers.values() if is_trained(v)}


def _computed(graph: ir.Graph, parameters: set[ir.Value]) -> list[ir.Node]:
    """The nodes that the symbol computes: those whose results are not constant, or are computed from parameters."""
    from_parameters = set(parameters)
    found = []
    for node in graph:
        trained = any(v in from_parameters for v in node.inputs if v is not None)
        if trained:
            from_parameters.update(node.outputs)
        if trained or any(o.const_value is None for o in node.outputs):
            found.append(node)
    return found


def _np_shape(graph: ir.Graph, nodes: list[ir.Node]) -> bool:
    """Whether there are arrays without dimensions or elements, which MXNet supports under np-shape semantics only."""
    values = [*graph.inputs, *graph.outputs, *(o for n in nodes for o in n.outputs)]
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

    def __init__(self, writer: Writer, parameters: set[ir.Value]) -> None:
        self.writer = writer
        self.parameters = parameters

    def constant(self, value: ir.Value) -> Value:
        assert value.const_value is not None
        _dtype(ir.Value(type=ir.TensorType(value.const_value.dtype)))
        array, name = value.const_value.numpy(), value.name or ""
        return self._parameter(value, array, name) if value in self.parameters else self.writer.constant(array, name)

    def _parameter(self, value: ir.Value, array: Array, name: str) -> Value:
        """A parameter under the source's name. A matrix that is only a right factor is transposed, as MXNet stores it."""
        assert value.const_value is not None
        viewed = provenance.view_of(value.const_value)
        if viewed is not None:
            return self.writer.view(array, self.writer.constant(array.reshape(viewed[1]), viewed[0], True))
        if array.ndim == 2 and (_TRANSPOSED.search(name) or all(_is_right_factor(n, i) for n, i in value.uses())):
            return self.writer.view(array, self.writer.constant(array.T, _TRANSPOSED.sub("", name), True), transposed=True)
        made = self.writer.constant(array, name, True)
        if made.constant is not None:
            made.constant.parts = provenance.parts_of(value.const_value)
        return made

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
        self.writer.module = call.location.scope
        self.writer.expected = tuple(_shape(k) if isinstance(k, ir.Value) else None for k in call.outputs)
        return self.writer.scope(_stem(key) if isinstance(key, ir.Value) else call.op)

    def bind_outputs(self, call: Call, results: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(self._adopt(k, r) for k, r in zip(call.outputs, results, strict=False))

    def _adopt(self, key: Any, result: Any) -> Any:
        if not isinstance(key, ir.Value):
            return result
        if not isinstance(result, Value):
            result = self.writer.literal(np.asarray(result))
        if (shape := _shape(key)) is not None and 0 in shape and not any(isinstance(size, str) for size in shape):
            # computing it, MXNet allocates nothing, and takes that for a failure which it reports at other results
            result = self.writer.literal(np.zeros(shape, _dtype(key)))
        return replace(result, dtype=_dtype(key), shape=_shape(key))

    def apply(self, rule: Rule, call: Call, args: list[Any], attrs: dict[str, Any]) -> Any:
        """MXNet has no uint64: as an intermediate value it is an int64 with the same bits, for operators that only see bits."""
        if call.op not in _ON_BITS and any(isinstance(a, Value) and a.dtype == np.uint64 for a in args):
            raise Unsupported("MXNet does not compute with uint64")
        return super().apply(rule, call, args, attrs)

    def decompose(self, call: Call) -> Body | None:
        inferred = infer_static_operands.infer(call)
        if inferred is not call:
            inputs = tuple(i.key if isinstance(i, Ref) else None for i in call.inputs)
            return Body(inputs, [inferred], tuple(None if o is None else Ref(o) for o in call.outputs))
        return infer_static_operands.select_among_axes(call) or lookup.decomposition_of(call)

    def output(self, value: ir.Value, result: Value, before: list[Value]) -> Value:
        """The symbol's output for an output of the model, with its name if that is unused."""
        node = self.writer.entry(result)[0]
        stored = result.constant is not None and 0 not in (result.shape or ())  # an operator makes those without elements
        if stored or self.writer.nodes[node]["op"] == "null" or any(b.node == node for b in before):
            result = self.writer.identity(result)
        self.writer.rename(result, _stem(value))
        return result


def _is_right_factor(node: ir.Node, position: int) -> bool:
    """Whether an input of a node is a matrix that the other input is multiplied by."""
    attribute = node.attributes.get("transB")
    plain = attribute is None or not attribute.as_int()
    return position == 1 and (node.op_type == "MatMul" or (node.op_type == "Gemm" and plain)) and not node.domain


def _stem(value: ir.Value) -> str:
    """The node name for which MXNet's output name equals the hub's: MXNet appends "_output"."""
    name = value.name or ""
    return name.removesuffix("_output") or name
