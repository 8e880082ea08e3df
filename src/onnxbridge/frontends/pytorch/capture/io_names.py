"""Names of inputs and outputs: parameters of forward, and the keys and fields of what goes in and comes out."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from onnxbridge import frameworks
from onnxbridge.frontends.pytorch import dtypes


def keys_of(path: Any) -> list[str]:
    """A pytree's path as text: indices, keys and field names."""
    return [str(getattr(k, "idx", getattr(k, "key", getattr(k, "name", k)))) for k in path]


def label(keys: list[str]) -> str:
    """A leaf's name: its path with underscores; in a cache as runtimes for decoders call it, "past_key_values.0.key"."""
    if "layers" not in keys[:-1]:
        return "_".join(keys)
    place = keys.index("layers")
    side = {"self_attention_cache": ["decoder"], "cross_attention_cache": ["encoder"]}.get(keys[place - 1])
    front = keys[: place - 1] if side else keys[:place]
    last = [{"keys": "key", "values": "value"}.get(k, k) for k in keys[place + 2 :]]
    return ".".join([*front, keys[place + 1], *(side or []), *last])


def after(name: str) -> str:
    """What the model leaves in a state that it keeps: the name of the output that is the next call's input `name`."""
    return f"{name}.next"


def returned(name: str) -> str:
    """What the output is called that has a cache's tensor `name` after the step, where the model returns its cache."""
    return name.replace("past_key_values.", "present.", 1) if name.startswith("past_key_values.") else ""


def _presented(keys: list[str]) -> list[str]:
    """The path of an output with a cache called what it is after the step."""
    return ["present", *keys[1:]] if keys[0] == "past_key_values" and "layers" in keys[:-1] else keys


def outputs(spec: Any, inputs: Iterable[str]) -> list[str]:
    """The names of a result's leaves: "output" for a single one, keys and fields where there are, else positions.

    A graph has each name once, so one that an input has already gets a number.
    """
    from torch.utils import _pytree as pytree

    tree = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
    paths = [keys_of(path) for path, _ in pytree.tree_flatten_with_path(tree)[0]]
    labels = [label(_presented(keys) if keys and not keys[0].isdigit() else ["output", *keys]) for keys in paths]
    if len(labels) == 1 and labels[0].startswith("output"):
        labels = ["output"]
    taken = set(inputs)
    for i, wanted in enumerate(labels):
        n = 0
        while labels[i] in taken:
            n += 1
            labels[i] = f"{wanted}_{n}"
        taken.add(labels[i])
    return labels


@dataclass(frozen=True)
class Structure:
    """How a module was called when it was traced: its leaves' names, and what they were for those that are no tensors."""

    names: tuple[str, ...]
    leaves: tuple[Any, ...]
    kinds: tuple[Any, ...]
    spec: Any

    def arguments(self, feeds: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with these feeds in place of the tensors."""
        from torch.utils import _pytree as pytree

        known = zip(self.names, self.leaves, self.kinds, strict=True)
        leaves = [dtypes.tensor(feeds[n], like=kind) if n in feeds else old for n, old, kind in known]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return args, kwargs


_remembered: weakref.WeakKeyDictionary[Any, Structure] = weakref.WeakKeyDictionary()
_by_path: dict[str, Structure] = {}


def remember(module: Any, names: list[str], args: Any, kwargs: Any) -> None:
    """Keep how the module was called, of tensors their dtypes only."""
    from torch.utils import _pytree as pytree

    torch = frameworks.torch()
    leaves, spec = pytree.tree_flatten((args, kwargs))
    kept = tuple(None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves)
    kinds = tuple(leaf.dtype if isinstance(leaf, torch.Tensor) else None for leaf in leaves)
    _remembered[_source(module)] = Structure(tuple(names), kept, kinds, spec)


def _source(module: Any) -> Any:
    """What stays the same from one reading to the next: the script or function behind a stand-in, else the module."""
    return module.__dict__.get("stands_for", module.__dict__.get("script", module))


def remember_path(source: Any, module: Any) -> None:
    """Keep it for the file or factory too that the module came from."""
    if isinstance(source, (str, os.PathLike, tuple)):
        _by_path[repr(source)] = _remembered[_source(module)]


def remembered(module: Any, source: Any = None) -> Structure | None:
    """How the module, or one from the same file or factory, was last called for tracing."""
    found = _remembered.get(_source(module))
    return found or (_by_path.get(repr(source)) if isinstance(source, (str, os.PathLike, tuple)) else None)
