"""Builds a module with its own forward from each block of a traced graph, and restores lists of modules."""

from __future__ import annotations

import keyword
import operator
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import fx, nn

from onnxbridge.backends.pytorch.modules.graph_module import Network
from onnxbridge.backends.pytorch.modules.partition import Block, Blocks, Path, is_list
from onnxbridge.backends.pytorch.weights import Weights, identifiers
from onnxbridge.errors import SourceLocation
from onnxbridge.hub.ir.unique_name import free_name

_CONVENTIONAL = ("x", "y", "z")
RESERVED_IN_CODE = frozenset({
    "self", "torch", "math", "operator", "getattr", "slice", "inf", "nan", "device", "NoneType", "onnxbridge", "F", "nn", "np",
})  # fmt: skip
"""Names that generated code uses for something other than a graph's values."""


class MissingValue(Exception):
    """A block needs a value that none of its inputs provides."""


def build_submodules(
    root: Network,
    graph: fx.Graph,
    weights: Weights,
    class_names: Mapping[str, str],
    size_names: Mapping[Any, str],
    unnamed: Any = None,
) -> None:
    """Give `root` the graph, and each block in it a module of its own.

    `class_names` are the known class names of the source's modules by path; `size_names` the names of symbolic sizes.

    Raises:
        MissingValue: if the blocks cannot be built; `root` must not be used then.
    """
    found = Blocks(root, graph, weights, unnamed)
    made = _Builder(root, found, weights, class_names, size_names)
    made.fill(root, found.root_block, graph)
    _remove_moved(root, made.moved)
    _restore_lists(root)


def class_name(path: Path, class_names: Mapping[str, str]) -> str:
    """The class name of a block: that of the source's class, or one derived from its path."""
    known = class_names.get(".".join(path), "")
    if known.isidentifier() and known.isascii():
        return known
    numbered = bool(path) and path[-1].isdigit()
    last = next((part for part in reversed(path) if not part.isdigit()), "block")
    words = [w for w in re.split(r"[\W_]+", re.sub(r"_?\d+$", "", last) or last) if w]
    if numbered and words and len(words[-1]) > 2 and words[-1].endswith("s") and not words[-1].endswith("ss"):
        words[-1] = words[-1][:-1]
    name = "".join(w[:1].upper() + w[1:] for w in words)
    return name if name.isascii() and name.isidentifier() else "Block"


class _Builder:
    def __init__(
        self, root: Network, found: Blocks, weights: Weights, class_names: Mapping[str, str], size_names: Mapping[Any, str]
    ) -> None:
        self.root = root
        self.size_names = {key: name for key, name in size_names.items() if _is_name(name)}
        self.found = found
        self.weights = weights
        self.class_names = class_names
        self.made: set[Path] = set()
        self.moved: set[str] = set()
        self.similar: dict[Path, list[Block]] = {}
        for path, block in found.found.items():
            self.similar.setdefault(_pattern(path), []).append(block)

    def make(self, block: Block) -> None:
        """Create a block's module where its weights are."""
        if block.path in self.made:
            return
        self.made.add(block.path)
        module = self.found.module_at(block.path)
        scope, name = self._parent(block.path)
        if block.chained:
            made: nn.Module = nn.Sequential()
        else:
            made = Network(nn.Module(), fx.Graph(), class_name(block.path, self.class_names))
        if module is not None:
            made._modules.update(module._modules)
            made._parameters.update(module._parameters)
            made._buffers.update(module._buffers)
            made._non_persistent_buffers_set |= module._non_persistent_buffers_set
        scope._modules[name] = made
        if isinstance(made, Network):
            self.fill(made, block)
            return
        for item in block.items:
            if isinstance(item, Block):
                self.make(item)
        children = dict(made._modules)
        made._modules.clear()
        for i in range(max(map(int, children)) + 1):
            if str(i) not in children:
                self.weights.layers[".".join([*block.path, str(i)])] = nn.Identity, {}
            made._modules[str(i)] = children.get(str(i), nn.Identity())

    def input_names(self, block: Block) -> list[str]:
        """The names of graph inputs that all blocks similar to a block take at the same positions."""
        similar = [b for b in self.similar.get(_pattern(block.path), [block]) if len(b.inputs) == len(block.inputs)]
        names = []
        for values in zip(*(b.inputs for b in similar), strict=True):
            candidates = {str(v.target) if v.op == "placeholder" else "" for v in values}
            if len(similar) > 1:
                candidates = {re.sub(r"_\d+$", "", name) for name in candidates}
            names.append(candidates.pop() if len(candidates) == 1 else "")
        floats = [i for i, v in enumerate(block.inputs) if _is_number(v)]
        if len(floats) == 1:
            names[floats[0]] = ""  # the main input is called x
        return names

    def _parent(self, path: Path) -> tuple[nn.Module, str]:
        module: nn.Module = self.root
        for part in path[:-1]:
            if part not in module._modules:
                module.add_module(part, nn.Module())
            module = module._modules[part]
        return module, path[-1]

    def fill(self, module: Network, block: Block, root_graph: fx.Graph | None = None) -> None:
        """Build the graph of a block's module, and those of its submodules."""
        module.graph = _Writer(self, module, block, root_graph).graph  # before submodules are added, which it would recompile
        for item in block.items:
            if isinstance(item, Block):
                self.make(item)


