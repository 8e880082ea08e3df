"""The `sym` writer: nodes of an MXNet symbol and their parameters, written without MXNet.

    y = sym.Activation(sym.Convolution(x, weight, kernel=(3, 3), num_filter=8, no_bias=True), act_type="relu")

Numbers among the inputs become parameters with the dtype of the first value in the call. Equal numbers share a parameter; arrays
do not, since weights that are equal now may be trained to differ.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxbridge.formats.mxnet.write_params import flag
from onnxbridge.hub.ir.unique_name import unique_name

Array = np.ndarray[Any, Any]
VERSION = 10901
# variadic operators, which need the number of inputs as an attribute
VARIADIC = frozenset({"Concat", "add_n", "stack", "UpSampling", "_npi_concatenate", "_npi_stack", "_npi_einsum", "khatri_rao"})
STATES = {"BatchNorm": (3, 4)}
"""The inputs of an operator that are auxiliary states."""


@dataclass(eq=False)
class Value:
    """One output of a node. `array` is the content of a parameter; `shape` has ints, names and None, or is None if unknown."""

    node: int
    index: int
    dtype: np.dtype[Any]
    shape: tuple[int | str | None, ...] | None
    array: Array | None = None

    @property
    def rank(self) -> int:
        assert self.shape is not None
        return len(self.shape)


class Writer:
    """Collects the nodes. `np_shape` tells whether there are arrays without dimensions or elements."""

    def __init__(self, np_shape: bool) -> None:
        self.np_shape = np_shape
        self.nodes: list[dict[str, Any]] = []
        self.params: dict[str, Array] = {}
        self._names: set[str] = set()
        self._stem = ""
        self._numbers: dict[tuple[str, bytes], Value] = {}
        self._arguments: dict[int, Value] = {}
        """For each auxiliary state that is also used as an argument, its copy."""

    def __getattr__(self, op: str) -> Callable[..., Any]:
        if op.startswith("__"):
            raise AttributeError(op)
        return functools.partial(self.call, op)

    def call(self, op: str, *inputs: Any, outputs: int = 1, **attrs: Any) -> Any:
        """Append one node; returns its value, or a tuple if `outputs` is more than one."""
        operands = [i for i in inputs if i is not None]
        like = next((i for i in operands if isinstance(i, Value)), None)
        values = [i if isinstance(i, Value) else self._constant(i, like.dtype if like else None) for i in operands]
        states = STATES.get(op, ())
        values = [v if i in states else self._argument(v) for i, v in enumerate(values)]
        for position in states:
            shared = sum(v.node == values[position].node for v in values) > 1
            values[position] = self._state(values[position], shared)
        if op in VARIADIC:
            attrs["num_args"] = len(values)
        strings = {name: _text(value) for name, value in attrs.items() if value is not None}
        name = self.unique(f"{self._stem}/{op}" if self._stem else op)
        self.nodes.append({"op": op, "name": name, "attrs": strings, "inputs": [[v.node, v.index, 0] for v in values]})
        dtype = like.dtype if like is not None else np.dtype(np.float32)
        made = tuple(Value(len(self.nodes) - 1, i, dtype, None) for i in range(outputs))
        return made if outputs > 1 else made[0]

    def variable(self, name: str, dtype: np.dtype[Any], shape: tuple[int | str | None, ...] | None) -> Value:
        """An input of the symbol."""
        self.nodes.append({"op": "null", "name": self.unique(name), "attrs": {"__dtype__": str(flag(dtype))}, "inputs": []})
        return Value(len(self.nodes) - 1, 0, dtype, shape)

    def constant(self, array: Array, name: str = "", prefix: str = "arg", rate: str = "1.0") -> Value:
        """A parameter, stored without a copy. `rate` is its learning rate multiplier in MXNet.

        A scalar is stored with one dimension, which the graph removes: MXNet's files have either scalars or the format that it
        loads by default.
        """
        label = self.unique(name or f"{self._stem}/constant".lstrip("/"))
        stored = array if array.ndim else array.reshape(1)
        attrs_ = {"__shape__": _text(stored.shape), "__dtype__": str(flag(array.dtype)), "__lr_mult__": rate, "__wd_mult__": rate}
        self.nodes.append({"op": "null", "name": label, "attrs": attrs_, "inputs": []})
        self.params[f"{prefix}:{label}"] = stored
        made = Value(len(self.nodes) - 1, 0, array.dtype, stored.shape if self.np_shape else array.shape, array)
        if array.ndim or not self.np_shape:  # without np-shape, a shape without dimensions means unknown
            return made
        scalar = self.call("_np_reshape", made, newshape=())
        return Value(scalar.node, 0, array.dtype, (), array)

    def _constant(self, number: Any, dtype: np.dtype[Any] | None) -> Value:
        """An input given by a rule as a number or an array."""
        array = np.asarray(number, dtype)
        if isinstance(number, np.ndarray):
            return self.constant(array)
        key = array.dtype.str, array.tobytes()
        if array.ndim or key not in self._numbers:
            made = self.constant(array, rate="0.0")
            if array.ndim:
                return made
            self._numbers[key] = made
        return self._numbers[key]

    def _state(self, value: Value, shared: bool) -> Value:
        """A parameter as an auxiliary state: itself, or a copy if it is also an argument."""
        assert value.array is not None
        node = self.nodes[value.node]
        name = node["name"]
        if f"aux:{name}" in self.params:
            return value
        if shared or self._used(value.node):
            return self.constant(value.array, name, "aux")
        self.params[f"aux:{name}"] = self.params.pop(f"arg:{name}")
        return value

    def _argument(self, value: Value) -> Value:
        """A value as an argument: itself, or a copy if it is an auxiliary state."""
        if value.array is None or f"aux:{self.nodes[value.node]['name']}" not in self.params:
            return value
        if value.node not in self._arguments:
            self._arguments[value.node] = self.constant(value.array, self.nodes[value.node]["name"])
        return self._arguments[value.node]

    def _used(self, node: int) -> bool:
        return any(i[0] == node for n in self.nodes for i in n["inputs"])

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
        node = self.nodes[value.node]
        if node["op"] != "null" and name not in self._names:
            self._names.discard(node["name"])
            node["name"] = self.unique(name)

    def symbol(self, heads: Sequence[Value]) -> str:
        """The content of the symbol file, without unused nodes, as MXNet does when loading."""
        needed = {v.node for v in heads}
        for i in reversed(range(len(self.nodes))):
            if i in needed:
                needed.update(e[0] for e in self.nodes[i]["inputs"])
        new_index = {old: new for new, old in enumerate(sorted(needed))}
        nodes = []
        for old in new_index:
            node = {k: v for k, v in self.nodes[old].items() if k != "attrs" or v}
            nodes.append(node | {"inputs": [[new_index[n], o, 0] for n, o, _ in node["inputs"]]})
        used_names = {n["name"] for n in nodes}
        self.params = {name: array for name, array in self.params.items() if name.split(":", 1)[1] in used_names}
        graph = {
            "nodes": nodes,
            "arg_nodes": [i for i, n in enumerate(nodes) if n["op"] == "null"],
            "node_row_ptr": list(range(len(nodes) + 1)),
            "heads": [[new_index[v.node], v.index, 0] for v in heads],
            "attrs": {"mxnet_version": ["int", VERSION]} | ({"is_np_shape": ["int", 1]} if self.np_shape else {}),
        }
        return json.dumps(graph, indent=1) + "\n"


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
