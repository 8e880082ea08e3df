"""The entry points by which installed packages add plugins and rules."""

from __future__ import annotations

import functools
import os
from importlib import import_module, metadata
from typing import Any


def entry_points(group: str) -> list[metadata.EntryPoint]:
    """The entry points of a group, the bundled ones first; ONNXBRIDGE_PLUGINS=builtin leaves out those of other packages."""
    found = list(metadata.entry_points(group=group))
    if os.environ.get("ONNXBRIDGE_PLUGINS") == "builtin":
        found = [e for e in found if e.value.startswith("onnxbridge.")]
    return sorted(found, key=lambda e: (not e.value.startswith("onnxbridge."), e.name, e.value))


def load_extra_rules(table: str) -> None:
    """Import the modules with which installed packages add rules to one of our tables ("frontends.pytorch")."""
    for e in entry_points("onnxbridge.rules"):
        if e.name.startswith(table + "."):
            import_module(e.value)


@functools.cache
def evaluator_rules() -> Any:
    """The rules with which nodes on constants are evaluated: those of the first entry point in "onnxbridge.evaluators"."""
    module, _, attribute = entry_points("onnxbridge.evaluators")[0].value.partition(":")
    return getattr(import_module(module), attribute)
