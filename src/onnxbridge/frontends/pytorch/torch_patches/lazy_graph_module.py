"""Leaves graphs of PyTorch without their Python code, which it would write and compile again after each of its passes."""

from __future__ import annotations

import contextlib
import importlib


def code_unread() -> contextlib.AbstractContextManager[None]:
    """While inside, a traced graph's code is written when it is first run, not each time the graph has changed."""
    try:
        lazy = importlib.import_module("torch.fx._lazy_graph_module")
        waiting: contextlib.AbstractContextManager[None] = lazy._use_lazy_graph_module(True)
    except (ImportError, AttributeError):  # a release of PyTorch that does not have it
        return contextlib.nullcontext()
    return waiting
