"""The `op` builder: creates ONNX nodes at the hub's opset, checks them against the schemas and infers their types.

    y = op.Relu(op.Conv(x, weight, bias, pads=[1, 1, 1, 1]))
    low, high = op.Split(x, axis=1, num_outputs=2, outputs=2)
    z = op.If(condition, then_branch=lambda: op.Neg(y), else_branch=lambda: y)

Python numbers and lists become constants with the dtype of the other operand; NumPy arrays keep theirs. Operators on small
constants and shapes of static tensors are folded to constants.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnxbridge.errors import SourceLocation, Unsupported, UnsupportedDtype
from onnxbridge.hub.ir import fold, inference, provenance, source_locations, strings
from onnxbridge.hub.ir.named_sizes import name_sizes
from onnxbridge.hub.ir.opset_version import OPSET
from onnxbridge.hub.ir.schemas import schema_of, version_of
from onnxbridge.hub.ir.unique_name import unique_name

_PLAIN = (np.ndarray, np.generic, bool, int, float, str, bytes, list, tuple)
"""Checked first, since isinstance with a protocol looks at every attribute."""
_NO_NOTES: Mapping[str, Any] = MappingProxyType({})


def _is_half(value: Any) -> bool:
    name = value.dtype.name if isinstance(value, (ir.Value, np.ndarray, np.generic)) and value.dtype is not None else ""
    return name.upper() in ("FLOAT16", "BFLOAT16")


class Builder:
    """Creates nodes, which `graph()` or `model()` put into a new graph, or `take()` returns for an existing one.

    Opset adapters build at other opsets, where nothing is folded, since the executor has rules for the hub's opset only.
    """

    def __init__(
        self, opset: int = OPSET, names: set[str] | None = None, known: inference.Known | None = None, *,
        domains: Mapping[str, int] | None = None, loses: Callable[[str], None] | None = None,
    ) -> None:  # fmt: skip
        self._opset = opset
        self._versions = {"": opset, **(domains or {})}
        self._loses = loses
        self._known = known
        self._nodes: list[list[ir.Node]] = [[]]
        self._reserved: set[str] = set()
        self._names: set[str] = set() if names is None else names
        self._constants: dict[tuple[Any, ...], ir.Value] = {}
        self._where = SourceLocation()
        self._prefix = ""
        self._folded_elements: float = fold.FOLDED_ELEMENTS
        self.domains: set[str] = set()
        self.allowed_domains: frozenset[str] = frozenset()
        self.functions: dict[Hashable, ir.Function] = {}

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        if op_type.startswith("_"):
            raise AttributeError(op_type)
        return functools.partial(self.call, op_type)

    def call(self, op_type: str, *inputs: Any, outputs: int = 1, domain: str = "", **attrs: Any) -> Any:
        """Append a node; returns its output, or a tuple of them if `outputs` is more than one.

        Where ONNX lacks an operator for float16 or bfloat16, it is computed in float32 and rounded.
        """
        schema = schema_of(op_type, domain, self._versions.get(domain))
        try:
            values = inference.promote(schema, inputs, self.constant)
        except UnsupportedDtype:
            half = [schema.inputs[min(i, len(schema.inputs) - 1)] for i, v in enumerate(inputs) if _is_half(v)]
            if self._opset != OPSET or not half or not all("tensor(float)" in formal.types for formal in half):
                raise
            return self._in_float32(schema, inputs, outputs, attrs)
        attributes = [a for name, v in attrs.items() if (a := self._attribute(schema, name, v, values, attrs)) is not None]
        for name, declared in schema.attributes.items():
            if declared.required and name not in {a.name for a in attributes}:
                raise TypeError(f"{op_type} needs the attribute {name!r}")
        node = ir.Node(domain, op_type, values, attributes, num_outputs=outputs)
        inference.infer(schema, node, self._known)
        name_sizes(node)
        known = fold.fold(node, self._folded_elements) if self._opset == OPSET else None
        if known is not None:
            stem = next((v.name for v in values if v is not None and v.name), "")
            results = tuple(self.constant(a, f"{stem}.{op_type.lower()}" if stem else "") for a in known)
            weights = [v for v in values if v is not None and not v.meta.get(fold.COMPUTED)]
            viewed = values[0] if weights and len(results) == 1 and _is_view(op_type, values[0], results[0]) else None
            for result in results:
                if not weights:
                    result.meta[fold.COMPUTED] = True
                    continue
                fold.record_formula(result, node)
                if viewed is not None:
                    provenance.set_view(result, viewed)
                elif any(provenance.state_of(v.const_value) == "parameter" for v in weights):
                    provenance.inherit_state(result.const_value, [v.const_value for v in weights])
                elif all(provenance.is_fixed(v.const_value) for v in weights) and result.const_value is not None:
                    provenance.set_state(result.const_value, "constant")
            for i in range(len(values)):
                node.replace_input_with(i, None)
            return results if outputs > 1 else results[0]
        self.append(node)
        return tuple(node.outputs) if outputs > 1 else node.outputs[0]

    def _in_float32(self, schema: onnx.defs.OpSchema, inputs: Sequence[Any], outputs: int, attrs: Mapping[str, Any]) -> Any:
        half = next(self.constant(v).dtype for v in inputs if _is_half(v))
        wide = [self.call("Cast", v, to=ir.DataType.FLOAT) if _is_half(v) else v for v in inputs]
        made = self.call(schema.name, *wide, outputs=outputs, domain=schema.domain, **attrs)
        types = {schema.inputs[min(i, len(schema.inputs) - 1)].type_str for i, v in enumerate(inputs) if _is_half(v)}
        results = made if isinstance(made, tuple) else (made,)
        rounded = tuple(
            self.call("Cast", v, to=half) if schema.outputs[min(i, len(schema.outputs) - 1)].type_str in types else v
            for i, v in enumerate(results)
        )
        return rounded if outputs > 1 else rounded[0]

    def append(self, node: ir.Node) -> None:
        """Append an existing node: one of an operator without a schema."""
        if node.domain:
            self.domains.add(node.domain)
        source_locations.write(node, self._where)
        self._nodes[-1].append(node)

    def custom(
        self, domain: str, op_type: str, *inputs: Any, dtypes: Sequence[ir.DataType], ranks: Sequence[int | None], **attrs: Any
    ) -> Any:
        """Append a node of a domain outside the standard; returns its outputs, whose dtypes and ranks are given.

        Raises:
            Unsupported: if the user did not allow the domain.
        """
        if domain not in self.allowed_domains:
            raise Unsupported(
                f"ONNX cannot express it; {op_type} of the domain {domain} can", f"allow that domain: --allow-domain {domain}"
            )
        values = [None if i is None else self.constant(i) for i in inputs]
        node = ir.Node(domain, op_type, values, ir.convenience.convert_attributes(attrs), num_outputs=len(dtypes))
        for output, dtype, rank in zip(node.outputs, dtypes, ranks, strict=True):
            output.dtype = dtype
            output.shape = None if rank is None else ir.Shape([None] * rank)
        self.append(node)
        return tuple(node.outputs) if len(dtypes) > 1 else node.outputs[0]

    @contextmanager
    def folding_any_size(self) -> Iterator[None]:
        """Nodes on constants are folded whatever the size of their results: for what the model needs only as a constant."""
        outer, self._folded_elements = self._folded_elements, math.inf
        try:
            yield
        finally:
            self._folded_elements = outer

    def loses(self, what: str) -> None:
        """Report that the nodes created next are only approximately equivalent.

        Raises:
            Unsupported: if lossy steps are not allowed.
        """
        if self._loses is None:
            raise Unsupported(what)
        self._loses(what)

    def constant(self, value: Any, name: str = "", dtype: ir.DataType | None = None) -> ir.Value:
        """A constant value. Arrays and tensors are referenced, not copied; small unnamed constants are deduplicated."""
        if isinstance(value, ir.Value):
            return value
        if not isinstance(value, _PLAIN) and isinstance(value, ir.TensorProtocol):
            return self._constant_value(value, name)
        array = np.asarray(value, dtype=dtype.numpy() if dtype else object if isinstance(value, bytes) else None)
        key: tuple[Any, ...] | None = None
        if not name and array.size <= 16 and array.dtype != object:
            key = (array.dtype.str, str(array.dtype), array.shape, array.tobytes())
            if key in self._constants:
                return self._constants[key]
        created = self._constant_value(
            strings.tensor(array) if strings.is_strings(array) else ir.Tensor(array, dtype=dtype), name
        )
        if not name:
            created.meta[fold.COMPUTED] = True
        if key is not None:
            self._constants[key] = created
        return created

    def _constant_value(self, tensor: ir.TensorProtocol, name: str) -> ir.Value:
        label = self.unique(name or f"constant_{len(self._names)}")
        tensor.name = label
        return ir.Value(name=label, type=ir.TensorType(tensor.dtype), shape=ir.Shape(tensor.shape.numpy()), const_value=tensor)

    def input(self, name: str, dtype: ir.DataType, shape: Sequence[int | str | None] | None) -> ir.Value:
        """A new value without a producer: an input of the graph or of a body."""
        return ir.Value(name=self.unique(name), type=ir.TensorType(dtype), shape=None if shape is None else ir.Shape(list(shape)))

    def _attribute(
        self, schema: onnx.defs.OpSchema, name: str, value: Any, inputs: Sequence[ir.Value | None], attrs: Mapping[str, Any]
    ) -> ir.Attr | None:
        declared = schema.attributes.get(name)
        if declared is None:
            raise TypeError(f"{schema.name} has no attribute {name!r}")
        if value is None:
            return None
        kind = ir.AttributeType(int(declared.type))  # type: ignore[call-overload]
        if kind == ir.AttributeType.GRAPH:
            if isinstance(value, ir.Graph):
                return ir.AttrGraph(name, value)
            arguments = [(label, kind, _NO_NOTES) for label, kind in inference.body_inputs(schema.name, inputs, attrs)]
            return ir.AttrGraph(name, self.body(f"{schema.name}_{name}", value, arguments))
        return ir.Attr(name, kind, inference.attribute_value(kind, name, value))

    def body(
        self, name: str, function: Callable[..., Any], inputs: Iterable[tuple[str, ir.TypeAndShape, Mapping[str, Any]]]
    ) -> ir.Graph:
        """Trace `function` into a new graph; `inputs` are the names, types and metadata of its inputs."""
        parameters = []
        for label, declared, notes in inputs:
            v = ir.Value(name=self.unique(label), type=declared.type, shape=declared.shape)
            v.meta.update(notes)
            parameters.append(v)
        self._nodes.append([])
        try:
            results = function(*parameters)
            results = list(results) if isinstance(results, (tuple, list)) else [results]
            local = {id(o) for n in self._nodes[-1] for o in n.outputs}
            # each output of a body must be the result of its own node: outer values, constants and duplicates need an Identity
            outputs: list[ir.Value] = []
            for r in results:
                v = self.constant(r)
                if id(v) not in local or any(v is o for o in outputs):
                    v = self.identity(v)
                outputs.append(v)
            self.name_rest(name)
            return ir.Graph(parameters, outputs, nodes=self._nodes[-1], name=self.unique(name))
        finally:
            self._nodes.pop()

    def inline(self, graph: ir.Graph, inputs: Sequence[ir.Value]) -> list[ir.Value]:
        """Move a graph's nodes here, with these values as its inputs; returns the values of its outputs."""
        for inside, outside in zip(graph.inputs, inputs, strict=True):
            inside.replace_all_uses_with(outside, replace_graph_outputs=True)
        results, nodes = list(graph.outputs), list(graph)
        graph.outputs.clear()
        graph.initializers.clear()
        graph.remove(nodes)
        self._nodes[-1] += nodes
        return results

    def identity(self, value: ir.Value) -> ir.Value:
        """An Identity of the value, which is not folded even if the value is constant."""
        node = ir.Node("", "Identity", [value])
        node.outputs[0].type, node.outputs[0].shape = value.type, value.shape
        source_locations.write(node, self._where)
        self._nodes[-1].append(node)
        return node.outputs[0]

    # names and source locations

    def unique(self, name: str) -> str:
        """The name itself if it is unused, otherwise with a number appended."""
        return unique_name(name, self._names)

    def reserve(self, name: str) -> None:
        """Reserve a name for an output, so that no other value gets it."""
        self._names.add(name)
        self._reserved.add(name)

    @contextmanager
    def scope(self, name: str, where: SourceLocation) -> Iterator[None]:
        """Nodes created inside get the source location `where`, and unnamed values names that start with `name`."""
        outer = self._prefix, self._where
        start = len(self._nodes[-1])
        self._prefix, self._where = name, where
        try:
            yield
            self.name_rest(name, start)
        finally:
            self._prefix, self._where = outer

    def name_rest(self, stem: str, start: int = 0) -> None:
        """Name the unnamed values and nodes of the current graph from node `start` on."""
        for node in self._nodes[-1][start:]:
            for value in node.outputs:
                if not value.name:
                    value.name = self.unique(f"{stem}/{node.op_type}" if stem else node.op_type)
            if not node.name:
                node.name = node.outputs[0].name if node.outputs else None

    def rename(self, value: ir.Value, name: str) -> ir.Value:
        """Name a value that has no name yet."""
        if not value.name:
            value.name = self.unique(name)
        return value

    # results

    def take(self) -> list[ir.Node]:
        """Return the nodes created so far and remove them from the builder."""
        nodes, self._nodes[-1] = self._nodes[-1], []
        return nodes

    @property
    def nodes(self) -> list[ir.Node]:
        """The nodes created so far in the current graph."""
        return self._nodes[-1]

    def graph(self, inputs: Sequence[ir.Value], outputs: Sequence[ir.Value], name: str) -> ir.Graph:
        """A graph of all nodes created so far, with the constants they use as initializers."""
        self.name_rest("")
        used: dict[str, ir.Value] = {}

        def collect(nodes: Iterable[ir.Node]) -> None:
            for node in nodes:
                for v in node.inputs:
                    if v is not None and v.const_value is not None and v.producer() is None and v.name:
                        used.setdefault(v.name, v)
                for a in node.attributes.values():
                    if a.type == ir.AttributeType.GRAPH:
                        collect(a.as_graph())

        collect(self._nodes[0])
        imports = {"": OPSET} | {d: version_of(d) for d in sorted(self.domains)}
        return ir.Graph(
            list(inputs), list(outputs), nodes=self._nodes[0], initializers=list(used.values()), name=name, opset_imports=imports
        )

    def output(self, value: ir.Value, name: str) -> ir.Value:
        """The value under the output's own name; an input, a constant or another output passes through Identity."""
        free = value.producer() is not None and not value.is_graph_output() and "output" not in value.meta
        if not free:
            value = self.identity(value)
        value.meta["output"] = True
        if value.name != name:
            self._names.discard(value.name or "")
            value.name = name if name in self._reserved else self.unique(name)
            self._reserved.discard(name)
        return value

    def model(self, inputs: Sequence[ir.Value], outputs: Sequence[ir.Value], name: str = "main_graph") -> ir.Model:
        """Close the graph as a model of the hub."""
        graph, functions = self.graph(inputs, outputs, name), list(self.functions.values())
        return ir.Model(graph, ir_version=13, producer_name="onnxbridge", functions=functions)

    # shapes

    def dims(self, sizes: Sequence[Any]) -> ir.Value:
        """A 1-D int64 value from sizes that are numbers or scalar values, as Reshape and Expand take it."""
        if all(isinstance(s, (int, np.integer)) for s in sizes):
            return self.constant(np.array([int(s) for s in sizes], np.int64))
        parts: list[Any] = []
        for s in sizes:
            if isinstance(s, (int, np.integer)):
                if parts and isinstance(parts[-1], list):
                    parts[-1].append(int(s))
                else:
                    parts.append([int(s)])
            else:
                s = s if s.dtype == ir.DataType.INT64 else self.Cast(s, to=ir.DataType.INT64)
                parts.append(self.Reshape(s, [1]))
        parts = [self.constant(np.array(p, np.int64)) if isinstance(p, list) else p for p in parts]
        joined: ir.Value = parts[0] if len(parts) == 1 else self.Concat(*parts, axis=0)
        return joined

    def reshape(self, x: ir.Value, sizes: Sequence[Any]) -> ir.Value:
        """`x` reshaped to `sizes`, integers or scalar values; a single value is written as -1. No-op if `x` has these sizes."""
        if x.shape is not None and x.shape.is_static() and x.shape.numpy() == tuple(sizes):
            return x
        values = [i for i, s in enumerate(sizes) if isinstance(s, ir.Value)]
        if len(values) == 1 and all(isinstance(s, ir.Value) or s > 0 for s in sizes):
            sizes = [-1 if i == values[0] else s for i, s in enumerate(sizes)]
        shape = self.dims(sizes)
        allowzero = 1 if any(not isinstance(s, ir.Value) and s == 0 for s in sizes) else None
        reshaped: ir.Value = self.Reshape(x, shape, allowzero=allowzero)
        return reshaped

    def size(self, x: ir.Value, axis: int) -> Any:
        """The size of an axis: an integer if it is static, otherwise a scalar int64 value."""
        if x.shape is not None and isinstance(x.shape[axis], int):
            return x.shape[axis]
        rank = len(x.shape) if x.shape is not None else None
        if axis < 0 and rank is not None:
            axis += rank
        end = axis + 1 if axis != -1 else None
        return self.Squeeze(self.Shape(x, start=axis, end=end), [0])


def _is_view(op_type: str, weight: ir.Value | None, result: ir.Value) -> bool:
    """Whether a folded node only reshapes a weight, or looks up all its rows in order."""
    if op_type == "Gather" and weight is not None:
        before, after = fold.constant_array(weight), fold.constant_array(result)
        return before is not None and after is not None and before.shape == after.shape and np.array_equal(before, after)
    return op_type in provenance.VIEWS
