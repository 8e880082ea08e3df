"""The statements of a recorded graph: what is used at once goes into the next one, or into a variable that is used again."""

from __future__ import annotations

import keyword
import operator
import re
from collections.abc import Callable, Collection, Sequence

import torch
from torch import fx

from onnxbridge.backends.pytorch.expressions import Expressions, Text

_PASSING = ("x", "y", "z")
"""Variables for values that only the next statement needs; a network's memory would otherwise hold all of them to its end."""
_ARITHMETIC = (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.neg)


def function(
    name: str, graph: fx.Graph, first: str, expressions: Expressions, held: Callable[[str], str], taken: Collection[str]
) -> list[str]:
    """The lines of a function that computes a graph.

    `held` says how the code gets at what the module holds; no variable may have one of the names that are `taken`.
    """
    written = _Function(graph, expressions, held, taken)
    parameters = [written.names[n].text + (f"={ascii(n.args[0])}" if n.args else "") for n in written.parameters]
    given = ", ".join([first, *parameters] if first else parameters)
    return [f"def {name}({given}):", *(f"    {line}" for line in written.lines)]


class _Function:
    def __init__(self, graph: fx.Graph, expressions: Expressions, held: Callable[[str], str], taken: Collection[str]) -> None:
        self.expressions = expressions
        self.fixed = set(taken)
        self.taken = set(taken)
        self.names: dict[fx.Node, Text] = {}
        self.lines: list[str] = []
        self.parameters = [n for n in graph.nodes if n.op == "placeholder"]
        for node in self.parameters:
            self.names[node] = self._new(str(node.target))
        for node in graph.nodes:
            if node.op == "get_attr":
                self.names[node] = Text(held(str(node.target)))
        called = [n for n in graph.nodes if n.op.startswith("call")]
        (output,) = [n for n in graph.nodes if n.op == "output"]
        self.inside = {n for n in called if _goes_inside(n)}
        self._write([n for n in called if n not in self.inside], called, output)

    def _write(self, statements: Sequence[fx.Node], called: Sequence[fx.Node], output: fx.Node) -> None:
        reads = {s: self._reads(s) for s in (*statements, output)}
        readers: dict[fx.Node, list[int]] = {}
        for at, statement in enumerate((*statements, output)):
            for value in reads[statement]:
                readers.setdefault(value, []).append(at)
        last = {value: places[-1] for value, places in readers.items()}
        bound = {self.names[p].text: p for p in self.parameters}
        places = {s: i for i, s in enumerate(statements)}
        for node in called:
            text = self.expressions.call(node, self.names)
            if node in self.inside:
                self.names[node] = text
                continue
            at = places[node]
            if readers.get(node) == [len(statements)] == [at + 1] and output.args[0] is node:
                self.lines.append(f"return {text.text}")
                return
            passing = readers.get(node, [at + 1]) == [at + 1]
            free = [n for n in _PASSING if n not in self.fixed and (n not in bound or last.get(bound[n], -1) <= at)]
            if passing and free:
                self.taken.add(free[0])
                bound[free[0]] = node
                self.names[node] = Text(free[0])
            else:
                self.names[node] = self._new(node.name)
                bound[self.names[node].text] = node
            self.lines.append(f"{self.names[node].text} = {text.text}")
        self.lines.append(f"return {self.expressions.value(output.args[0], self.names).text}")

    def _reads(self, statement: fx.Node) -> set[fx.Node]:
        """The variables that a statement reads."""
        found: set[fx.Node] = set()
        for node in statement.all_input_nodes:
            if node in self.inside:
                found |= self._reads(node)
            elif node.op != "get_attr":
                found.add(node)
        return found

    def _new(self, wanted: str) -> Text:
        wanted = re.sub(r"\W", "_", wanted, flags=re.ASCII)
        while wanted in self.taken or keyword.iskeyword(wanted) or not wanted.isidentifier():
            wanted = f"{wanted}_" if wanted.isidentifier() else f"_{wanted}"
        self.taken.add(wanted)
        return Text(wanted)


def _goes_inside(node: fx.Node) -> bool:
    """Whether an expression is so small that it stands where it is used, the one time."""
    if len(node.users) != 1 or node.kwargs:
        return False
    if node.op == "call_method":
        return bool(node.target == "size")
    if node.target is operator.getitem:
        return isinstance(node.args[1], int)
    return node.target in _ARITHMETIC and isinstance(node.meta.get("val"), (int, torch.SymInt))
