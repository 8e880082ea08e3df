"""Pytree registration of tensor containers that PyTorch does not know: transformers' decoder caches, dataclasses."""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from onnxbridge import frameworks
from onnxbridge.errors import UsageError

_TENSOR_FIELDS = "_tensor_fields"
_BASES = ("Cache", "CacheLayerMixin", "LinearAttentionCacheLayerMixin")


@dataclass(frozen=True)
class _Context:
    """The pytree context: everything in an object but its tensors. Contexts are equal if their tensors have the same names."""

    kind: type[Any]
    names: tuple[str, ...]
    others: dict[str, Any]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Context) and (self.kind, self.names) == (other.kind, other.names)

    def __hash__(self) -> int:
        return hash((self.kind, self.names))


def register() -> None:
    """Register transformers' cache classes as pytree nodes; does nothing if transformers is not imported."""
    library = sys.modules.get("transformers.cache_utils")
    if library is None:
        return
    from torch.utils import _pytree as pytree

    for base in (getattr(library, name) for name in _BASES if hasattr(library, name)):
        for kind in (base, *_subclasses(base)):
            if kind not in pytree.SUPPORTED_NODES:
                pytree.register_pytree_node(
                    kind, _flatten, _unflatten, flatten_with_keys_fn=_with_keys,
                    serialized_type_name=f"{kind.__module__}.{kind.__qualname__}",
                )  # fmt: skip


def register_dataclasses(value: Any) -> bool:
    """Register the unregistered dataclasses in a value as pytree nodes; returns whether there were any."""
    from torch.utils import _pytree as pytree

    dataclass_values = [v for v in pytree.tree_leaves(value) if dataclasses.is_dataclass(v) and not isinstance(v, type)]
    for kind in {type(v) for v in dataclass_values}:
        frameworks.torch().export.register_dataclass(kind)
    if dataclass_values:
        register_dataclasses([[getattr(v, f.name) for f in dataclasses.fields(v)] for v in dataclass_values])
    return bool(dataclass_values)


def _subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    for each in kind.__subclasses__():
        yield each
        yield from _subclasses(each)


def _holds_tensors(value: Any) -> bool:
    from torch.utils import _pytree as pytree

    return any(isinstance(leaf, frameworks.torch().Tensor) for leaf in pytree.tree_leaves(value))


def _flatten(item: Any) -> tuple[list[Any], _Context]:
    tensors = {k: v for k, v in vars(item).items() if not k.startswith("_") and _holds_tensors(v)}
    # PyTorch also unflattens with values other than tensors, such as indices, and flattens the result
    tensors = tensors or {k: vars(item)[k] for k in vars(item).get(_TENSOR_FIELDS, ())}
    others = {k: v for k, v in vars(item).items() if k not in tensors}
    if _length_follows_keys(item):
        others["cumulative_length"] = None
    return list(tensors.values()), _Context(type(item), tuple(tensors), others)


def _with_keys(item: Any) -> tuple[list[tuple[Any, Any]], _Context]:
    from torch.utils._pytree import GetAttrKey

    children, context = _flatten(item)
    return [(GetAttrKey(n), c) for n, c in zip(context.names, children, strict=True)], context


def _unflatten(children: Any, context: _Context) -> Any:
    instance: Any = object.__new__(context.kind)
    instance.__dict__.update({k: copy.copy(v) if isinstance(v, (list, dict)) else v for k, v in context.others.items()})
    instance.__dict__.update(zip(context.names, children, strict=True))
    instance.__dict__[_TENSOR_FIELDS] = context.names
    if context.others.get("cumulative_length", 0) is None:
        instance.cumulative_length = instance.keys.shape[-2] if hasattr(instance.keys, "shape") else None
    return instance


def _length_follows_keys(item: Any) -> bool:
    """Whether an object stores the length of its keys as a number: it is derived from the tensor, whose size may vary."""
    length, keys = getattr(item, "cumulative_length", None), getattr(item, "keys", None)
    torch = frameworks.torch()
    return isinstance(length, (int, torch.SymInt)) and isinstance(keys, torch.Tensor) and bool(length == keys.shape[-2])


def check_cache_positions(value: Any) -> None:
    """Reject inputs that store a position as a Python number, which would become a constant of the converted model.

    Raises:
        UsageError: for a cache that is longer than its sliding window.
    """
    for layer in getattr(value, "layers", ()) if type(value).__name__.endswith("Cache") else ():
        length, keys = getattr(layer, "cumulative_length", None), getattr(layer, "keys", None)
        if type(length) is int and keys is not None and not _length_follows_keys(layer):
            raise UsageError(
                f"the cache has seen {length} positions and stores {keys.shape[-2]} of them: pass one that is no longer than its "
                "sliding window, or one that stores its length in a tensor (StaticCache)"
            )
