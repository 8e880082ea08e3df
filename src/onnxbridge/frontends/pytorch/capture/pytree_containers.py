"""Objects that hold tensors and that PyTorch's pytrees do not know: the caches of transformers' decoders, dataclasses."""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from onnxbridge import frameworks
from onnxbridge.errors import UsageError

_NAMES = "_held_tensors"
_BASES = ("Cache", "CacheLayerMixin", "LinearAttentionCacheLayerMixin")


@dataclass(frozen=True)
class _Rest:
    """What an object holds beside tensors; any two are equal where the tensors have the same names."""

    kind: type[Any]
    names: tuple[str, ...]
    others: dict[str, Any]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Rest) and (self.kind, self.names) == (other.kind, other.names)

    def __hash__(self) -> int:
        return hash((self.kind, self.names))


def register() -> None:
    """Let PyTorch see the tensors inside caches; without effect where transformers is not in use or has done it itself."""
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


def adopt(value: Any) -> bool:
    """Let PyTorch see the fields of dataclasses that nobody has registered; whether there were any."""
    from torch.utils import _pytree as pytree

    met = [v for v in pytree.tree_leaves(value) if dataclasses.is_dataclass(v) and not isinstance(v, type)]
    for kind in {type(v) for v in met}:
        frameworks.torch().export.register_dataclass(kind)
    if met:
        adopt([[getattr(v, f.name) for f in dataclasses.fields(v)] for v in met])
    return bool(met)


def _subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    for each in kind.__subclasses__():
        yield each
        yield from _subclasses(each)


def _holds_tensors(value: Any) -> bool:
    from torch.utils import _pytree as pytree

    return any(isinstance(leaf, frameworks.torch().Tensor) for leaf in pytree.tree_leaves(value))


def _flatten(item: Any) -> tuple[list[Any], _Rest]:
    held = {k: v for k, v in vars(item).items() if not k.startswith("_") and _holds_tensors(v)}
    # PyTorch also puts other things in the place of tensors, such as numbers that name them
    held = held or {k: vars(item)[k] for k in vars(item).get(_NAMES, ())}
    rest = {k: v for k, v in vars(item).items() if k not in held}
    if _counts_its_keys(item):
        rest["cumulative_length"] = None
    return list(held.values()), _Rest(type(item), tuple(held), rest)


def _with_keys(item: Any) -> tuple[list[tuple[Any, Any]], _Rest]:
    from torch.utils._pytree import GetAttrKey

    children, rest = _flatten(item)
    return [(GetAttrKey(n), c) for n, c in zip(rest.names, children, strict=True)], rest


def _unflatten(children: Any, rest: _Rest) -> Any:
    made: Any = object.__new__(rest.kind)
    made.__dict__.update({k: copy.copy(v) if isinstance(v, (list, dict)) else v for k, v in rest.others.items()})
    made.__dict__.update(zip(rest.names, children, strict=True))
    made.__dict__[_NAMES] = rest.names
    if rest.others.get("cumulative_length", 0) is None:
        made.cumulative_length = made.keys.shape[-2] if hasattr(made.keys, "shape") else None
    return made


def _counts_its_keys(item: Any) -> bool:
    """Whether an object keeps the length of its keys beside them as a number: it follows the tensor, whose size may vary."""
    length, keys = getattr(item, "cumulative_length", None), getattr(item, "keys", None)
    torch = frameworks.torch()
    return isinstance(length, (int, torch.SymInt)) and isinstance(keys, torch.Tensor) and bool(length == keys.shape[-2])


def check(value: Any) -> None:
    """Refuse inputs that hold a position as a plain number, which the converted model would keep for ever.

    Raises:
        UsageError: for a cache beyond its sliding window.
    """
    for layer in getattr(value, "layers", ()) if type(value).__name__.endswith("Cache") else ():
        length, keys = getattr(layer, "cumulative_length", None), getattr(layer, "keys", None)
        if type(length) is int and keys is not None and not _counts_its_keys(layer):
            raise UsageError(
                f"the cache has seen {length} positions and keeps {keys.shape[-2]} of them: give one that is not beyond its "
                "sliding window, or one that keeps its length in a tensor (StaticCache)"
            )
