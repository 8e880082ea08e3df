"""The statements of a recorded graph, as people write them: small steps inside the next one, one name for what goes through."""

from __future__ import annotations

import itertools
import keyword
import operator
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import fx, nn

from onnxbridge.backends.pytorch.codegen.expressions import Expressions, Text

_PASSING = ("x", "y", "z")
"""Variables for values that only the next statement needs; a network's memory would otherwise hold all of them to its end."""
_SIZES = (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.neg)
_OPERANDS = (torch.add, torch.sub, torch.mul, operator.add, operator.sub, operator.mul)
"""Functions that stand between their operands, which may be calls of layers."""
_LONG = 88
"""The longest statement that another one is put into."""
_DEEP = 3
"""No statement has so many layers within layers."""
_MOST = 8
"""The most results that are given names at once."""


def function(
    name: str, graph: fx.Graph, first: str, expressions: Expressions, held: Callable[[str], str], taken: Collection[str],
    lists: Callable[[str], int] = lambda path: 0,
) -> list[str]:  # fmt: skip
    """The lines of a function that computes a graph.

    `held` says how the code gets at what the module holds, `lists` how many modules a list of them has; no variable may have one
    of the names that are `taken`.
    """
    written = _Function(graph, expressions, held, taken, lists)
    parameters = [written.names[n].text + (f"={ascii(n.args[0])}" if n.args else "") for n in written.parameters]
    given = ", ".join([first, *parameters] if first else parameters)
    return [f"def {name}({given}):", *(f"    {line}" for line in written.lines)]


class _Anything(dict[fx.Node, Text]):
    """Texts of nodes, those that are not known yet as long as names are."""

    def __missing__(self, node: fx.Node) -> Text:
        return Text("value")


