"""Nodes computed from sizes alone. They belong to no submodule: each submodule recomputes the sizes it needs from its inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import fx


class Sizes:
    """Nodes that are computed from sizes alone, and which of them can be computed from given values."""

    def __init__(self, graph: fx.Graph, unnamed: Any = None) -> None:
        self.unnamed = unnamed
        self._free: dict[fx.Node, bool] = {}
        self._used: dict[fx.Node, set[fx.Node]] = {}
        self._roots: dict[fx.Node, set[fx.Node]] = {}
        for node in graph.nodes:
            self._free[node] = self._is_size(node)

    def __contains__(self, node: fx.Node) -> bool:
        """Whether a node is a size or a device, which is cheap to recompute."""
        return self._free[node]

    def _is_size(self, node: fx.Node) -> bool:
        if node.op == "call_method":
            return bool(node.target == "size" and len(node.args) == 2 and not node.kwargs)
        if node.op != "call_function":
            return False
        if node.target is getattr:
            return bool(node.args[1] == "device")
        return is_number(node) and bool(node.all_input_nodes) and all(map(is_number, node.all_input_nodes))

    def users(self, size: fx.Node) -> set[fx.Node]:
        """The calls that use a size, directly or through sizes computed from it."""
        if size not in self._used:
            self._used[size] = {u for user in size.users for u in (self.users(user) if user in self else (user,))}
        return self._used[size]

    def roots(self, size: fx.Node) -> set[fx.Node]:
        """The values that a size is computed from."""
        if size not in self._roots:
            self._roots[size] = {r for n in size.all_input_nodes for r in (self.roots(n) if n in self else (n,))}
        return self._roots[size]

    def key(self, size: Any) -> Any:
        """The symbolic expression that identifies a size; None if sizes of that expression may differ."""
        if not isinstance(size, torch.SymInt):
            return None
        expression = size.node.expr
        return None if self.unnamed is not None and self.unnamed in expression.free_symbols else expression

    def dims(self, value: fx.Node) -> Iterator[tuple[Any, int]]:
        """The dynamic sizes of a value, with their axes."""
        known = value.meta.get("val")
        if isinstance(known, torch.Tensor):
            for i, size in enumerate(known.shape):
                key = self.key(size)
                if key is not None:
                    yield key, i

    def computable(self, size: fx.Node, values: Iterable[fx.Node]) -> bool:
        """Whether a size can be computed from the values."""
        available = set(values)
        return self._computable(size, available, {key for v in available for key, _ in self.dims(v)})

    def _computable(self, size: fx.Node, values: set[fx.Node], keys: set[Any]) -> bool:
        if size in values or self.key(size.meta["val"]) in keys:
            return True
        if size not in self:
            return False
        if size.target is getattr:
            return any(isinstance(v.meta.get("val"), torch.Tensor) for v in values)
        return all(self._computable(n, values, keys) for n in size.all_input_nodes)


def is_number(node: fx.Node) -> bool:
    kinds = (int, float, torch.SymInt, torch.SymFloat, torch.SymBool)
    return node.op.startswith("call") and isinstance(node.meta.get("val"), kinds)
