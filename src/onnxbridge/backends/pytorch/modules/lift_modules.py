"""Replaces traced calls that are torch.nn layers with weights by those layers.

A rule calls `torch.nn.functional`; only this module decides which calls become layers, so rules need not know where weights come
from. A layer keeps the path and names of its weights in the hub; weights named differently are placed at the path of the source's
module or node.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn
from torch.fx.node import map_arg

from onnxbridge.backends.pytorch.modules.module_paths import module_path
from onnxbridge.backends.pytorch.modules.peephole import drop_unused
from onnxbridge.backends.pytorch.weights import Weights

Args = tuple[Any, ...]


@dataclass
class Layer:
    """A layer that a call was matched to.

    `weights` are, by the layer's own names, nodes of weights or of values computed from weights alone; the one named by
    `transposed` is stored transposed. `kind` and `arguments` construct the layer.
    """

    kind: type[nn.Module]
    arguments: Mapping[str, Any]
    inputs: tuple[Any, ...]
    weights: Mapping[str, fx.Node] = field(default_factory=dict)
    transposed: str = ""
    replaced: fx.Node | None = None
    """The node whose value the layer computes, if it is not the call itself."""
    function: Callable[..., Any] | None = None
    """An equivalent function of the input and weights, if it is better than the traced calls."""


Finder = Callable[..., Layer | None]
FINDERS: dict[Any, Finder] = {}


def finder(*targets: Any) -> Callable[[Finder], Finder]:
    """Register a function that matches calls of these targets. It receives the node, then the call's own arguments."""

    def register(function: Finder) -> Finder:
        FINDERS.update(dict.fromkeys(targets, function))
        return function

    return register


def shape(node: Any) -> tuple[int, ...]:
    """The static shape of a weight."""
    return tuple(int(n) for n in node.meta["val"].shape)


def rank(node: Any) -> int | None:
    """The rank of a value, or None if unknown."""
    known = getattr(node.meta.get("val"), "ndim", None)
    return None if known is None else int(known)