class _Function:
    def __init__(
        self, graph: fx.Graph, expressions: Expressions, held: Callable[[str], str], taken: Collection[str],
        lists: Callable[[str], int],
    ) -> None:  # fmt: skip
        self.expressions = expressions
        self.held = held
        self.lists = lists
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
        (self.output,) = [n for n in graph.nodes if n.op == "output"]
        self.inside = {n for n in called if _goes_inside(n)}
        self.parts = {n: places for n in called if (places := _parts(n))}
        self.inside |= {part for places in self.parts.values() for part in places.values()}
        self.runs = self._runs([n for n in called if n not in self.inside])
        self._put_inside([n for n in called if n not in self.inside])
        within = {n for run in self.runs.values() for n in run[:-1]}
        self._write([n for n in called if n not in self.inside and n not in within], called)

    # which statements there are

    def _put_inside(self, statements: Sequence[fx.Node]) -> None:
        """Put what only the next statement takes into it, where that stays short."""
        texts = _Anything(self.names)
        looped = {n for run in self.runs.values() for n in run}
        for node, user in itertools.pairwise([*statements, self.output]):
            small = [n for n in node.all_input_nodes if n in self.inside]
            for n in small:
                texts.setdefault(n, Text("value"))
            text = self.expressions.call(node, texts)
            plain = list(node.users) == [user] and user.op != "output" and node not in self.parts and not {node, user} & looped
            if not plain or not _takes(user, node, text):
                continue
            texts[node] = text
            whole = self.expressions.call(user, texts).text
            if len(whole) <= _LONG and whole.count(text.text) == 1 and whole.count("(self.") < _DEEP:
                self.inside.add(node)
            else:
                del texts[node]

    def _runs(self, statements: Sequence[fx.Node]) -> dict[fx.Node, list[fx.Node]]:
        """Lists of modules that are called one behind the other with the same further arguments, by their last calls."""
        runs: dict[fx.Node, list[fx.Node]] = {}
        for i, node in enumerate(statements):
            path, _, place = str(node.target).rpartition(".")
            count = self.lists(path) if node.op == "call_module" and place == "0" else 0
            run = list(statements[i : i + count])
            alike = len(run) > 1 and all(
                n.op == "call_module" and n.target == f"{path}.{k}" and n.args[1:] == node.args[1:] and n.args and not n.kwargs
                for k, n in enumerate(run)
            )
            chained = alike and all(b.args[0] is a and list(a.users) == [b] for a, b in zip(run, run[1:], strict=False))
            start = node.args[0] if chained else None
            if isinstance(start, fx.Node) and not any(self._depends(a, start) for a in node.args[1:]):
                runs[run[-1]] = run
        return runs

    def _depends(self, given: Any, value: fx.Node) -> bool:
        """Whether an argument is written with the variable of a value."""
        within = isinstance(given, fx.Node) and given in self.inside
        return given is value or within and any(self._depends(n, value) for n in given.all_input_nodes)

    def _reads(self, statement: fx.Node) -> set[fx.Node]:
        """The variables that a statement reads."""
        found: set[fx.Node] = set()
        run = self.runs.get(statement)
        for node in run[0].all_input_nodes if run else statement.all_input_nodes:
            if node in self.inside and node not in self.named:
                found |= self._reads(node)
            elif node.op != "get_attr":
                found.add(node)
        return found

    # what they say

    def _write(self, statements: Sequence[fx.Node], called: Sequence[fx.Node]) -> None:
        self.named = {part for places in self.parts.values() for part in places.values()}
        reads = {s: self._reads(s) for s in (*statements, self.output)}
        readers: dict[fx.Node, list[int]] = {}
        for at, statement in enumerate((*statements, self.output)):
            for value in reads[statement]:
                readers.setdefault(value, []).append(at)
        self.readers = readers
        self.bound = {self.names[p].text: p for p in self.parameters}
        places = {s: i for i, s in enumerate(statements)}
        within = {n for run in self.runs.values() for n in run[:-1]}
        for node in called:
            if node in within or node in self.named:
                continue
            if node in self.runs:
                self._loop(self.runs[node], places[node], reads[node])
                continue
            text = self.expressions.call(node, self.names)
            if node in self.inside:
                self.names[node] = text
                continue
            at = places[node]
            last = at + 1 == len(statements)
            if last and (self.output.args[0] is node and readers.get(node) == [at + 1] or self._is_given_whole(node)):
                self.lines.append(f"return {text.text}")
                return
            if node in self.parts:
                names = [self._place(part, at, reads[node]) for part in self._all_parts(node)]
                self.lines.append(f"{', '.join(names)}{',' if len(names) == 1 else ''} = {text.text}")
            else:
                self.lines.append(f"{self._named(node, at, reads[node])} = {text.text}")
        values = self.output.args[0]
        listed = isinstance(values, (tuple, list)) and len(values) > 1
        texts = [self.expressions.value(v, self.names).text for v in (values if listed else (values,))]
        self.lines.append(f"return {', '.join(texts)}")

    def _is_given_whole(self, node: fx.Node) -> bool:
        """Whether the function returns all results of a call as they come."""
        places, values = self.parts.get(node), self.output.args[0]
        if places is None or not isinstance(values, (tuple, list)) or len(values) != len(node.meta["val"]):
            return False
        parts = [places.get(i) for i in range(len(values))]
        return list(values) == parts and all(p is not None and list(p.users) == [self.output] for p in parts)

    def _all_parts(self, node: fx.Node) -> list[fx.Node | None]:
        return [self.parts[node].get(i) for i in range(len(node.meta["val"]))]

    def _place(self, part: fx.Node | None, at: int, reads: Collection[fx.Node]) -> str:
        return "_" if part is None else self._named(part, at, reads)

    def _named(self, node: fx.Node, at: int, reads: Collection[fx.Node]) -> str:
        """A name for what a statement gives: the one that goes on through all, or one of its own."""
        readers = self.readers.get(node, [at + 1])
        free = [n for n in _PASSING if n not in self.fixed and self._is_free(n, at)]
        goes_on = self.bound.get("x") in reads or any(run[0].args[0] is node for run in self.runs.values())
        follows = "x" in free and goes_on and _is_tensor(node) and node not in self.named
        if follows or readers == [at + 1] and free and node not in self.named:
            name = "x" if follows else free[0]
            self.taken.add(name)
            self.names[node] = Text(name)
        elif free[:1] == ["x"] and node in self.named and node.args[1] == 0 and _is_tensor(node):
            name = "x"
            self.taken.add(name)
            self.names[node] = Text(name)
        else:
            self.names[node] = self._new(self._told(node))
        self.bound[self.names[node].text] = node
        return self.names[node].text

    def _is_free(self, name: str, at: int) -> bool:
        """Whether nobody reads what a variable has after a statement."""
        return name not in self.bound or max(self.readers.get(self.bound[name], [-1])) <= at

    def _told(self, node: fx.Node) -> str:
        """What a value is called: after the layer that its statement begins with."""
        start = node
        small = self.inside - self.named
        while start.args and isinstance(start.args[0], fx.Node) and start.args[0] in small:
            start = start.args[0]
        return str(start.name if start.op == "call_module" else node.name)

    def _loop(self, run: Sequence[fx.Node], at: int, reads: Collection[fx.Node]) -> None:
        """A list of modules, called one behind the other."""
        path = str(run[0].target).rpartition(".")[0]
        before = self.expressions.value(run[0].args[0], self.names).text
        others = [self.expressions.value(a, self.names).text for a in run[0].args[1:]]
        if before in self.bound and self._is_free(before, at) and before not in others:
            name = before
            self.names[run[-1]] = Text(name)
            self.bound[name] = run[-1]
        else:
            name = self._named(run[-1], at, reads)
        if name in others:
            name = self._new("value").text
            self.names[run[-1]] = Text(name)
            self.bound[name] = run[-1]
        if name != before:
            self.lines.append(f"{name} = {before}")
        wanted = path.rpartition(".")[2]
        each = self._new(wanted[:-1] if wanted.endswith("s") and len(wanted) > 2 else "layer").text
        self.lines += [f"for {each} in {self.held(path)}:", f"    {name} = {each}({', '.join([name, *others])})"]

    def _new(self, wanted: str) -> Text:
        wanted = re.sub(r"\W", "_", wanted, flags=re.ASCII)
        while wanted in self.taken or keyword.iskeyword(wanted) or not wanted.isidentifier():
            wanted = f"{wanted}_" if wanted.isidentifier() else f"_{wanted}"
        self.taken.add(wanted)
        return Text(wanted)


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _takes(user: fx.Node, node: fx.Node, text: Text) -> bool:
    """Whether people write a call inside the one that uses it: in a chain of methods, a layer in a layer, in a sum."""
    if user.op == "call_method":
        return user.args[0] is node and text.level == Text("").level and sum(a is node for a in user.args) == 1
    if node.op != "call_module":
        return False
    if user.op == "call_module":
        return user.args[0] is node
    return user.target in _OPERANDS and len(user.args) == 2 and not user.kwargs


