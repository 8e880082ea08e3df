"""Patch: `len` of tensors whose first size is dynamic or depends on data."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from onnxbridge import frameworks
from onnxbridge.frontends.pytorch.torch_patches.target import Target, replaced

# Checked on PyTorch 2.13.0: `len` of a FakeTensor fixes its first size, and raises GuardOnDataDependentSymNode where that is an
# unbacked symbol.
TARGETS = (Target("builtins", "len", ("obj",)),)


@contextlib.contextmanager
def symbolic_len() -> Iterator[None]:
    """Make `len` of a tensor return its first size, also if it is symbolic.

    Python's own `len` converts the size to an int. This one is slower, so only models that need it are traced with it.
    """
    torch = frameworks.torch()

    def wrap(original: Any) -> Any:
        def length(x: Any, /) -> Any:
            if isinstance(x, torch.Tensor) and x.dim() and not isinstance(x.shape[0], int):
                return x.shape[0]
            return original(x)

        return length

    with replaced(TARGETS[0], wrap):
        yield
