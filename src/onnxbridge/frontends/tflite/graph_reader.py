"""A TensorFlow Lite model as calls to lower, and the hub model made from them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import LimitError, SourceLocation, UnsafeFileError, UsageError
from onnxbridge.formats.tflite import constants
from onnxbridge.formats.tflite.dtypes import NOT_TENSORS, hub_dtype
from onnxbridge.formats.tflite.model import Graph, Model, Operator, Signature, Tensor
from onnxbridge.formats.tflite.read_model import ENUMS
from onnxbridge.frontends.tflite import states
from onnxbridge.frontends.tflite.ops import rule
from onnxbridge.frontends.tflite.quantized import TYPES, Quantized
from onnxbridge.frontends.tflite.target import TFLiteTarget
from onnxbridge.hub.decompositions.complex_numbers import pairs
from onnxbridge.hub.io.safe_files import quoted
from onnxbridge.lowering import Body, Call, Ref, lower, resolve

Shapes = Mapping[str, Sequence[int | str | None]]
Scope = tuple[Hashable, ...]

# They control speed and the precision of kernels, repeat sizes or check indices: they do not affect the result.
IRRELEVANT = frozenset({
    "pot_scale_int16", "quantized_bias_type", "quant_spec", "validate_indices", "in_data_type",
    "values_count",
})  # fmt: skip
# Options that are the indices of subgraphs, and the parameters of rules that get them.
SUBGRAPHS = {
    "IF": {"then_subgraph_index": "then_branch", "else_subgraph_index": "else_branch"},
    "WHILE": {"cond_subgraph_index": "cond", "body_subgraph_index": "body"},
    "STABLEHLO_COMPOSITE": {"decomposition_subgraph_index": "decomposition"},
}
# Options that are the index of a subgraph that combines two elements.
COMPUTATIONS = {"STABLEHLO_REDUCE_WINDOW": "body_subgraph_index", "STABLEHLO_SCATTER": "update_computation_subgraph_index"}
# Operators whose activation is part of what they compute in each step.
RECURRENT = frozenset({
    "LSTM", "RNN", "SVDF", "UNIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_LSTM", "UNIDIRECTIONAL_SEQUENCE_RNN",
    "BIDIRECTIONAL_SEQUENCE_RNN",
})  # fmt: skip
MAX_CALLS = 1_000_000
"""Operators of a model with its subgraphs inlined."""
_MAX_NESTING = 32


def hub_model(model: Model, signature: Signature, shapes: Shapes) -> ir.Model:
    """A graph of the model as a hub model; `shapes` are those of its inputs, by name, where they differ from the file's.

    Raises:
        ConversionError: with every operator that cannot be converted.
        UsageError: for inputs that ONNX does not have.
        LimitError: for more than `MAX_CALLS` operators.
    """
    reader = _Reader(model)
    graph = model.graphs[signature.graph]
    target = TFLiteTarget(reader.tensor, reader.activations, reader.asymmetric)
    op = target.writer
    values: dict[Hashable, Any] = _Values(reader, op)
    scope: Scope = (signature.graph,)
    for name, _ in (*signature.inputs, *signature.outputs):
        op.reserve(name)
    inputs = []
    for name, index in signature.inputs:
        tensor = graph.tensors[index]
        dtype = hub_dtype(tensor.type)
        if dtype is None or tensor.type in NOT_TENSORS:
            raise UsageError(f"{model.path}: the input {name!r} is a {tensor.type.lower()}, which ONNX does not support")
        sizes, part = shapes.get(name, tensor.sizes), pairs.PART_DTYPE.get(dtype)
        made = _input(op, name, part or dtype, [*(sizes or ()), 2] if part else sizes)
        if part:
            values[scope, index] = pairs.split(op, made)
        elif tensor.quantization is not None and tensor.type in TYPES:
            values[scope, index] = Quantized(tensor.quantization, dtype, made)
        else:
            values[scope, index] = made
        inputs.append(made)
    lower(reader.calls(graph, scope), rule, values, target)
    results = resolve([Ref((scope, index)) for _, index in signature.outputs], values)
    outputs = []
    for result, (name, _) in zip(results, signature.outputs, strict=True):
        if isinstance(result, pairs.Complex):
            result = pairs.join(op, result)
        outputs.append(op.output(op.constant(result.stored(op) if isinstance(result, Quantized) else result), name))
    return op.model(inputs, outputs)


def _input(op: Any, name: str, dtype: ir.DataType, sizes: Any) -> ir.Value:
    op._reserved.discard(name)
    op._names.discard(name)
    made: ir.Value = op.input(name, dtype, sizes)
    return made


class _Values(dict[Hashable, Any]):
    """The hub's values by (scope, tensor); a constant is made when it is first used."""

    def __init__(self, reader: _Reader, op: Any) -> None:
        super().__init__()
        self._reader, self._op = reader, op

    def __missing__(self, key: Hashable) -> Any:
        tensor = self._reader.tensor(key)
        found = constants.constant(self._reader.model.path, tensor)
        if found is None:
            where = f"{self._reader.model.path}: {quoted(tensor.name)}"
            raise UnsafeFileError(f"{where} is used, but no operator computes it before; get the file again.")
        if found.dtype in pairs.PART_DTYPE:
            array = found.numpy()
            made: Any = pairs.Complex(*(
                self._op.constant(np.ascontiguousarray(getattr(array, n)), f"{tensor.name}.{n}") for n in ("real", "imag")
            ))  # fmt: skip
            self[key] = made
            return made
        made = self._op.constant(found, tensor.name)
        q = tensor.quantization
        if q is not None and tensor.type in TYPES:
            scope = key[0]  # type: ignore[index]
            blocks = None
            if q.block:
                scales, zero_points = int(q.scale[0]), int(q.zero_point[0])
                blocks = self[scope, scales], self[scope, zero_points] if zero_points >= 0 else None
            made = Quantized(q, made.dtype, made, reusable=False, blocks=blocks)
        self[key] = made
        return made