def _parts(node: fx.Node) -> dict[int, fx.Node]:
    """The single results of a call that gives several, where nothing takes them together."""
    known = node.meta.get("val")
    count = len(known) if isinstance(known, (tuple, list)) else 0
    users = list(node.users)
    single = all(u.target is operator.getitem and type(u.args[1]) is int and 0 <= u.args[1] < count for u in users)
    if not users or not single or not 1 < count <= _MOST:
        return {}
    places = {int(u.args[1]): u for u in users}
    return places if len(places) == len(users) else {}


def _goes_inside(node: fx.Node) -> bool:
    """Whether an expression is so small that it stands where it is used."""
    if node.op == "call_function" and node.target is getattr:
        return True
    if len(node.users) != 1 or node.kwargs:
        return False
    if node.op == "call_method":
        return bool(node.target == "size")
    if node.target is operator.getitem:
        return isinstance(node.args[1], int)
    return node.target in _SIZES and isinstance(node.meta.get("val"), (int, torch.SymInt))


def length(module: nn.Module, path: str) -> int:
    """How many modules a list has that is at a path in a module, 0 for what is none."""
    found: Any = module
    for part in path.split(".") if path else []:
        found = getattr(found, "_modules", {}).get(part)
    return len(found) if isinstance(found, nn.ModuleList) else 0
