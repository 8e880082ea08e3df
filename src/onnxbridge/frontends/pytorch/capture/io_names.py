"""Names of inputs and outputs: parameters of forward, and the keys and fields of nested inputs and results."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from onnxbridge import frameworks
from onnxbridge.frontends.pytorch import dtypes
from onnxbridge.hub.ir.unique_name import unique_name


def path_keys(path: Any) -> list[str]:
    """A pytree path as strings: indices, keys and field names."""
    return [str(getattr(k, "idx", getattr(k, "key", getattr(k, "name", k)))) for k in path]


def leaf_name(keys: list[str]) -> str:
    """The name of a leaf: its path joined by underscores. In caches, the name that decoder runtimes use:
    "past_key_values.0.key"."""
    if "layers" not in keys[:-1]:
        return "_".join(keys)
    layers_index = keys.index("layers")
    stack = {"self_attention_cache": ["decoder"], "cross_attention_cache": ["encoder"]}.get(keys[layers_index - 1])
    prefix = keys[: layers_index - 1] if stack else keys[:layers_index]
    last = [{"keys": "key", "values": "value"}.get(k, k) for k in keys[layers_index + 2 :]]
    return ".".join([*prefix, keys[layers_index + 1], *(stack or []), *last])


def present_name(name: str) -> str:
    """The name of the output with the updated cache tensor `name`, where the model returns its cache; else empty."""
    return name.replace("past_key_values.", "present.", 1) if name.startswith("past_key_values.") else ""


def _present_path(keys: list[str]) -> list[str]:
    """The path of an output, with "past_key_values" replaced by "present"."""
    return ["present", *keys[1:]] if keys[0] == "past_key_values" and "layers" in keys[:-1] else keys


def leaf_paths(value: Any) -> list[list[str]]:
    """The keys that lead to each leaf of a nested value.

    A library may register a container without keys, as transformers 4 does with the outputs of models. Then a mapping has its own
    keys, and other containers have indices.
    """
    from torch.utils import _pytree as pytree

    def walk(node: Any, path: tuple[Any, ...]) -> Iterator[list[str]]:
        handler = pytree.SUPPORTED_NODES.get(pytree._get_node_type(node))
        if handler is None:
            yield path_keys(path)
            return
        if handler.flatten_with_keys_fn is not None:
            children = handler.flatten_with_keys_fn(node)[0]
        else:
            items = list(handler.flatten_fn(node)[0])
            keys = node if isinstance(node, Mapping) and len(node) == len(items) else range(len(items))
            children = [(pytree.MappingKey(k), item) for k, item in zip(keys, items, strict=True)]
        for key, child in children:
            yield from walk(child, (*path, key))

    return list(walk(value, ()))


def output_names(spec: Any, inputs: Iterable[str]) -> list[str]:
    """The names of a result's leaves: "output" for a single one, else keys and fields, else indices.

    Names are unique in a graph, so one that an input already has gets a numeric suffix.
    """
    from torch.utils import _pytree as pytree

    paths = leaf_paths(pytree.tree_unflatten(list(range(spec.num_leaves)), spec))
    labels = [leaf_name(_present_path(keys) if keys and not keys[0].isdigit() else ["output", *keys]) for keys in paths]
    if len(labels) == 1 and labels[0].startswith("output"):
        labels = ["output"]
    used = set(inputs)
    return [unique_name(name, used) for name in labels]


@dataclass(frozen=True)
class CallStructure:
    """How a module was called when it was traced. `leaves` holds the arguments that are not tensors; `kinds` tensor dtypes."""

    names: tuple[str, ...]
    leaves: tuple[Any, ...]
    kinds: tuple[Any, ...]
    spec: Any

    def arguments(self, feeds: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments, with the tensors replaced by these feeds."""
        from torch.utils import _pytree as pytree

        known = zip(self.names, self.leaves, self.kinds, strict=True)
        leaves = [dtypes.tensor(feeds[n], like=kind) if n in feeds else old for n, old, kind in known]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return args, kwargs


_structures: weakref.WeakKeyDictionary[Any, CallStructure] = weakref.WeakKeyDictionary()
_structures_by_path: dict[str, CallStructure] = {}


def store_structure(module: Any, names: list[str], args: Any, kwargs: Any) -> None:
    """Store how the module was called; of tensors only their dtypes."""
    from torch.utils import _pytree as pytree

    torch = frameworks.torch()
    leaves, spec = pytree.tree_flatten((args, kwargs))
    constants = tuple(None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves)
    kinds = tuple(leaf.dtype if isinstance(leaf, torch.Tensor) else None for leaf in leaves)
    _structures[_source_object(module)] = CallStructure(tuple(names), constants, kinds, spec)


def _source_object(module: Any) -> Any:
    """The object that is the same each time the source is loaded: the wrapped script or function, else the module."""
    return module.__dict__.get("source_object", module.__dict__.get("script", module))


def store_structure_by_path(source: Any, module: Any) -> None:
    """Store it also under the file or factory from which the module was loaded."""
    if isinstance(source, (str, os.PathLike, tuple)):
        _structures_by_path[repr(source)] = _structures[_source_object(module)]


def stored_structure(module: Any, source: Any = None) -> CallStructure | None:
    """How the module, or another from the same file or factory, was last called for tracing; None if it was not."""
    found = _structures.get(_source_object(module))
    return found or (_structures_by_path.get(repr(source)) if isinstance(source, (str, os.PathLike, tuple)) else None)
