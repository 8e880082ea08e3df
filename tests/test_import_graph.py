"""Modules import each other in layers: no circle, and nothing from a layer above."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

import onnxbridge

ROOT = Path(onnxbridge.__file__).parent
# a package may import what stands before it, itself, and the modules beside them
FORBIDDEN = {
    "hub": {"formats", "frontends", "backends", "runtime", "api", "cli"},
    "formats": {"frontends", "backends", "runtime", "api", "cli"},
    "runtime": {"frontends", "backends", "api", "cli"},
    "frontends": {"backends", "api", "cli"},
    "backends": {"frontends", "api", "cli"},
}


def modules() -> dict[str, Path]:
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = ("onnxbridge", *path.relative_to(ROOT).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports() -> dict[str, set[str]]:
    """The modules of onnxbridge that each one imports, in functions and for type checks too."""
    there, found = modules(), defaultdict(set)
    for name, path in there.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module in there:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
                found[name] |= {n if n in there else node.module for n in names}
            elif isinstance(node, ast.Import):
                found[name] |= {alias.name for alias in node.names if alias.name in there}
        found[name].discard(name)
    return found


@pytest.mark.slow
def test_no_modules_import_each_other_in_a_circle():
    graph, state, circles = imports(), {}, []

    def visit(module, path):
        state[module] = "open"
        for other in sorted(graph[module]):
            if state.get(other) == "open":
                circles.append(" -> ".join([*path[path.index(other) :], other]))
            elif other not in state:
                visit(other, [*path, other])
        state[module] = "done"

    for module in sorted(modules()):
        if module not in state:
            visit(module, [module])
    assert not circles, "\n".join(circles)


def test_nothing_is_imported_from_a_layer_above():
    found = []
    for module, others in imports().items():
        layer = module.split(".")[1:2]
        for other in others:
            above = other.split(".")[1:2]
            if layer and above and above[0] in FORBIDDEN.get(layer[0], ()):
                found.append(f"{module} imports {other}")
    assert not found, "\n".join(sorted(found))
