"""The text of the functions that a module calls, with everything of this package that they use, so that it stands without it."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from onnxbridge.backends.pytorch.recorder import numbers, read
from onnxbridge.errors import Unsupported

PACKAGE = "onnxbridge."
_LIBRARIES = {"torch": "import torch", "math": "import math", "re": "import re", "io": "import io", "numpy": "import numpy as np"}


class Inlined:
    """Collects definitions; `imports` are the lines that they need, `texts` their own in an order that runs."""

    def __init__(self) -> None:
        self.imports: set[str] = set()
        self.texts: list[str] = []
        self._names: dict[tuple[str, str], str] = {}

    def name(self, function: Callable[..., Any]) -> str:
        """What a function of this package is called in the text."""
        inner = inspect.unwrap(function)
        return self._define(inner.__module__, inner.__name__)

    @property
    def taken(self) -> set[str]:
        return set(self._names.values())

    def _define(self, module: str, name: str) -> str:
        module, name, node = _definition(module, name)
        if (module, name) == (read.__module__, "read"):  # what it does beyond `numbers` is for recording
            module, name, node = _definition(numbers.__module__, "numbers")
        key = module, name
        if key not in self._names:
            taken = self.taken
            made = name
            while made in taken:
                made += "_"
            self._names[key] = made
            if isinstance(node, ast.FunctionDef):
                node.decorator_list = []
                node.name = made
            written = _Rewriter(self, module).visit(node)
            self.texts.append(ast.unparse(ast.fix_missing_locations(written)))
        return self._names[key]

    def reference(self, module: str, name: str) -> str:
        """What stands for a global name of a module of this package."""
        held = vars(sys.modules[module]).get(name, _MISSING)
        if held is _MISSING:
            return name  # a builtin
        if isinstance(held, ModuleType):
            if held.__name__ == "torch.nn.functional":
                self.imports.add("import torch.nn.functional as F")
                return "F"
            line = _LIBRARIES.get(held.__name__)
            if line is None:
                raise Unsupported(f"source text that uses {held.__name__}")
            self.imports.add(line)
            return line.split()[-1]
        return self._define(module, name)


_MISSING = object()


class _Rewriter(ast.NodeTransformer):
    """Drops annotations, and lets names of the package be those of the text."""

    def __init__(self, inlined: Inlined, module: str) -> None:
        self.inlined = inlined
        self.module = module
        self.local: list[set[str]] = []

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        inner = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        self.local.append(inner | {a.arg for a in ast.walk(node) if isinstance(a, ast.arg)})
        node.returns = None
        found = self.generic_visit(node)
        self.local.pop()
        return found

    def visit_If(self, node: ast.If) -> Any:
        if any(isinstance(n, ast.Attribute) and n.attr == "is_exporting" for n in ast.walk(node.test)):
            return None  # what stands for the rest in a program of torch.export
        return self.generic_visit(node)

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        self.local.append({a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)})
        found = self.generic_visit(node)
        self.local.pop()
        return found

    def visit_arg(self, node: ast.arg) -> Any:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        assert node.value is not None
        return self.visit(ast.Assign([node.target], node.value, lineno=node.lineno))

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        if isinstance(node.value, ast.Name):
            held = vars(sys.modules[self.module]).get(node.value.id)
            if isinstance(held, ModuleType) and held.__name__.startswith(PACKAGE):
                return ast.Name(self.inlined.reference(held.__name__, node.attr), node.ctx)
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> Any:
        if isinstance(node.ctx, ast.Load) and not any(node.id in names for names in self.local):
            return ast.Name(self.inlined.reference(self.module, node.id), node.ctx)
        if isinstance(node.ctx, ast.Store) and not self.local:
            return ast.Name(self.inlined._names.get((self.module, node.id), node.id), node.ctx)
        return node


@functools.cache
def _tree(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(sys.modules[module]))


def _definition(module: str, name: str) -> tuple[str, str, ast.stmt]:
    """Where a name is defined, through imports from elsewhere in this package, and the statement."""
    for node in _tree(module).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _definition(str(node.module), alias.name)
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return module, name, ast.parse(ast.unparse(node)).body[0]
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        if any(isinstance(t, ast.Name) and t.id == name for t in targets):
            return module, name, ast.parse(ast.unparse(node)).body[0]
    raise Unsupported(f"source text that uses {name}")
