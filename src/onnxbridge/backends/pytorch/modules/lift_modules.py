"""Finds, in what was recorded, the calls that are one of torch.nn's own layers on weights of their own, and makes them that.

A rule calls `torch.nn.functional`; only here is decided that a call is a layer, so a rule never knows where its weights come
from. A layer keeps the path and the names that its weights have in the hub; weights that the hub names otherwise are put where
the source's own module or node was.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn
from torch.fx.node import map_arg

from onnxbridge.backends.pytorch.modules import lift_recurrent
from onnxbridge.backends.pytorch.modules.module_paths import place
from onnxbridge.backends.pytorch.modules.peephole import drop_unused
from onnxbridge.backends.pytorch.weights import Weights

Args = tuple[Any, ...]


@dataclass
class Layer:
    """A layer that a call was found to be.

    `weights` are by the layer's own names, nodes of weights or of what is computed from weights alone; the one called `turned`
    is held transposed. `kind` and `arguments` make the layer.
    """

    kind: type[nn.Module]
    arguments: Mapping[str, Any]
    inputs: tuple[Any, ...]
    weights: Mapping[str, fx.Node] = field(default_factory=dict)
    turned: str = ""
    replaced: fx.Node | None = None
    """The node whose value the layer computes, where it is not the call itself."""
    plain: Callable[..., Any] | None = None
    """The function of the input and the weights that computes the same, where that is better than what was recorded."""


Finder = Callable[..., Layer | None]
FINDERS: dict[Any, Finder] = {}


def finder(*targets: Any) -> Callable[[Finder], Finder]:
    """Register what recognises calls of these functions. It gets the call's node, then the call's own arguments."""

    def register(function: Finder) -> Finder:
        FINDERS.update(dict.fromkeys(targets, function))
        return function

    return register


def shape(node: Any) -> tuple[int, ...]:
    """The fixed shape of a weight."""
    return tuple(int(n) for n in node.meta["val"].shape)


def rank(node: Any) -> int | None:
    """The rank of a value, None where it is not known."""
    known = getattr(node.meta.get("val"), "ndim", None)
    return None if known is None else int(known)


class Layers:
    """Replaces calls in one graph by layers of `root`."""

    def __init__(self, root: nn.Module, graph: fx.Graph, weights: Weights) -> None:
        self.root = root
        self.graph = graph
        self.weights = weights
        self._made: dict[Hashable, str] = {}
        self._held: dict[Hashable, nn.Parameter] = {}
        for p in root.parameters():
            self._held.setdefault(_memory(p), p)
        self._places: dict[str, list[fx.Node]] = {}
        for node in graph.nodes:
            if node.op.startswith("call") and (scope := place(node)):
                self._places.setdefault(scope, []).append(node)

    def find(self) -> None:
        """Look at every call."""
        for chain in lift_recurrent.chains(self.graph):
            lift_recurrent.replace(self, chain)
        for weighted in (True, False):  # what has weights chooses its place first
            for node in list(self.graph.nodes):
                found = FINDERS.get(node.target) if node.op == "call_function" and node.users else None
                layer = found(node, *node.args, **node.kwargs) if found else None
                if layer is not None and bool(layer.weights) == weighted and self._fits(layer):
                    self._replace(node, layer)
        drop_unused(self.graph)

    def _fits(self, layer: Layer) -> bool:
        """Whether the layer's weights are weights, and its parameters no buffers of the source."""
        named = layer.weights.items()
        fixed = [n for name, n in named if not name.startswith("running_") and self.is_weight(n) for n in self.behind(n)]
        return all(self.is_weight(n) for _, n in named) and not any(n.target in self.weights.fixed for n in fixed)

    def is_weight(self, node: Any) -> bool:
        """Whether a node's value is made of weights alone, at least one of which is trained."""
        return isinstance(node, fx.Node) and self._constant(node)

    def _constant(self, node: fx.Node) -> bool:
        if node.op == "get_attr":
            return isinstance(self.weights.at(node.target), torch.Tensor)
        pure = node.target in _VIEWS
        return pure and bool(node.all_input_nodes) and all(map(self._constant, node.all_input_nodes))

    def value(self, node: fx.Node) -> torch.Tensor:
        """The tensor behind a node of weights alone: the weight itself, or what is computed."""
        if node.op == "get_attr":
            held = self.weights.at(node.target)
            assert isinstance(held, torch.Tensor)
            return held
        args, kwargs = map_arg((node.args, node.kwargs), lambda n: self.value(n).detach())
        made = getattr(args[0], node.target)(*args[1:], **kwargs) if node.op == "call_method" else node.target(*args, **kwargs)
        assert isinstance(made, torch.Tensor)
        return made

    def behind(self, node: fx.Node) -> Iterator[fx.Node]:
        """The weights that a node is computed from."""
        if node.op == "get_attr":
            yield node
        for before in node.all_input_nodes:
            yield from self.behind(before)

    def _replace(self, node: fx.Node, layer: Layer) -> None:
        tensors = {name: self.value(n) for name, n in layer.weights.items()}
        if layer.turned:
            tensors[layer.turned] = tensors[layer.turned].detach().t()
        used = layer.replaced or node
        key = (layer.kind, repr(layer.arguments), tuple(layer.weights.values()) or place(node))
        path = self._made.get(key)
        if path is None:
            path = self._home(node, layer) if layer.weights or self._is_alone(node, layer) else None
            if path is None:
                if layer.plain is not None:
                    self._exchange(used, "call_function", layer.plain, (*layer.inputs, *layer.weights.values()))
                return
            self._made[key] = path
            self.weights.put(path, self.module(layer.kind, layer.arguments, tensors), layer.arguments)
        self._exchange(used, "call_module", path, layer.inputs)

    def _exchange(self, used: fx.Node, kind: str, target: Any, args: tuple[Any, ...]) -> None:
        with self.graph.inserting_before(used):
            made = self.graph.create_node(kind, target, args)
        made.meta.update(used.meta)
        used.replace_all_uses_with(made)

    def module(self, kind: type[nn.Module], arguments: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> nn.Module:
        """A layer that holds these tensors, by the layer's own names."""
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
        """The parameter on this memory: two of the same shape would be trained apart, and disturb each other."""
        if isinstance(tensor, nn.Parameter):
            return tensor
        made = nn.Parameter(tensor.detach(), requires_grad=tensor.is_floating_point())
        return self._held.setdefault(_memory(made), made)

    def _is_alone(self, node: fx.Node, layer: Layer) -> bool:
        """Whether a call without weights is all that its module in the source does: that was an activation layer."""
        scope = place(node)
        same = [n for n in self._places.get(scope, []) if n.users]
        return (
            bool(scope)
            and bool(node.meta["where"].scope)
            and all(n.target == node.target and n.args[1:] == node.args[1:] and n.kwargs == node.kwargs for n in same)
            and not any(other.startswith(f"{scope}.") for other in self._places)
            and self.weights.is_free(scope, ())
        )

    def _home(self, node: fx.Node, layer: Layer) -> str | None:
        """The path for the layer, None where being one would change weights whose names are the source's own."""
        if not layer.weights:
            return place(node)
        named = {name: str(w.target) if w.op == "get_attr" else "" for name, w in layer.weights.items()}
        sources = [n for w in layer.weights.values() for n in self.behind(w)]
        own = [str(n.target) for n in sources]
        shared = any(len(n.users) > 1 for n in sources)
        tied = place(node) if shared and not layer.turned and node.meta["where"].scope else ""
        if tied and self.weights.is_free(tied, ()):
            return tied  # another layer of the source on the same parameter
        fixed = {name: path for name, path in named.items() if path and self.weights.keeps(path)}
        for name, path in named.items():
            scope = _scope(path, name)
            stays = not layer.turned and all(p == f"{scope}.{n}" for n, p in named.items())
            moves = not shared and layer.turned not in fixed and all(p == f"{scope}.{n}" for n, p in fixed.items())
            if scope and (stays or moves) and self.weights.is_free(scope, own):
                return scope
        if shared or any(map(self.weights.keeps, own)):
            return None
        return self.vacant([place(node), own[0].removesuffix(".weight"), layer.kind.__name__.lower()], own)

    def vacant(self, wanted: Sequence[str], own: Sequence[str]) -> str:
        """The first of the wanted paths that is free, otherwise the first with a number."""
        names = [name for name in wanted if name]
        return next((n for n in names if self.weights.is_free(n, own)), None) or self.weights.unused(names[0])


_VIEWS = ("t", "reshape", torch.cat, operator.getitem)


def _scope(path: str, name: str) -> str:
    """The module's path, where the weight's is the layer's own name for it inside that module."""
    scope, _, last = path.rpartition(".")
    return scope if last == name else ""


def _memory(tensor: torch.Tensor) -> Hashable:
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype
