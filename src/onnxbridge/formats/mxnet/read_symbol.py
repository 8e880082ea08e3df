"""Reads `-symbol.json` files, of every version since MXNet 0.8, without MXNet."""

from __future__ import annotations

import ast
import json
import os
import re
from dataclasses import dataclass, field, replace
from typing import Any

from onnxbridge.errors import LimitError, UnsafeFileError
from onnxbridge.hub.io.safe_files import mapped, named, open_file, quoted

MOST_BYTES = 1 << 30
MOST_DEPTH = 32
# before 0.9.0 a file did not list the auxiliary states that an operator takes after its inputs
INPUTS_BEFORE_0_9 = {"BatchNorm": (3, ("moving_mean", "moving_var")), "IdentityAttachKLSparseReg": (1, ("moving_avg",))}
_PYTHON_2_LONG = re.compile(r"(?<=\d)L\b")


@dataclass(frozen=True)
class Node:
    """One node: `op` is "null" for a variable. `inputs` are (node, output) pairs, `attrs` the texts of the file."""

    op: str
    name: str
    attrs: dict[str, str]
    inputs: tuple[tuple[int, int], ...]
    subgraphs: tuple[Graph, ...] = ()


@dataclass(frozen=True)
class Graph:
    """A symbol: its nodes in an order in which each comes after its inputs, and its outputs as (node, output) pairs."""

    nodes: tuple[Node, ...]
    heads: tuple[tuple[int, int], ...]
    np_shape: bool = False
    attrs: dict[str, Any] = field(default_factory=dict)


def read(path: str | os.PathLike[str]) -> Graph:
    """The symbol in a file.

    Raises:
        UnsafeFileError: if it is not one.
    """
    shown = named(path)
    data = mapped(open_file(path))
    if len(data) > MOST_BYTES:
        raise LimitError(f"{shown}: has {len(data)} bytes, and the budget for a symbol is {MOST_BYTES} bytes")
    try:
        parsed = json.loads(bytes(data))
    except (ValueError, RecursionError) as e:
        raise UnsafeFileError(f"{shown}: is no symbol file: {str(e)[:200]}.") from None
    return graph(parsed, shown)


def graph(parsed: Any, shown: str, depth: int = 0) -> Graph:
    """A symbol from parsed JSON."""
    try:
        if depth > MOST_DEPTH:
            raise _Damaged("has graphs inside graphs beyond any use")
        attrs = _typed(parsed, dict).get("attrs") or {}
        version = _version(attrs)
        nodes: list[Node] = []
        moved: dict[int, int] = {}  # the file's numbers, where nodes had to be added
        for i, raw in enumerate(_typed(parsed["nodes"], list)):
            node = _node(raw, i, moved, shown, depth)
            count, states = INPUTS_BEFORE_0_9.get(node.op, (0, ()))
            if version < 900 and states and len(node.inputs) == count:
                added = tuple((len(nodes) + k, 0) for k in range(len(states)))
                nodes += [Node("null", f"{node.name}_{state}", {}, ()) for state in states]
                node = replace(node, inputs=node.inputs + added)
            if version < 905 and node.op in ("argmax", "argmin") and node.attrs.get("axis") == "-1":
                node.attrs.pop("axis")
            moved[i] = len(nodes)
            nodes.append(node)
        heads = tuple(_entry(e, len(moved), moved) for e in _typed(parsed["heads"], list))
        np_shape = bool(_value(attrs.get("is_np_shape", 0)))
        return Graph(tuple(nodes), heads, np_shape, attrs)
    except (_Damaged, KeyError, TypeError, ValueError, IndexError) as e:
        raise UnsafeFileError(f"{shown}: is no symbol file: {type(e).__name__.lstrip('_').lower()} {e}.") from None


class _Damaged(Exception):
    """What is wrong with a file, in the words that follow its name."""


def _typed(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise _Damaged(f"a {type(value).__name__} where a {kind.__name__} belongs")
    return value


def _value(attr: Any) -> Any:
    """A graph's attribute is written as a type and a value: ["int", 10901]."""
    return attr[1] if isinstance(attr, list) and len(attr) == 2 else attr


def _version(attrs: Any) -> int:
    """The MXNet that wrote the file, 10901 for 1.9.1; files from before 0.9.0 do not say."""
    found = _value(_typed(attrs, dict).get("mxnet_version", 0))
    return int(found)


def _node(raw: Any, number: int, moved: dict[int, int], shown: str, depth: int) -> Node:
    attrs: dict[str, str] = {}
    for key in ("attrs", "attr", "param"):
        for name, text in _typed(_typed(raw, dict).get(key) or {}, dict).items():
            attrs.setdefault(name, text if isinstance(text, str) else json.dumps(text))
    inputs = tuple(_entry(e, number, moved) for e in _typed(raw.get("inputs") or [], list))
    inner = tuple(graph(g, shown, depth + 1) for g in _typed(raw.get("subgraphs") or [], list))
    return Node(_typed(raw["op"], str), _typed(raw["name"], str), attrs, inputs, inner)


def _entry(raw: Any, below: int, moved: dict[int, int]) -> tuple[int, int]:
    """A (node, output) pair that refers to a node before this one."""
    node, output = (raw, 0) if isinstance(raw, int) else _typed(raw, list)[:2]
    if not isinstance(node, int) or not isinstance(output, int) or not 0 <= node < below or not 0 <= output < 1 << 20:
        raise _Damaged(f"an input {quoted(json.dumps(raw))} that is no earlier node")
    return moved[node], output


def literal(text: str) -> Any:
    """An attribute's text as a Python value: "(3, 0)", "None", "1e-05", "inf"; what is none of these stays text."""
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