class _Writer:
    """Writes the graph of one block; that of the root block already has inputs and an output."""

    def __init__(self, builder: _Builder, module: Network, block: Block, root_graph: fx.Graph | None) -> None:
        self.sizes = builder.found.sizes
        self.moved = builder.moved
        self.size_names = builder.size_names
        self.weights = builder.weights
        self.module = module
        self.block = block
        self.graph = fx.Graph()
        self.env: dict[fx.Node, fx.Node] = {}
        self.dims: dict[Any, tuple[fx.Node, int]] = {}
        self.size_nodes: dict[tuple[fx.Node, int], fx.Node] = {}
        self.first: fx.Node | None = None
        if root_graph is None:
            names = _parameters(block.inputs, builder.input_names(block), [self._size_name(v) for v in block.inputs])
            for value, name in zip(block.inputs, names, strict=True):
                self._define(value, self.graph.placeholder(name))
        else:
            for node in root_graph.nodes:
                if node.op == "placeholder":
                    self._define(node, self.graph.node_copy(node))
        for item in block.items:
            if isinstance(item, Block):
                self._call(item)
            else:
                self._copy(item)
        if root_graph is None:
            values = [self._value(r) for r in block.results]
            self.graph.output(values[0] if len(values) == 1 else tuple(values))
        else:
            (output,) = [n for n in root_graph.nodes if n.op == "output"]
            self.graph.output(fx.node.map_arg(output.args[0], self._value))

    def _define(self, old: fx.Node, new: fx.Node) -> None:
        new.meta.update(old.meta)
        self.env[old] = new
        for key, axis in self.sizes.dims(old):
            self.dims.setdefault(key, (new, axis))

    def _size_name(self, value: fx.Node) -> str:
        return self.size_names.get(self.sizes.key(value.meta.get("val")), "size")

    def _copy(self, node: fx.Node) -> None:
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), self._value)
        target = node.target
        if node.op == "call_module":
            target = ".".join(str(target).split(".")[len(self.block.path) :])
        made = self.graph.create_node(node.op, target, args, kwargs, _short_name(node))
        self._define(node, made)

    def _call(self, block: Block) -> None:
        args = tuple(self._value(v) for v in block.inputs)
        size_names = block.path[len(self.block.path) :]
        made = self.graph.create_node("call_module", ".".join(size_names), args, {}, _label(size_names))
        where = SourceLocation(scope=".".join(block.path))
        if len(block.results) == 1:
            self._define(block.results[0], made)
            made.meta["where"] = where
            return
        made.meta.update(val=tuple(r.meta["val"] for r in block.results), where=where)
        for i, result in enumerate(block.results):
            self._define(result, self.graph.create_node("call_function", operator.getitem, (made, i), {}, _short_name(result)))

    def _value(self, node: fx.Node) -> fx.Node:
        """The node in this graph for a value of the whole graph."""
        if node not in self.env:
            if node.op == "get_attr":
                made = self.graph.get_attr(self._attribute(node))
            else:
                if node not in self.sizes:
                    raise MissingValue(f"{node} in {'.'.join(self.block.path)}")
                source = self.dims.get(self.sizes.key(node.meta["val"]))
                if node.target is getattr:
                    known = (n for n in self.env.values() if isinstance(n.meta.get("val"), torch.Tensor))
                    first = next(known, None) or self._value(node.args[0])
                    made = self.graph.create_node("call_function", getattr, (first, "device"), {}, "device")
                elif source is not None:
                    made = self.size_nodes.get(source) or self._size(source, node)
                    self.size_nodes[source] = made
                else:
                    args, kwargs = fx.node.map_arg((node.args, node.kwargs), self._value)
                    made = self.graph.create_node(node.op, node.target, args, kwargs, _short_name(node))
            made.meta.update(node.meta)
            self.env[node] = made
        return self.env[node]

    def _size(self, source: tuple[fx.Node, int], size: fx.Node) -> fx.Node:
        """The size of a value. Sizes of inputs come first, and have the source's dimension names."""
        name = self.size_names.get(self.sizes.key(size.meta["val"]), "size")
        if source[0].op != "placeholder":
            return self.graph.create_node("call_method", "size", source, {}, name)
        with self.graph.inserting_after(self.first or next(n for n in reversed(self.graph.nodes) if n.op == "placeholder")):
            self.first = self.graph.create_node("call_method", "size", source, {}, name)
        return self.first

    def _attribute(self, node: fx.Node) -> str:
        """The path of a weight inside the block; weights used by this block only are moved into it."""
        path = str(node.target).split(".")
        if tuple(path[: len(self.block.path)]) == self.block.path:
            return ".".join(path[len(self.block.path) :])
        stored = self.weights.get(str(node.target))
        self.moved.add(str(node.target))
        [preferred] = identifiers(re.sub(r"_\d+$", "", path[-1]))
        name = free_name(preferred, partial(hasattr, self.module))
        if isinstance(stored, nn.Module):
            self.module.add_module(name, stored)
        else:
            self.module.register_buffer(name, stored, persistent=False)
        return name