class _Reader:
    """Reads graphs as calls, with subgraphs as bodies. A key is (scope, index of a tensor); a scope starts with its graph's
    index and ends in the path of operators through which a subgraph is reached."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.activations: dict[Hashable, str] = {}
        self.asymmetric: set[Hashable] = set()
        self._count = 0

    def tensor(self, key: Any) -> Tensor:
        (graph, *_), index = key
        found: Tensor = self.model.graphs[graph].tensors[index]
        return found

    def calls(self, graph: Graph, scope: Scope) -> Iterator[Call]:
        for i, operator in enumerate(graph.operators):
            self._count += 1
            if self._count > MAX_CALLS:
                raise LimitError(f"{self.model.path}: has more than {MAX_CALLS} operators with its subgraphs.")
            yield self._call(graph, operator, scope, i)

    def _call(self, graph: Graph, operator: Operator, scope: Scope, position: int) -> Call:
        outputs = tuple((scope, o) if o >= 0 else None for o in operator.outputs)
        attrs: dict[str, Any] = {}
        subgraphs = SUBGRAPHS.get(operator.name, {})
        for name, value in operator.options.items():
            if name in subgraphs:
                attrs[subgraphs[name]] = self._body(value, scope, (position, name))
            elif COMPUTATIONS.get(operator.name) == name:
                attrs["computation"] = self._computation(value)
            elif name == "fused_activation_function" and operator.name not in RECURRENT:
                if value != "NONE" and outputs:
                    self.activations[outputs[0]] = value
            elif name == "asymmetric_quantize_inputs":
                if value and outputs:
                    self.asymmetric.add(outputs[0])
            elif ENUMS.get(name) == "TensorType" and name not in IRRELEVANT:
                attrs[name] = hub_dtype(value)
            elif name not in IRRELEVANT:
                attrs[name] = value
        result = hub_dtype(graph.tensors[operator.outputs[0]].type) if outputs and outputs[0] is not None else None
        if operator.name == "CAST":  # files may omit its options: the type is that of its output
            attrs.setdefault("out_data_type", result)
        if operator.name == "BITCAST":
            attrs["type"] = result
        if operator.name == "MULTINOMIAL":
            attrs["output_dtype"] = result
        if operator.name == "CALL_ONCE":
            attrs["initializes"] = {o.name for o in self._graph(operator.options.get("init_subgraph_index", 0)).operators}
        if operator.name == "HASHTABLE":
            attrs["contents"] = self._table(operator.options.get("table_id", 0))
        if operator.name == "WHILE":
            attrs["shapes"] = self._kept_sizes(operator.options.get("body_subgraph_index", 0))
        if operator.name == "STABLEHLO_RNG_BIT_GENERATOR" and len(operator.outputs) == 2:
            bits = graph.tensors[operator.outputs[1]]
            attrs["result"] = hub_dtype(bits.type), bits.sizes
        if operator.name == "STABLEHLO_CASE":
            attrs = self._branches(operator, scope, position, 0)
        if operator.is_custom and operator.custom_options:
            attrs["custom_options"] = operator.custom_options
        inputs = tuple(Ref((scope, i)) if i >= 0 else None for i in operator.inputs)
        name = next((graph.tensors[o].name for o in operator.outputs if o >= 0), operator.name)
        types = {graph.tensors[i].type for i in (*operator.inputs, *operator.outputs) if i >= 0}
        called = f"complex::{operator.name}" if any(t.startswith("COMPLEX") for t in types) else states.called(operator)
        return Call(called, inputs, attrs, outputs, SourceLocation(node=name))

    def _kept_sizes(self, body: int) -> list[tuple[int | None, ...]]:
        """The sizes of a loop's states that the file declares both before and after an iteration."""
        graph = self._graph(body)
        declared = [[graph.tensors[i].sizes or () for i in side] for side in (graph.inputs, graph.outputs)]
        return [
            tuple(s if s == e else None for s, e in zip(start, end, strict=True)) if len(start) == len(end) else ()
            for start, end in zip(*declared, strict=False)
        ]

    def _body(self, index: Any, scope: Scope, step: tuple[int, str]) -> Body:
        if len(scope) > _MAX_NESTING:
            raise LimitError(f"{self.model.path}: nests more than {_MAX_NESTING} subgraphs.")
        graph = self._graph(index)
        inner: Scope = (index, *scope[1:], (scope[0], *step))
        return Body(
            tuple((inner, i) for i in graph.inputs), list(self.calls(graph, inner)), tuple(Ref((inner, o)) for o in graph.outputs)
        )

    def _branches(self, operator: Operator, scope: Scope, position: int, first: int) -> dict[str, Any]:
        """The branches from the one at index `first`: it, and an operator of the same name with those after it."""
        branches = operator.options.get("branch_subgraph_indices")
        if branches is None or not 0 <= first < len(branches):
            raise UnsafeFileError(f"{self.model.path}: has a STABLEHLO_CASE without branches; get the file again.")
        then_branch, else_branch = self._body(branches[first], scope, (position, f"branch {first}")), None
        if first + 1 < len(branches):
            if len(branches) > _MAX_NESTING:
                raise LimitError(f"{self.model.path}: nests more than {_MAX_NESTING} subgraphs.")
            inner: Scope = (scope[0], *scope[1:], (scope[0], position, f"branches after {first}"))
            inputs = tuple(Ref((scope, i)) for i in operator.inputs)
            outputs = tuple((inner, o) for o in operator.outputs)
            rest = Call(
                operator.name, inputs, self._branches(operator, scope, position, first + 1), outputs, SourceLocation(node="")
            )
            else_branch = Body((), [rest], tuple(Ref(o) for o in outputs))
        return {"position": first, "then_branch": then_branch, "else_branch": else_branch}

    def _computation(self, index: Any) -> str | None:
        """The operator by which a subgraph combines two elements, "" for one that returns the second; None for others."""
        graph = self._graph(index)
        if len(graph.inputs) != 2 or len(graph.outputs) != 1:
            return None
        if not graph.operators:
            return "" if graph.outputs[0] == graph.inputs[1] else None
        operator, *more = graph.operators
        combines = sorted(operator.inputs) == sorted(graph.inputs) and tuple(operator.outputs) == tuple(graph.outputs)
        activation = operator.options.get("fused_activation_function", "NONE")
        return operator.name if combines and not more and activation == "NONE" else None

    def _graph(self, index: int) -> Graph:
        if not 0 <= index < len(self.model.graphs):
            raise UnsafeFileError(f"{self.model.path}: refers to a subgraph that it does not have; get the file again.")
        return self.model.graphs[index]

    def _table(self, table_id: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] | None:
        """The keys and values that a graph of the file puts into a table."""
        for graph in self.model.graphs:
            named = [o for o in graph.operators if o.name == "HASHTABLE" and o.options.get("table_id", 0) == table_id]
            handles = {index for operator in named for index in operator.outputs}
            for operator in graph.operators:
                inputs = operator.inputs if operator.name == "HASHTABLE_IMPORT" else ()
                if len(inputs) == 3 and inputs[0] in handles and min(inputs) >= 0:
                    keys, values = (constants.constant(self.model.path, graph.tensors[i]) for i in inputs[1:])
                    if keys is not None and values is not None and tuple(keys.shape) == tuple(values.shape):
                        return keys.numpy(), values.numpy()
        return None
