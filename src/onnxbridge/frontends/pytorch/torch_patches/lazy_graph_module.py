"""Patch: FX graphs without generated Python code, which PyTorch would write and compile after each of its passes."""

from __future__ import annotations

import contextlib
import importlib


# Checked on PyTorch 2.13.0: `_use_lazy_graph_module` makes tracers create _LazyGraphModule, which recompiles when first called.
def lazy_code() -> contextlib.AbstractContextManager[None]:
    """Generate a traced graph's code when it first runs, not each time the graph changes."""
    try:
        lazy = importlib.import_module("torch.fx._lazy_graph_module")
        patch: contextlib.AbstractContextManager[None] = lazy._use_lazy_graph_module(True)
    except (ImportError, AttributeError):  # not in this release of PyTorch
        return contextlib.nullcontext()
    return patch
