"""Names of inputs and outputs: parameters of forward, and the keys and fields of what goes in and comes out."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from onnxbridge import frameworks
from onnxbridge.frontends.pytorch import dtypes


def keys_of(path: Any) -> list[str]:
    """A pytree's path as text: indices, keys and field names."""
    return [str(getattr(k, "idx", getattr(k, "key", getattr(k, "name", k)))) for k in path]


def outputs(spec: Any, inputs: Iterable[str]) -> list[str]:
    """The names of a result's leaves: "output" for a single one, keys and fields where there are, else positions.

    A graph has each name once, so one that an input has already gets a number.
    """
    from torch.utils import _pytree as pytree

    tree = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
    paths = [keys_of(path) for path, _ in pytree.tree_flatten_with_path(tree)[0]]
    labels = ["_".join(keys if keys and not keys[0].isdigit() else ["output", *keys]) for keys in paths]
    if len(labels) == 1 and labels[0].startswith("output"):
        labels = ["output"]
    taken = set(inputs)
    for i, label in enumerate(labels):
        n = 0
        while labels[i] in taken:
            n += 1
            labels[i] = f"{label}_{n}"
        taken.add(labels[i])
    return labels


@dataclass(frozen=True)
class Structure:
    """How a module was called when it was traced: its leaves' names, and what they were for those that are no tensors."""

    names: tuple[str, ...]
    leaves: tuple[Any, ...]
    spec: Any

    def arguments(self, feeds: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with these feeds in place of the tensors."""
        from torch.utils import _pytree as pytree

        leaves = [dtypes.tensor(feeds[n]) if n in feeds else old for n, old in zip(self.names, self.leaves, strict=True)]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return args, kwargs


_remembered: weakref.WeakKeyDictionary[Any, Structure] = weakref.WeakKeyDictionary()


def remember(module: Any, names: list[str], args: Any, kwargs: Any) -> None:
    """Keep how the module was called, without the tensors."""
    from torch.utils import _pytree as pytree

    torch = frameworks.torch()
    leaves, spec = pytree.tree_flatten((args, kwargs))
    kept = tuple(None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves)
    _remembered[module] = Structure(tuple(names), kept, spec)


def remembered(module: Any) -> Structure | None:
    """How the module was last called for tracing."""
    return _remembered.get(module)
