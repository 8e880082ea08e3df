"""Patch: associative scans over dynamic sizes. PyTorch halves the size recursively in Python, which specializes it."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any

from onnxbridge import frameworks
from onnxbridge.frontends.pytorch.torch_patches.target import Target, replaced

# Checked on PyTorch 2.13.0: associative_scan calls `generic_associative_scan` with a functools.partial whose `combine_fn` is the
# result of torch.vmap, which holds the user's function in its closure as `func`.
TARGETS = (
    Target(
        "torch._higher_order_ops.associative_scan", "generic_associative_scan", ("operator", "leaves", "dim", "additional_inputs")
    ),
)


def sequential_associative_scan() -> contextlib.AbstractContextManager[None]:
    """Compute associative scans over a dynamic size element by element, with `scan`."""
    return replaced(TARGETS[0], _sequential_if_dynamic)


def _sequential_if_dynamic(original: Callable[..., Any]) -> Callable[..., Any]:
    def associative_scan(operator: Any, leaves: Any, dim: int = 0, additional_inputs: Any = ()) -> Any:
        if all(isinstance(size, int) for leaf in leaves for size in leaf.shape):
            return original(operator, leaves, dim, additional_inputs)
        torch = frameworks.torch()
        from torch.utils import _pytree as pytree

        scan = importlib.import_module("torch._higher_order_ops.scan").scan
        combine = _elementwise(operator)
        copied = functools.partial(torch.clone, memory_format=torch.contiguous_format)  # carried values need the same strides

        def step(state: Any, item: Any) -> Any:
            new = pytree.tree_leaves(combine(*state, *item, *additional_inputs))
            return [copied(n) for n in new], [copied(n) for n in new]

        first = [leaf.narrow(dim, 0, 1) for leaf in leaves]
        rest = [leaf.narrow(dim, 1, leaf.shape[dim] - 1) for leaf in leaves]
        _, found = scan(step, [copied(f.squeeze(dim)) for f in first], rest, dim=dim)
        return [torch.cat([f, y], dim) for f, y in zip(first, found, strict=True)]

    return associative_scan


def _elementwise(operator: Any) -> Any:
    """The user's combine function, which PyTorch has wrapped to operate on batches of elements."""
    combine_fn = inspect.getclosurevars(operator.keywords["combine_fn"]).nonlocals["func"]
    return functools.partial(operator.func, **{**operator.keywords, "combine_fn": combine_fn})