def _short_name(node: fx.Node) -> str:
    """A name for a call's result, without the number that made it unique in the whole graph."""
    if node.op == "call_module":
        return _label(tuple(str(node.target).split(".")))
    name = re.sub(r"_\d+$", "", node.name)
    return "part" if name == "getitem" else name


def _label(path: Path) -> str:
    last = [p for p in path if not p.isdigit()][-1:] or ["layer"]
    name = re.sub(r"\W", "_", last[0])
    return f"{name}_" if name in RESERVED_IN_CODE else name


def _parameters(values: list[fx.Node], input_names: list[str], sizes: list[str]) -> list[str]:
    """Names for a block's inputs: the `input_names` ones, or conventional ones."""
    names: list[str] = []
    for value, input_name, size in zip(values, input_names, sizes, strict=True):
        known = value.meta.get("val")
        name = input_name
        if not input_name and isinstance(known, torch.Tensor):
            conventional = next((n for n in _CONVENTIONAL if n not in names), "other")
            name = conventional if _is_number(value) else "mask" if known.dtype == torch.bool else "indices"
        elif not input_name:
            name = size if isinstance(known, (int, torch.SymInt)) else "value"
        name = name if _is_name(name) else "value"
        names.append(free_name(name, names.__contains__))
    return names


def _pattern(path: Path) -> Path:
    """The part of a path that similar blocks have in common."""
    return tuple("*" if part.isdigit() else part for part in path)


def _is_name(name: str) -> bool:
    return (
        name.isidentifier() and name.isascii() and not keyword.iskeyword(name) and name[0] != "_" and name not in RESERVED_IN_CODE
    )


def _is_number(value: fx.Node) -> bool:
    known = value.meta.get("val")
    return isinstance(known, torch.Tensor) and (known.is_floating_point() or known.is_complex())


def _remove_moved(root: nn.Module, moved: set[str]) -> None:
    """Remove the weights that moved into blocks from their old modules, and modules left empty."""
    used = set()
    for path, module in root.named_modules(remove_duplicate=False):
        if isinstance(module, fx.GraphModule):
            used |= {f"{path}.{n.target}".strip(".") for n in module.graph.nodes if n.op == "get_attr"}
    for path in moved - used:
        parts = path.split(".")[:-1]
        parents = [root]
        for part in parts:
            parents.append(parents[-1]._modules[part])
        name = path.rpartition(".")[2]
        parents[-1]._modules.pop(name, None)
        parents[-1]._buffers.pop(name, None)
        parents[-1]._non_persistent_buffers_set.discard(name)
        while parts and type(parents[-1]) is nn.Module and not list(parents[-1].children()) and not list(parents[-1].buffers()):
            if list(parents[-1].parameters()):
                break
            parents.pop()
            del parents[-1]._modules[parts.pop()]


def _restore_lists(module: nn.Module) -> None:
    """Make ModuleLists of modules that only hold others under indices."""
    for name, child in module._modules.items():
        if child is None:
            continue
        _restore_lists(child)
        if is_list(child):
            children = sorted(child._modules.items(), key=lambda m: int(m[0]))
            consecutive = [n for n, _ in children] == [str(i) for i in range(len(children))]
            made = nn.ModuleList() if consecutive else nn.ModuleDict()
            made._modules.update(children)
            module._modules[name] = made