class LayerLifter:
    """Replaces calls in one graph by layers of `root`."""

    def __init__(self, root: nn.Module, graph: fx.Graph, weights: Weights) -> None:
        self.root = root
        self.graph = graph
        self.weights = weights
        self._made: dict[Hashable, str] = {}
        self._parameters_by_memory: dict[Hashable, nn.Parameter] = {}
        for p in root.parameters():
            self._parameters_by_memory.setdefault(_memory(p), p)
        self._by_path: dict[str, list[fx.Node]] = {}
        for node in graph.nodes:
            if node.op.startswith("call") and (scope := module_path(node)):
                self._by_path.setdefault(scope, []).append(node)

    def lift(self) -> None:
        """Match every call."""
        for weighted in (True, False):  # layers with weights have priority for paths
            for node in list(self.graph.nodes):
                found = FINDERS.get(node.target) if node.op == "call_function" and node.users else None
                layer = found(node, *node.args, **node.kwargs) if found else None
                if layer is not None and bool(layer.weights) == weighted and self._has_valid_weights(layer):
                    self._replace(node, layer)
        drop_unused(self.graph)

    def _has_valid_weights(self, layer: Layer) -> bool:
        """Whether the layer's weights are weights, and none of its parameters is a buffer of the source."""
        named = layer.weights.items()
        fixed = [n for name, n in named if not name.startswith("running_") and self.is_weight(n) for n in self.source_weights(n)]
        return all(self.is_weight(n) for _, n in named) and not any(n.target in self.weights.source_buffers for n in fixed)

    def is_weight(self, node: Any) -> bool:
        """Whether a node's value is computed from weights alone."""
        return isinstance(node, fx.Node) and self._constant(node)

    def _constant(self, node: fx.Node) -> bool:
        if node.op == "get_attr":
            return isinstance(self.weights.get(node.target), torch.Tensor)
        pure = node.target in _VIEWS
        return pure and bool(node.all_input_nodes) and all(map(self._constant, node.all_input_nodes))

    def value(self, node: fx.Node) -> torch.Tensor:
        """The tensor of a node that is a weight or is computed from weights."""
        if node.op == "get_attr":
            stored = self.weights.get(node.target)
            assert isinstance(stored, torch.Tensor)
            return stored
        args, kwargs = map_arg((node.args, node.kwargs), lambda n: self.value(n).detach())
        made = getattr(args[0], node.target)(*args[1:], **kwargs) if node.op == "call_method" else node.target(*args, **kwargs)
        assert isinstance(made, torch.Tensor)
        return made

    def source_weights(self, node: fx.Node) -> Iterator[fx.Node]:
        """The weights that a node is computed from."""
        if node.op == "get_attr":
            yield node
        for before in node.all_input_nodes:
            yield from self.source_weights(before)

    def _replace(self, node: fx.Node, layer: Layer) -> None:
        tensors = {name: self.value(n) for name, n in layer.weights.items()}
        if layer.transposed:
            tensors[layer.transposed] = tensors[layer.transposed].detach().t()
        used = layer.replaced or node
        key = (layer.kind, repr(layer.arguments), tuple(layer.weights.values()) or module_path(node))
        path = self._made.get(key)
        if path is None:
            path = self._layer_path(node, layer) if layer.weights or self._is_whole_module(node) else None
            if path is None:
                if layer.function is not None:
                    self._substitute(used, "call_function", layer.function, (*layer.inputs, *layer.weights.values()))
                return
            self._made[key] = path
            self.weights.place_layer(path, self.module(layer.kind, layer.arguments, tensors), layer.arguments)
        self._substitute(used, "call_module", path, layer.inputs)

    def _substitute(self, used: fx.Node, kind: str, target: Any, args: tuple[Any, ...]) -> None:
        with self.graph.inserting_before(used):
            made = self.graph.create_node(kind, target, args)
        made.meta.update(used.meta)
        used.replace_all_uses_with(made)

    def module(self, kind: type[nn.Module], arguments: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> nn.Module:
        """A layer with these tensors, by the layer's own names."""
        with torch.device("meta"):
            made = kind(**arguments)
        for name, tensor in tensors.items():
            if name in made._buffers:
                made._buffers[name] = tensor.detach()
            else:
                made._parameters[name] = self._parameter(tensor)
        if made._buffers.get("num_batches_tracked") is not None:
            made._buffers["num_batches_tracked"] = torch.zeros((), dtype=torch.int64)
        return made

    def _parameter(self, tensor: torch.Tensor) -> nn.Parameter:
        """The parameter on this memory, shared so that tied weights train together."""
        if isinstance(tensor, nn.Parameter):
            return tensor
        made = nn.Parameter(tensor.detach(), requires_grad=tensor.is_floating_point())
        return self._parameters_by_memory.setdefault(_memory(made), made)

    def _is_whole_module(self, node: fx.Node) -> bool:
        """Whether a call without weights is all that its source module does, as for an activation layer."""
        scope = module_path(node)
        same = [n for n in self._by_path.get(scope, []) if n.users]
        return (
            bool(scope)
            and bool(node.meta["where"].scope)
            and all(n.target == node.target and n.args[1:] == node.args[1:] and n.kwargs == node.kwargs for n in same)
            and not any(other.startswith(f"{scope}.") for other in self._by_path)
            and self.weights.is_free(scope, ())
        )

    def _layer_path(self, node: fx.Node, layer: Layer) -> str | None:
        """The path for the layer; None if that would rename weights that have the source's names."""
        if not layer.weights:
            return module_path(node)
        named = {name: str(w.target) if w.op == "get_attr" else "" for name, w in layer.weights.items()}
        sources = [n for w in layer.weights.values() for n in self.source_weights(w)]
        own = [str(n.target) for n in sources]
        shared = any(len(n.users) > 1 for n in sources)
        tied = module_path(node) if shared and not layer.transposed and node.meta["where"].scope else ""
        if tied and self.weights.is_free(tied, ()):
            return tied  # another source layer that shares the parameter
        fixed = {name: path for name, path in named.items() if path and self.weights.has_source_name(path)}
        for name, path in named.items():
            scope = _scope(path, name)
            stays = not layer.transposed and all(p == f"{scope}.{n}" for n, p in named.items())
            moves = not shared and layer.transposed not in fixed and all(p == f"{scope}.{n}" for n, p in fixed.items())
            if scope and (stays or moves) and self.weights.is_free(scope, own):
                return scope
        if shared or any(map(self.weights.has_source_name, own)):
            return None
        return self.unused_path([module_path(node), own[0].removesuffix(".weight"), layer.kind.__name__.lower()], own)

    def unused_path(self, preferred: Sequence[str], own: Sequence[str]) -> str:
        """The first of the preferred paths that is free, otherwise the first with a numeric suffix."""
        names = [name for name in preferred if name]
        return next((n for n in names if self.weights.is_free(n, own)), None) or self.weights.unused_path(names[0])


_VIEWS = ("t", "reshape", torch.cat, operator.getitem)


def _scope(path: str, name: str) -> str:
    """The module path of a weight if its last part is the layer's own name for it."""
    scope, _, last = path.rpartition(".")
    return scope if last == name else ""


def _memory(tensor: torch.Tensor) -> Hashable:
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype
