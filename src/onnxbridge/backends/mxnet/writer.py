"""The `sym` writer: nodes of an MXNet symbol and their parameters, written without MXNet.

    y = sym.Activation(sym.Convolution(x, weight, kernel=(3, 3), num_filter=8, no_bias=True), act_type="relu")

Numbers and arrays among the inputs become constants, numbers with the dtype of the first value in the call. A constant is written
when an operator first uses it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from onnxbridge.backends.mxnet.constants import Constant, creating_operator, stored_dtype
from onnxbridge.backends.mxnet.merge_biases import merge_biases
from onnxbridge.backends.mxnet.prevent_wrong_fusions import separate_shared_results
from onnxbridge.formats.mxnet.write_params import flag
from onnxbridge.hub.ir.unique_name import unique_name

Array = np.ndarray[Any, Any]
VERSION = 10901
VARIADIC = frozenset({
    "Concat", "add_n", "stack", "UpSampling", "_npi_concatenate", "_npi_stack", "_npi_einsum", "khatri_rao", "_rnn_param_concat",
    "_foreach", "_while_loop", "_cond",
})  # fmt: skip
"""Operators that need the number of inputs as an attribute."""
STATES = {"BatchNorm": (3, 4)}
"""The inputs of an operator that are auxiliary states."""


@dataclass(eq=False)
class Graph:
    """The nodes of a symbol or of one of its subgraphs, which `operator` has.

    `captured` are the variables of a subgraph for entries of the outer graph, `written` the nodes of constants.
    """

    nodes: list[dict[str, Any]] = field(default_factory=list)
    captured: dict[tuple[int, int], int] = field(default_factory=dict)
    written: dict[Constant, int] = field(default_factory=dict)
    operator: str = ""


@dataclass(frozen=True)
class Subgraph:
    """A subgraph as it is written: its variables, in MXNet's order, as positions among its parameters (negative for captured
    values, -1 the first of `captured`)."""

    content: dict[str, Any]
    variables: list[int]
    captured: list[Value]
    results: tuple[Any, ...]


@dataclass(eq=False)
class Value:
    """One output of a node. `shape` has ints, names and None, or is None if unknown.

    `graph` is where its node is; a constant has none until it is used.
    """

    node: int | None
    index: int
    dtype: np.dtype[Any]
    shape: tuple[int | str | None, ...] | None
    graph: Graph | None = None
    constant: Constant | None = None

    @property
    def array(self) -> Array | None:
        """The content of a constant."""
        return None if self.constant is None else self.constant.array

    @property
    def rank(self) -> int:
        assert self.shape is not None
        return len(self.shape)


class Writer:
    """Collects the nodes. `np_shape` tells whether there are arrays without dimensions or elements."""

    def __init__(self, np_shape: bool) -> None:
        self.np_shape = np_shape
        self.needs_np_shape = np_shape
        """Whether an operator was written whose result may be empty."""
        self.graphs = [Graph()]
        """The graph being written, and those around it first."""
        self.params: dict[str, Array] = {}
        self._names: set[str] = set()
        self._stem = ""
        self.module = ""
        """The path of the source's module whose operator is being written."""
        self.expected: tuple[tuple[int | str | None, ...] | None, ...] = ()
        """The declared shapes of the results of that operator."""
        self.sizes: dict[str, tuple[Value, int]] = {}
        """The dynamic sizes by name: an input of the model that has the size, and the axis."""
        self._numbers: dict[tuple[str, bytes], Value] = {}
        self._named: dict[str, Constant] = {}
        """Trained constants by name."""

    @property
    def nodes(self) -> list[dict[str, Any]]:
        """The nodes of the graph being written."""
        return self.graphs[-1].nodes

    def __getattr__(self, op: str) -> Callable[..., Any]:
        if op.startswith("__"):
            raise AttributeError(op)
        return functools.partial(self.call, op)

    def call(self, op: str, *inputs: Any, outputs: int = 1, subgraphs: Sequence[Any] = (), **attrs: Any) -> Any:
        """Append one node; returns its value, or a tuple if `outputs` is more than one."""
        operands = [i for i in inputs if i is not None]
        like = next((i for i in operands if isinstance(i, Value)), None)
        values = [i if isinstance(i, Value) else self.literal(i, like.dtype if like else None) for i in operands]
        states = STATES.get(op, ())
        entries = [self._state(v) if i in states else self.entry(v) for i, v in enumerate(values)]
        if op in VARIADIC:
            attrs["num_args"] = len(values) + len(subgraphs)
        strings = {name: _text(value) for name, value in attrs.items() if value is not None}
        name = self.unique(f"{self._stem}/{op}" if self._stem else op)
        node = {"op": op, "name": name, "attrs": strings, "inputs": [[*e, 0] for e in entries]}
        self.nodes.append(node if not subgraphs else node | {"subgraphs": subgraphs})
        dtype = like.dtype if like is not None else np.dtype(np.float32)
        made = tuple(Value(len(self.nodes) - 1, i, dtype, None, self.graphs[-1]) for i in range(outputs))
        return made if outputs > 1 else made[0]

    def variable(self, name: str, dtype: np.dtype[Any], shape: tuple[int | str | None, ...] | None) -> Value:
        """An input of the symbol."""
        self.nodes.append({"op": "null", "name": self.unique(name), "attrs": {"__dtype__": str(flag(dtype))}, "inputs": []})
        return Value(len(self.nodes) - 1, 0, dtype, shape, self.graphs[-1])

    def constant(self, array: Array, name: str = "", trained: bool = False) -> Value:
        """A constant, stored without a copy; `trained` ones are parameters.

        A parameter of the same name and content is shared.
        """
        made = Constant(array, name or f"{self._stem}/constant".lstrip("/"), trained)
        if trained:
            known = self._named.setdefault(made.name, made)
            if known.array.shape == array.shape and np.array_equal(known.array, array):
                made = known
        return Value(None, 0, array.dtype, array.shape, constant=made)

    def view(self, array: Array, parameter: Value, transposed: bool = False) -> Value:
        """A constant that is a reshaped view of a parameter, or its transpose."""
        assert parameter.constant is not None
        made = Constant(array, parameter.constant.name, True, (), parameter.constant, transposed)
        return Value(None, 0, array.dtype, array.shape, constant=made)

    def transposed(self, value: Value) -> Value | None:
        """The parameter whose transpose a constant is, None if there is none."""
        constant = value.constant
        if constant is None or constant.source is None or not constant.transposed:
            return None
        return Value(None, 0, value.dtype, constant.source.array.shape, constant=constant.source)

    def literal(self, number: Any, dtype: np.dtype[Any] | None = None) -> Value:
        """An input given by a rule as a number or an array. Equal numbers are written once."""
        if isinstance(number, np.ndarray):
            return self.constant(number)
        array = np.asarray(number, dtype)
        key = array.dtype.str, array.tobytes()
        if array.ndim:
            return self.constant(array)
        if key not in self._numbers:
            self._numbers[key] = self.constant(array)
        return self._numbers[key]

    def entry(self, value: Value) -> tuple[int, int]:
        """The node and the output of a value in the graph being written.

        A constant is written if it was not used before; a value of an outer graph becomes a variable of the subgraph.
        """
        graph, constant = self.graphs[-1], value.constant
        if constant is not None:
            if constant in graph.written:
                return graph.written[constant], 0
            if len(self.graphs) == 1 or (not constant.trained and creating_operator(constant.array) is not None):
                graph.written[constant] = self._written(constant)
                return graph.written[constant], 0
        elif value.graph is graph:
            assert value.node is not None
            return value.node, value.index
        assert len(self.graphs) > 1
        self.graphs.pop()
        try:
            outer = self.entry(value)
            name = self.nodes[outer[0]]["name"]
        finally:
            self.graphs.append(graph)
        if outer not in graph.captured:
            graph.nodes.append({"op": "null", "name": self.unique(name), "attrs": {}, "inputs": []})
            graph.captured[outer] = len(graph.nodes) - 1
        return graph.captured[outer], 0

    def _written(self, constant: Constant) -> int:
        """The node that is the content of a constant."""
        array = constant.array
        if constant.trained:
            node = self._variable(constant.source or constant)
            if constant.transposed:
                return self._append("transpose", node, constant.name, {"axes": (1, 0)})
            if constant.source is None and (array.ndim or not self.np_shape):
                return node
            op, key = ("Reshape", "shape") if array.size and array.ndim else ("_np_reshape", "newshape")
            return self._append(op, node, constant.name, {key: array.shape})
        created = creating_operator(array)
        stored = stored_dtype(array)
        if created is not None:
            node = self._append(created[0], None, constant.name, created[1])
        else:
            node = self._variable(constant, array.astype(stored) if stored != array.dtype else array, "0.0")
            node = self._append("BlockGrad", node, constant.name, {})
            if stored != array.dtype:
                node = self._append("Cast", node, constant.name, {"dtype": array.dtype})
        if array.ndim or not self.np_shape:
            return node
        return self._append("_np_reshape", node, constant.name, {"newshape": ()})

    def _append(self, op: str, node: int | None, name: str, attrs: dict[str, Any]) -> int:
        """Append an operator on a constant."""
        strings = {key: _text(value) for key, value in attrs.items()}
        inputs = [] if node is None else [[node, 0, 0]]
        self.nodes.append({"op": op, "name": self.unique(f"{name}/{op}"), "attrs": strings, "inputs": inputs})
        return len(self.nodes) - 1

    def _variable(self, constant: Constant, stored: Array | None = None, rate: str = "1.0", prefix: str = "arg") -> int:
        """The variable of a constant. `rate` multiplies its learning rate and weight decay.

        A scalar is stored with one dimension, which the graph removes: MXNet's files have either scalars or the format that it
        loads by default.
        """
        known = constant.state if prefix == "aux" else constant.variable
        if known is not None:
            return known
        array = constant.array if stored is None else stored
        array = array if array.ndim else array.reshape(1)
        label = self.unique(constant.name)
        attrs = {"__shape__": _text(array.shape), "__dtype__": str(flag(array.dtype)), "__lr_mult__": rate, "__wd_mult__": rate}
        self.nodes.append({"op": "null", "name": label, "attrs": attrs, "inputs": []})
        self.params[f"{prefix}:{label}"] = array
        node = len(self.nodes) - 1
        if prefix == "aux":
            constant.state = node
        else:
            constant.variable = node
        return node

    def _state(self, value: Value) -> tuple[int, int]:
        """A constant as an auxiliary state. It is another variable if the constant is also an argument."""
        assert value.constant is not None
        return self._variable(value.constant, rate="0.0", prefix="aux"), 0

    @contextmanager
    def scope(self, stem: str) -> Iterator[None]:
        """The names of nodes written inside begin with `stem`."""
        outer, self._stem = self._stem, stem
        try:
            yield
        finally:
            self._stem = outer

    def unique(self, name: str) -> str:
        """The name itself if it is unused, otherwise with a number appended."""
        return unique_name(name, self._names)

    def rename(self, value: Value, name: str) -> None:
        """Rename the node of a value, if the name is unused."""
        node = self.nodes[self.entry(value)[0]]
        if node["op"] != "null" and name not in self._names:
            self._names.discard(node["name"])
            node["name"] = self.unique(name)

    def subgraph(self, operator: str, function: Callable[..., Sequence[Any]], parameters: Sequence[Value]) -> Subgraph:
        """A subgraph of an operator that computes a function of parameters like the given values."""
        graph = Graph(operator=operator)
        self.graphs.append(graph)
        try:
            names = [f"{self._stem}/{function.__name__}{i}" for i in range(len(parameters))]
            inner = [self.variable(n, p.dtype, p.shape) for n, p in zip(names, parameters, strict=True)]
            results = tuple(function(*inner))
            # a graph input, and a node that is two results, is copied
            heads = [self._copy(r) for r in results]
            content = self._content([self.entry(h) for h in heads])
        finally:
            self.graphs.pop()
        order = [n["name"] for n in content["nodes"] if n["op"] == "null"]
        position = {graph.nodes[i]["name"]: i for i in range(len(parameters))}
        outer = {graph.nodes[i]["name"]: entry for entry, i in graph.captured.items()}
        used = [name for name in order if name in outer]
        captured = [Value(*outer[name], np.dtype(np.float32), None, self.graphs[-1]) for name in used]
        variables = [position[n] if n in position else -1 - used.index(n) for n in order]
        return Subgraph(content, variables, captured, tuple(heads))

    def _copy(self, value: Any) -> Value:
        value = value if isinstance(value, Value) else self.literal(np.asarray(value))
        made: Value = self.call("_copy", value)
        return replace(made, dtype=value.dtype, shape=value.shape)

    def symbol(self, heads: Sequence[Value]) -> str:
        """The content of the symbol file, without unused nodes, as MXNet does when loading."""
        content = self._content([self.entry(v) for v in heads])
        used_names = {n["name"] for n in content["nodes"]}
        self.params = {name: array for name, array in self.params.items() if name.split(":", 1)[1] in used_names}
        attrs = {"mxnet_version": ["int", VERSION]} | ({"is_np_shape": ["int", 1]} if self.np_shape else {})
        return json.dumps(content | {"attrs": attrs}, indent=1) + "\n"

    def _content(self, ends: list[tuple[int, int]]) -> dict[str, Any]:
        """The graph as it is written, with the nodes in the order in which MXNet visits them from the outputs."""
        heads = [node for node, _ in ends]
        merge_biases(self.nodes, heads)
        separate_shared_results(self.nodes, heads, self.unique)
        order = visited(self.nodes, heads)
        new_index = {old: new for new, old in enumerate(order)}
        nodes = []
        for old in order:
            node = {k: v for k, v in self.nodes[old].items() if k != "attrs" or v}
            nodes.append(node | {"inputs": [[new_index[n], o, 0] for n, o, _ in node["inputs"]]})
        return {
            "nodes": nodes,
            "arg_nodes": [i for i, n in enumerate(nodes) if n["op"] == "null"],
            "node_row_ptr": list(range(len(nodes) + 1)),
            "heads": [[new_index[node], output, 0] for node, output in ends],
        }


def visited(nodes: list[dict[str, Any]], heads: Sequence[int]) -> list[int]:
    """The nodes that the heads need, each after its inputs, depth first."""
    order: list[int] = []
    seen: set[int] = set()
    for head in heads:
        stack = [(head, False)]
        while stack:
            node, done = stack.pop()
            if done:
                order.append(node)
            elif node not in seen:
                seen.add(node)
                stack.append((node, True))
                stack += [(e[0], False) for e in reversed(nodes[node]["inputs"]) if e[0] not in seen]
    return order


def _text(value: Any) -> str:
    """An attribute as a string in MXNet's format."""
    if isinstance(value, np.dtype):
        return value.name
    if isinstance(value, (list, tuple)):
        inner = ", ".join(_text(v) for v in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, (float, np.floating)):
        return repr(float(value))
    return str(value)
