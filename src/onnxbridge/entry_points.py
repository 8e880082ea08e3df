"""The entry points by which installed packages add plugins and rules."""

from __future__ import annotations

import functools
import os
from importlib import import_module, metadata
from typing import Any


def entry_points(group: str) -> list[metadata.EntryPoint]:
    """The entry points of a group, bundled ones first; ONNXBRIDGE_PLUGINS=builtin ignores those of other packages."""
    found = list(metadata.entry_points(group=group))
    if os.environ.get("ONNXBRIDGE_PLUGINS") == "builtin":
        found = [e for e in found if e.value.startswith("onnxbridge.")]
    return sorted(found, key=lambda e: (not e.value.startswith("onnxbridge."), e.name, e.value))


def load_extra_rules(table: str) -> None:
    """Import the modules of installed packages that add rules to a table of ours ("frontends.pytorch")."""
    for e in entry_points("onnxbridge.rules"):
        if e.name.startswith(table + "."):
            import_module(e.value)


@functools.cache
def evaluator_rules() -> Any:
    """The rules that evaluate nodes on constants: those of the first entry point in "onnxbridge.evaluators"."""
    module, _, attribute = entry_points("onnxbridge.evaluators")[0].value.partition(":")
    return getattr(import_module(module), attribute)
