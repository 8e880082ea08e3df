"""Statements for a traced graph, as people write them: short calls are nested, and one variable is reused for the main value."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import fx, nn

from onnxbridge.backends.pytorch.codegen.expressions import Expression, Expressions
from onnxbridge.formats.python_source.identifiers import identifier

_TEMPORARIES = ("x", "y", "z")
"""Variables for values that only the next statement uses; reusing them frees memory."""
_SIZES = (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.neg)
_OPERANDS = (torch.add, torch.sub, torch.mul, operator.add, operator.sub, operator.mul)
"""Binary operators, whose operands may be layer calls."""
_MAX_LENGTH = 88
"""The maximum length of a statement that another is nested into."""
_MAX_DEPTH = 3
"""The maximum number of nested layer calls in a statement."""
_MAX_UNPACKED = 8
"""The most results that are unpacked at once."""


def function(
    name: str, graph: fx.Graph, first: str, expressions: Expressions, access: Callable[[str], str], reserved: Collection[str],
    list_length: Callable[[str], int] = lambda path: 0,
) -> list[str]:  # fmt: skip
    """The lines of a function that computes a graph.

    `access` gives the expression for a module's attribute, `list_length` the length of a list of modules. No variable may have a
    name in `reserved`.
    """
    written = _Function(graph, expressions, access, reserved, list_length)
    parameters = [written.names[n].text + (f"={ascii(n.args[0])}" if n.args else "") for n in written.parameters]
    parameter_list = ", ".join([first, *parameters] if first else parameters)
    return [f"def {name}({parameter_list}):", *(f"    {line}" for line in written.lines)]


class _DefaultExpressions(dict[fx.Node, Expression]):
    """Expressions of nodes, with a default for those not named yet."""

    def __missing__(self, node: fx.Node) -> Expression:
        return Expression("value")


class _Function:
    def __init__(
        self, graph: fx.Graph, expressions: Expressions, access: Callable[[str], str], reserved: Collection[str],
        list_length: Callable[[str], int],
    ) -> None:  # fmt: skip
        self.expressions = expressions
        self.access = access
        self.list_length = list_length
        self.fixed = set(reserved)
        self.reserved = set(reserved)
        self.names: dict[fx.Node, Expression] = {}
        self.lines: list[str] = []
        self.parameters = [n for n in graph.nodes if n.op == "placeholder"]
        for node in self.parameters:
            self.names[node] = self._new(str(node.target))
        for node in graph.nodes:
            if node.op == "get_attr":
                self.names[node] = Expression(access(str(node.target)))
        called = [n for n in graph.nodes if n.op.startswith("call")]
        (self.output,) = [n for n in graph.nodes if n.op == "output"]
        self.inlined = {n for n in called if _is_inlined(n)}
        self.parts = {n: indices for n in called if (indices := _parts(n))}
        self.inlined |= {part for indices in self.parts.values() for part in indices.values()}
        self.runs = self._runs([n for n in called if n not in self.inlined])
        self._nest_calls([n for n in called if n not in self.inlined])
        in_runs = {n for run in self.runs.values() for n in run[:-1]}
        self._write([n for n in called if n not in self.inlined and n not in in_runs], called)

    def _nest_calls(self, statements: Sequence[fx.Node]) -> None:
        """Nest a value into the next statement, if only that uses it and it stays short."""
        expressions_ = _DefaultExpressions(self.names)
        looped = {n for run in self.runs.values() for n in run}
        for node, user in itertools.pairwise([*statements, self.output]):
            small = [n for n in node.all_input_nodes if n in self.inlined]
            for n in small:
                expressions_.setdefault(n, Expression("value"))
            text = self.expressions.call(node, expressions_)
            nestable = list(node.users) == [user] and user.op != "output" and node not in self.parts and not {node, user} & looped
            if not nestable or not _may_nest(user, node, text):
                continue
            expressions_[node] = text
            nested = self.expressions.call(user, expressions_).text
            if len(nested) <= _MAX_LENGTH and nested.count(text.text) == 1 and nested.count("(self.") < _MAX_DEPTH:
                self.inlined.add(node)
            else:
                del expressions_[node]

    def _runs(self, statements: Sequence[fx.Node]) -> dict[fx.Node, list[fx.Node]]:
        """Lists of modules called in sequence with the same further arguments, by their last calls."""
        runs: dict[fx.Node, list[fx.Node]] = {}
        for i, node in enumerate(statements):
            path, _, index = str(node.target).rpartition(".")
            count = self.list_length(path) if node.op == "call_module" and index == "0" else 0
            run = list(statements[i : i + count])
            similar = len(run) > 1 and all(
                n.op == "call_module" and n.target == f"{path}.{k}" and n.args[1:] == node.args[1:] and n.args and not n.kwargs
                for k, n in enumerate(run)
            )
            chained = similar and all(b.args[0] is a and list(a.users) == [b] for a, b in zip(run, run[1:], strict=False))
            start = node.args[0] if chained else None
            if isinstance(start, fx.Node) and not any(self._depends(a, start) for a in node.args[1:]):
                runs[run[-1]] = run
        return runs

    def _depends(self, argument: Any, value: fx.Node) -> bool:
        """Whether an argument's expression uses the variable of a value."""
        is_inlined = isinstance(argument, fx.Node) and argument in self.inlined
        return argument is value or is_inlined and any(self._depends(n, value) for n in argument.all_input_nodes)

    def _reads(self, statement: fx.Node) -> set[fx.Node]:
        """The variables that a statement reads."""
        found: set[fx.Node] = set()
        run = self.runs.get(statement)
        for node in run[0].all_input_nodes if run else statement.all_input_nodes:
            if node in self.inlined and node not in self.named:
                found |= self._reads(node)
            elif node.op != "get_attr":
                found.add(node)
        return found

    def _write(self, statements: Sequence[fx.Node], called: Sequence[fx.Node]) -> None:
        self.named = {part for indices in self.parts.values() for part in indices.values()}
        reads = {s: self._reads(s) for s in (*statements, self.output)}
        readers: dict[fx.Node, list[int]] = {}
        for at, statement in enumerate((*statements, self.output)):
            for value in reads[statement]:
                readers.setdefault(value, []).append(at)
        self.readers = readers
        self.bound = {self.names[p].text: p for p in self.parameters}
        indices = {s: i for i, s in enumerate(statements)}
        in_runs = {n for run in self.runs.values() for n in run[:-1]}
        for node in called:
            if node in in_runs or node in self.named:
                continue
            if node in self.runs:
                self._loop(self.runs[node], indices[node], reads[node])
                continue
            text = self.expressions.call(node, self.names)
            if node in self.inlined:
                self.names[node] = text
                continue
            at = indices[node]
            last = at + 1 == len(statements)
            if last and (self.output.args[0] is node and readers.get(node) == [at + 1] or self._is_returned_whole(node)):
                self.lines.append(f"return {text.text}")
                return
            if node in self.parts:
                names = [self._part_name(part, at, reads[node]) for part in self._all_parts(node)]
                self.lines.append(f"{', '.join(names)}{',' if len(names) == 1 else ''} = {text.text}")
            else:
                self.lines.append(f"{self._named(node, at, reads[node])} = {text.text}")
        values = self.output.args[0]
        listed = isinstance(values, (tuple, list)) and len(values) > 1
        expressions_ = [self.expressions.value(v, self.names).text for v in (values if listed else (values,))]
        self.lines.append(f"return {', '.join(expressions_)}")

    def _is_returned_whole(self, node: fx.Node) -> bool:
        """Whether the function returns all results of a call unchanged."""
        indices, values = self.parts.get(node), self.output.args[0]
        if indices is None or not isinstance(values, (tuple, list)) or len(values) != len(node.meta["val"]):
            return False
        parts = [indices.get(i) for i in range(len(values))]
        return list(values) == parts and all(p is not None and list(p.users) == [self.output] for p in parts)

    def _all_parts(self, node: fx.Node) -> list[fx.Node | None]:
        return [self.parts[node].get(i) for i in range(len(node.meta["val"]))]

    def _part_name(self, part: fx.Node | None, at: int, reads: Collection[fx.Node]) -> str:
        return "_" if part is None else self._named(part, at, reads)

    def _named(self, node: fx.Node, at: int, reads: Collection[fx.Node]) -> str:
        """A name for a statement's result: the reused variable, or one of its own."""
        readers = self.readers.get(node, [at + 1])
        free = [n for n in _TEMPORARIES if n not in self.fixed and self._is_free(n, at)]
        continues_x = self.bound.get("x") in reads or any(run[0].args[0] is node for run in self.runs.values())
        follows = "x" in free and continues_x and _is_tensor(node) and node not in self.named
        if follows or readers == [at + 1] and free and node not in self.named:
            name = "x" if follows else free[0]
            self.reserved.add(name)
            self.names[node] = Expression(name)
        elif free[:1] == ["x"] and node in self.named and node.args[1] == 0 and _is_tensor(node):
            name = "x"
            self.reserved.add(name)
            self.names[node] = Expression(name)
        else:
            self.names[node] = self._new(self._base_name(node))
        self.bound[self.names[node].text] = node
        return self.names[node].text

    def _is_free(self, name: str, at: int) -> bool:
        """Whether a variable's value is not read after a statement."""
        return name not in self.bound or max(self.readers.get(self.bound[name], [-1])) <= at

    def _base_name(self, node: fx.Node) -> str:
        """A name for a value, after the layer that its statement starts with."""
        start = node
        small = self.inlined - self.named
        while start.args and isinstance(start.args[0], fx.Node) and start.args[0] in small:
            start = start.args[0]
        return str(start.name if start.op == "call_module" else node.name)

    def _loop(self, run: Sequence[fx.Node], at: int, reads: Collection[fx.Node]) -> None:
        """A loop over a list of modules called in sequence."""
        path = str(run[0].target).rpartition(".")[0]
        before = self.expressions.value(run[0].args[0], self.names).text
        others = [self.expressions.value(a, self.names).text for a in run[0].args[1:]]
        if before in self.bound and self._is_free(before, at) and before not in others:
            name = before
            self.names[run[-1]] = Expression(name)
            self.bound[name] = run[-1]
        else:
            name = self._named(run[-1], at, reads)
        if name in others:
            name = self._new("value").text
            self.names[run[-1]] = Expression(name)
            self.bound[name] = run[-1]
        if name != before:
            self.lines.append(f"{name} = {before}")
        name_hint = path.rpartition(".")[2]
        each = self._new(name_hint[:-1] if name_hint.endswith("s") and len(name_hint) > 2 else "layer").text
        self.lines += [f"for {each} in {self.access(path)}:", f"    {name} = {each}({', '.join([name, *others])})"]

    def _new(self, name_hint: str) -> Expression:
        name = identifier(name_hint, self.reserved)
        self.reserved.add(name)
        return Expression(name)


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _may_nest(user: fx.Node, node: fx.Node, text: Expression) -> bool:
    """Whether a call is written inside its user: in a chain of methods, a layer in a layer, or an operand."""
    if user.op == "call_method":
        return user.args[0] is node and text.precedence == Expression("").precedence and sum(a is node for a in user.args) == 1
    if node.op != "call_module":
        return False
    if user.op == "call_module":
        return user.args[0] is node
    return user.target in _OPERANDS and len(user.args) == 2 and not user.kwargs


def _parts(node: fx.Node) -> dict[int, fx.Node]:
    """The unpacked results of a call, if nothing uses them as a whole."""
    known = node.meta.get("val")
    count = len(known) if isinstance(known, (tuple, list)) else 0
    users = list(node.users)
    single = all(u.target is operator.getitem and type(u.args[1]) is int and 0 <= u.args[1] < count for u in users)
    if not users or not single or not 1 < count <= _MAX_UNPACKED:
        return {}
    indices = {int(u.args[1]): u for u in users}
    return indices if len(indices) == len(users) else {}


def _is_inlined(node: fx.Node) -> bool:
    """Whether an expression is short enough to be written where it is used."""
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
    """The length of the list of modules at a path, 0 if it is not a list."""
    found: Any = module
    for part in path.split(".") if path else []:
        found = getattr(found, "_modules", {}).get(part)
    return len(found) if isinstance(found, nn.ModuleList) else 0
