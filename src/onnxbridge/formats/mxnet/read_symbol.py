"""Reads `-symbol.json` files of all versions since MXNet 0.8, without MXNet."""

from __future__ import annotations

import ast
import json
import os
import re
from dataclasses import dataclass, field, replace
from typing import Any

from onnxbridge.errors import LimitError, UnsafeFileError
from onnxbridge.hub.io.safe_files import checked_path, map_file, open_file, quoted

MAX_BYTES = 1 << 30
MAX_DEPTH = 32
# before 0.9.0, files omitted the auxiliary states among an operator's inputs
INPUTS_BEFORE_0_9 = {"BatchNorm": (3, ("moving_mean", "moving_var")), "IdentityAttachKLSparseReg": (1, ("moving_avg",))}
# before 0.9.0, these said where and how to train, without the underscores around them
_UNDERSCORED_SINCE_0_9 = ("ctx_group", "lr_mult", "wd_mult", "force_mirroring", "mirror_stage")
_PYTHON_2_LONG = re.compile(r"(?<=\d)L\b")


@dataclass(frozen=True)
class Node:
    """One node: `op` is "null" for a variable. `inputs` are (node, output) pairs, `attrs` the strings in the file."""

    op: str
    name: str
    attrs: dict[str, str]
    inputs: tuple[tuple[int, int], ...]
    subgraphs: tuple[Graph, ...] = ()


@dataclass(frozen=True)
class Graph:
    """A symbol: its nodes in topological order, and its outputs as (node, output) pairs."""

    nodes: tuple[Node, ...]
    heads: tuple[tuple[int, int], ...]
    np_shape: bool = False
    attrs: dict[str, Any] = field(default_factory=dict)

    @property
    def version(self) -> int:
        """The version of MXNet that wrote the file, 10901 for 1.9.1; 0 before 0.9.0."""
        return _version(self.attrs)


def read(path: str | os.PathLike[str]) -> Graph:
    """The symbol in a file.

    Raises:
        UnsafeFileError: if it is not one.
    """
    label = checked_path(path)
    data = map_file(open_file(path))
    if len(data) > MAX_BYTES:
        raise LimitError(f"{label}: has {len(data)} bytes, more than the limit of {MAX_BYTES} bytes for a symbol")
    try:
        parsed = json.loads(bytes(data))
    except (ValueError, RecursionError) as e:
        raise UnsafeFileError(f"{label}: is not a symbol file: {str(e)[:200]}.") from None
    return graph(parsed, label)


def graph(parsed: Any, label: str, depth: int = 0) -> Graph:
    """A symbol from parsed JSON."""
    try:
        if depth > MAX_DEPTH:
            raise _InvalidSymbol("subgraphs are nested too deeply")
        attrs = _typed(parsed, dict).get("attrs") or {}
        version = _version(attrs)
        nodes: list[Node] = []
        new_index: dict[int, int] = {}  # new indices of the file's nodes, if nodes were added
        for i, raw in enumerate(_typed(parsed["nodes"], list)):
            node = _node(raw, i, new_index, label, depth)
            count, states = INPUTS_BEFORE_0_9.get(node.op, (0, ()))
            if version < 900 and states and len(node.inputs) == count:
                added = tuple((len(nodes) + k, 0) for k in range(len(states)))
                nodes += [Node("null", f"{node.name}_{state}", {}, ()) for state in states]
                node = replace(node, inputs=node.inputs + added)
            if version < 905 and node.op in ("argmax", "argmin") and node.attrs.get("axis") == "-1":
                node.attrs.pop("axis")
            new_index[i] = len(nodes)
            nodes.append(node)
        heads = tuple(_entry(e, len(new_index), new_index) for e in _typed(parsed["heads"], list))
        for i, output in (e for entries in (heads, *(n.inputs for n in nodes)) for e in entries):
            if output and nodes[i].op == "null":
                raise _InvalidSymbol(f"output {output} of the variable {quoted(nodes[i].name)}, which has only one")
        np_shape = bool(_value(attrs.get("is_np_shape", 0)))
        return Graph(tuple(nodes), heads, np_shape, attrs)
    except (_InvalidSymbol, KeyError, TypeError, ValueError, OverflowError, IndexError) as e:
        raise UnsafeFileError(f"{label}: is not a symbol file: {type(e).__name__.lstrip('_').lower()} {e}.") from None


class _InvalidSymbol(Exception):
    """Describes an invalid file; the message follows the file's name."""


def _typed(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise _InvalidSymbol(f"expected a {kind.__name__}, found a {type(value).__name__}")
    return value


def _value(attr: Any) -> Any:
    """A graph attribute is stored as type and value: ["int", 10901]."""
    return attr[1] if isinstance(attr, list) and len(attr) == 2 else attr


def _version(attrs: Any) -> int:
    """The version of MXNet that wrote the file, 10901 for 1.9.1; 0 before 0.9.0."""
    found = _value(_typed(attrs, dict).get("mxnet_version", 0))
    if isinstance(found, bool) or not isinstance(found, int):
        raise _InvalidSymbol("mxnet_version is no integer")
    return found


def mxnet_version(symbol: Graph) -> str:
    """The version of MXNet that wrote a symbol, as "1.9.1"; "" if it does not say."""
    version = symbol.version
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}" if version else ""


def _node(raw: Any, number: int, new_index: dict[int, int], label: str, depth: int) -> Node:
    attrs: dict[str, str] = {}
    for key in ("attrs", "attr", "param"):
        for name, text in _typed(_typed(raw, dict).get(key) or {}, dict).items():
            if name.endswith(_UNDERSCORED_SINCE_0_9) and not name.endswith("__"):
                name = f"__{name}__"
            attrs.setdefault(name, text if isinstance(text, str) else json.dumps(text))
    inputs = tuple(_entry(e, number, new_index) for e in _typed(raw.get("inputs") or [], list))
    inner = tuple(graph(g, label, depth + 1) for g in _typed(raw.get("subgraphs") or [], list))
    return Node(_typed(raw["op"], str), _typed(raw["name"], str), attrs, inputs, inner)


def _entry(raw: Any, limit: int, new_index: dict[int, int]) -> tuple[int, int]:
    """A (node, output) pair that refers to an earlier node."""
    node, output = (raw, 0) if isinstance(raw, int) else _typed(raw, list)[:2]
    if not isinstance(node, int) or not isinstance(output, int) or not 0 <= node < limit or not 0 <= output < 1 << 20:
        raise _InvalidSymbol(f"an input {quoted(json.dumps(raw))} that is not an earlier node")
    return new_index[node], output


def literal(text: str) -> Any:
    """An attribute string as a Python value: "(3, 0)", "None", "1e-05", "inf"; other strings are unchanged."""
    text = text.strip()
    if not text or len(text) > 1 << 20:
        return text
    if text in ("true", "false"):
        return text == "true"
    try:
        return ast.literal_eval(_PYTHON_2_LONG.sub("", text) if text[0] in "([0123456789-" else text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        pass
    try:
        return float(text)
    except ValueError:
        return text
