"""Keeps associative scans traceable over sizes that vary: PyTorch halves them again and again in Python, which fixes them."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

from onnxbridge import frameworks

_MODULE = "torch._higher_order_ops.associative_scan"


@contextlib.contextmanager
def in_turn() -> Iterator[None]:
    """While inside, associative scans over a size that is not a number go from one element to the next."""
    module = sys.modules.get(_MODULE)
    if module is None:  # then nothing calls it
        yield
        return
    kept = module.generic_associative_scan
    module.generic_associative_scan = _unless_fixed(kept)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        module.generic_associative_scan = kept  # type: ignore[attr-defined]


def _unless_fixed(halving: Callable[..., Any]) -> Callable[..., Any]:
    def scanned(operator: Any, leaves: Any, dim: int = 0, additional_inputs: Any = ()) -> Any:
        if all(isinstance(size, int) for leaf in leaves for size in leaf.shape):
            return halving(operator, leaves, dim, additional_inputs)
        torch = frameworks.torch()
        from torch.utils import _pytree as pytree

        scan = importlib.import_module("torch._higher_order_ops.scan").scan
        each = _for_one(operator)
        copied = functools.partial(torch.clone, memory_format=torch.contiguous_format)  # a state lies in memory as it did before

        def step(state: Any, item: Any) -> Any:
            new = pytree.tree_leaves(each(*state, *item, *additional_inputs))
            return [copied(n) for n in new], [copied(n) for n in new]

        first = [leaf.narrow(dim, 0, 1) for leaf in leaves]
        rest = [leaf.narrow(dim, 1, leaf.shape[dim] - 1) for leaf in leaves]
        _, found = scan(step, [copied(f.squeeze(dim)) for f in first], rest, dim=dim)
        return [torch.cat([f, y], dim) for f, y in zip(first, found, strict=True)]

    return scanned


def _for_one(operator: Any) -> Any:
    """The user's operator, which PyTorch has wrapped to take many elements at once."""
    own = inspect.getclosurevars(operator.keywords["combine_fn"]).nonlocals["func"]
    return functools.partial(operator.func, **{**operator.keywords, "combine_fn": own})
