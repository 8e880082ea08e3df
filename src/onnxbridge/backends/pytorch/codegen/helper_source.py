"""The source of this package's functions that a module calls, with their dependencies, so that generated files need no
onnxbridge.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import re
import sys
import textwrap
from collections.abc import Callable
from types import ModuleType
from typing import Any

from onnxbridge.backends.pytorch.trace.tracer import int_elements, read_ints
from onnxbridge.errors import Unsupported
from onnxbridge.formats.python_source.line_breaking import WIDTH, joined, lines, requoted

PACKAGE = "onnxbridge."
_LIBRARIES = {"torch": "import torch", "math": "import math", "re": "import re", "io": "import io", "numpy": "import numpy as np"}


class Inlined:
    """Collects definitions: `imports` are the import lines they need, `definitions` their source in dependency order."""

    def __init__(self) -> None:
        self.imports: set[str] = set()
        self.definitions: list[str] = []
        self._names: dict[tuple[str, str], str] = {}

    def name(self, function: Callable[..., Any]) -> str:
        """The name of a function of this package in the generated source."""
        inner = inspect.unwrap(function)
        return self._define(inner.__module__, inner.__name__)

    @property
    def used_names(self) -> set[str]:
        return set(self._names.values())

    def _define(self, module: str, name: str) -> str:
        module, name, node = _definition(module, name)
        if (module, name) == (read_ints.__module__, "read_ints"):  # `read_ints` adds only a check for tracing to `int_elements`
            module, name, node = _definition(int_elements.__module__, "int_elements")
        key = module, name
        if key not in self._names:
            used_names = self.used_names
            made = name
            while made in used_names:
                made += "_"
            self._names[key] = made
            edits = _Edits(self, module)
            edits.visit(node)
            self.definitions.append(edits.text(node))
        return self._names[key]

    def named(self, module: str, name: str) -> str:
        """The name of a definition that is being written."""
        return self._names.get((module, name), name)

    def reference(self, module: str, name: str) -> str:
        """The expression for a global name of a module of this package."""
        value = vars(sys.modules[module]).get(name, _MISSING)
        if value is _MISSING:
            return name  # a builtin
        if isinstance(value, ModuleType):
            if value.__name__ == "torch.nn.functional":
                self.imports.add("import torch.nn.functional as F")
                return "F"
            line = _LIBRARIES.get(value.__name__)
            if line is None:
                raise Unsupported(f"cannot write code that uses {value.__name__} as source")
            self.imports.add(line)
            return line.split()[-1]
        return self._define(module, name)


_MISSING = object()
_DIRECTIVES = re.compile(r"  # (fmt: skip|noqa\b.*|type: ignore\b.*)$")


class _Edits(ast.NodeVisitor):
    """Collects the edits to a definition's source: renamed references, and annotations to remove."""

    def __init__(self, inlined: Inlined, module: str) -> None:
        self.inlined = inlined
        self.module = module
        self.local: list[set[str]] = []
        self.found: list[tuple[int, int, str]] = []
        self.source, self.starts = _source(module)

    def text(self, node: ast.stmt) -> str:
        """The edited source of the definition."""
        begin, end = self._span(node)
        directive = _DIRECTIVES.match(self.source[end:].split(b"\n", 1)[0].decode())
        end += len(directive[0]) if directive else 0
        found, at = [], begin
        for start, stop, new in sorted(self.found):
            if start >= at:
                found += [self.source[at:start].decode(), new]
                at = stop
        found.append(self.source[at:end].decode())
        return "\n".join(_reformatted("".join(found)))

    def _span(self, node: Any) -> tuple[int, int]:
        return self.starts[node.lineno - 1] + node.col_offset, self.starts[node.end_lineno - 1] + node.end_col_offset

    def _replace(self, start: int, end: int, new: str) -> None:
        self.found.append((start, end, new))

    def _name(self, node: ast.expr, new: str) -> None:
        start, end = self._span(node)
        if self.source[start:end].decode() != new:
            self._replace(start, end, new)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        inner = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        inner |= {n.name for n in ast.walk(node) if isinstance(n, ast.FunctionDef) and n is not node}
        made = node.name if self.local else self.inlined.named(self.module, node.name)
        for default in (*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)):
            self.visit(default)
        self.local.append(inner | {a.arg for a in ast.walk(node) if isinstance(a, ast.arg)})
        start = self._span(node)[0]
        before = self.starts[node.body[0].lineno - 1]
        indent = " " * node.col_offset
        head = f"def {made}({_arguments(node.args)}):"
        if node.body[0].lineno == node.lineno:  # all in one line
            self._replace(start, self._span(node.body[0])[0], f"{head} ")
        else:
            wrapped = "\n".join(lines([head], node.col_offset))
            self._replace(start, before, f"{wrapped.removeprefix(indent)}\n")
        for statement in node.body:
            self.visit(statement)
        self.local.pop()

    def visit_If(self, node: ast.If) -> None:
        if any(isinstance(n, ast.Attribute) and n.attr == "is_exporting" for n in ast.walk(node.test)):
            # this branch is only for torch.export
            end = self.source.find(b"\n", self._span(node)[1])
            self._replace(self.starts[node.lineno - 1], end + 1, "")
        else:
            self.generic_visit(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.local.append({a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)})
        self.generic_visit(node)
        self.local.pop()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        assert node.value is not None
        self._replace(self._span(node.target)[1], self._span(node.value)[0], " = ")
        self.visit(node.target)
        self.visit(node.value)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.value, ast.Name):
            value = vars(sys.modules[self.module]).get(node.value.id)
            if isinstance(value, ModuleType) and value.__name__.startswith(PACKAGE):
                self._name(node, self.inlined.reference(value.__name__, node.attr))
                return
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load) and not any(node.id in names for names in self.local):
            self._name(node, self.inlined.reference(self.module, node.id))
        elif isinstance(node.ctx, ast.Store) and not self.local:
            self._name(node, self.inlined.named(self.module, node.id))


