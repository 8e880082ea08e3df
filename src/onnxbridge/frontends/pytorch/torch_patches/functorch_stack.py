"""Patch: the stack of functorch levels after a failed trace."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from onnxbridge import frameworks


# Checked on PyTorch 2.13.0: a trace that fails inside vmap or grad leaves its level on the stack of torch._C._functorch.
@contextlib.contextmanager
def restore_functorch_stack() -> Iterator[None]:
    """Restore the functorch stack (vmap, grad) on exit."""
    functorch = frameworks.torch()._C._functorch
    before = functorch.get_dynamic_layer_stack_depth()
    try:
        yield
    finally:
        while functorch.get_dynamic_layer_stack_depth() > before:
            functorch.pop_dynamic_layer_stack()