def _arguments(given: ast.arguments) -> str:
    """A function's parameters without annotations."""

    def default(value: ast.expr | None) -> str:
        return "" if value is None else f"={requoted(ast.unparse(value))}"

    positional = [a.arg for a in (*given.posonlyargs, *given.args)]
    rest = len(positional) - len(given.defaults)
    parts = [f"{name}{default(given.defaults[i - rest]) if i >= rest else ''}" for i, name in enumerate(positional)]
    if given.posonlyargs:
        parts.insert(len(given.posonlyargs), "/")
    if given.vararg or given.kwonlyargs:
        parts.append(f"*{given.vararg.arg}" if given.vararg else "*")
    parts += [f"{a.arg}{default(d)}" for a, d in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    return ", ".join([*parts, *([f"**{given.kwarg.arg}"] if given.kwarg else [])])


def _reformatted(text: str) -> list[str]:
    """The lines of a definition; statements that are too long or formatted by hand are formatted anew."""
    original = text.split("\n")
    made: list[str] = []
    at = 0
    spans = {n.lineno: n.end_lineno or n.lineno for n in ast.walk(ast.parse(text)) if isinstance(n, _SIMPLE)}
    while at < len(original):
        end = spans.get(at + 1, at + 1)
        part = original[at:end]
        hand_formatted = any(_DIRECTIVES.search(line) for line in part)
        part = [_DIRECTIVES.sub("", line) for line in part]
        is_text = isinstance(part[0], str) and part[0].lstrip().startswith(('"""', "#"))
        comments = any(" # " in line for line in part)
        if is_text or comments or not (hand_formatted or any(len(line) > WIDTH for line in part)):
            made += _wrapped(part)
        else:
            made += lines([joined(part)])
        at = end
    return made


_SIMPLE = (ast.Assign, ast.AugAssign, ast.Return, ast.Expr, ast.Raise)


def _wrapped(part: list[str]) -> list[str]:
    """Lines of prose, wrapped if too long."""
    made: list[str] = []
    for line in part:
        indent = len(line) - len(line.lstrip())
        prose = line.lstrip().startswith(('"""', "# ")) or len(part) > 1
        if len(line) > WIDTH and prose:
            mark = " " * indent + ("# " if line.lstrip().startswith("# ") else "")
            made += textwrap.wrap(line, WIDTH, initial_indent="", subsequent_indent=mark, drop_whitespace=True)
        else:
            made.append(line)
    return made


@functools.cache
def _tree(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(sys.modules[module]))


@functools.cache
def _source(module: str) -> tuple[bytes, list[int]]:
    """A module's source as bytes, and the offsets of its lines: AST columns count bytes."""
    text = inspect.getsource(sys.modules[module]).encode()
    return text, [0, *itertools.accumulate(len(line) for line in text.splitlines(keepends=True))]


def _definition(module: str, name: str) -> tuple[str, str, ast.stmt]:
    """Where a name is defined, through imports inside this package, and the statement."""
    for node in _tree(module).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _definition(str(node.module), alias.name)
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return module, name, node
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        if any(isinstance(t, ast.Name) and t.id == name for t in targets):
            return module, name, node
    raise Unsupported(f"cannot write code that uses {name} as source")
