"""Makes modules with a forward of their own of the blocks in a recorded graph; lists of modules are lists again."""

from __future__ import annotations

import keyword
import operator
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx, nn

from onnxbridge.backends.pytorch.modules.graph_module import Network
from onnxbridge.backends.pytorch.modules.partition import Block, Blocks, Path, is_list
from onnxbridge.backends.pytorch.weights import Weights, identifiers
from onnxbridge.errors import Source

_ORDINARY = ("x", "y", "z")
IN_CODE = frozenset({
    "self", "torch", "math", "operator", "getattr", "slice", "inf", "nan", "device", "NoneType", "onnxbridge", "F", "nn", "np",
})  # fmt: skip
"""Names that the code of a graph has for something else than its values."""


class Untold(Exception):
    """A block needs what none of its inputs tells."""


def nest(
    root: Network, graph: fx.Graph, weights: Weights, kinds: Mapping[str, str], named: Mapping[Any, str], unnamed: Any = None
) -> None:
    """Give `root` the graph, and each block in it a module of its own.

    `kinds` are the classes of the source's modules, as far as they are told, by their paths; `named` what sizes are called.

    Raises:
        Untold: if the blocks that were found cannot be written; `root` is not to be used any more then.
    """
    found = Blocks(root, graph, weights, unnamed)
    made = _Nest(root, found, weights, kinds, named)
    made.fill(root, found.whole, graph)
    _leave(root, made.moved)
    _lists(root)


def class_name(path: Path, kinds: Mapping[str, str]) -> str:
    """What the class of a block is called: as its source's, or after its place."""
    told = kinds.get(".".join(path), "")
    if told.isidentifier() and told.isascii():
        return told
    numbered = bool(path) and path[-1].isdigit()
    last = next((part for part in reversed(path) if not part.isdigit()), "block")
    words = [w for w in re.split(r"[\W_]+", re.sub(r"_?\d+$", "", last) or last) if w]
    if numbered and words and len(words[-1]) > 2 and words[-1].endswith("s") and not words[-1].endswith("ss"):
        words[-1] = words[-1][:-1]
    name = "".join(w[:1].upper() + w[1:] for w in words)
    return name if name.isascii() and name.isidentifier() else "Block"


class _Nest:
    def __init__(
        self, root: Network, found: Blocks, weights: Weights, kinds: Mapping[str, str], named: Mapping[Any, str]
    ) -> None:
        self.root = root
        self.named = {key: name for key, name in named.items() if _is_name(name)}
        self.found = found
        self.weights = weights
        self.kinds = kinds
        self.made: set[Path] = set()
        self.moved: set[str] = set()
        self.alike: dict[Path, list[Block]] = {}
        for path, block in found.found.items():
            self.alike.setdefault(_kind(path), []).append(block)

    def make(self, block: Block) -> None:
        """Put a block's module where its weights are."""
        if block.path in self.made:
            return
        self.made.add(block.path)
        holder = self.found.holder(block.path)
        scope, name = self._home(block.path)
        if block.chained:
            made: nn.Module = nn.Sequential()
        else:
            made = Network(nn.Module(), fx.Graph(), class_name(block.path, self.kinds))
        if holder is not None:
            made._modules.update(holder._modules)
            made._parameters.update(holder._parameters)
            made._buffers.update(holder._buffers)
            made._non_persistent_buffers_set |= holder._non_persistent_buffers_set
        scope._modules[name] = made
        if isinstance(made, Network):
            self.fill(made, block)
            return
        for item in block.items:
            if isinstance(item, Block):
                self.make(item)
        within = dict(made._modules)
        made._modules.clear()
        for i in range(max(map(int, within)) + 1):
            if str(i) not in within:
                self.weights.layers[".".join([*block.path, str(i)])] = nn.Identity, {}
            made._modules[str(i)] = within.get(str(i), nn.Identity())

    def given(self, block: Block) -> list[str]:
        """The names of the inputs of the whole that a block and all that are like it take in the same places."""
        alike = [b for b in self.alike.get(_kind(block.path), [block]) if len(b.inputs) == len(block.inputs)]
        names = []
        for values in zip(*(b.inputs for b in alike), strict=True):
            told = {str(v.target) if v.op == "placeholder" else "" for v in values}
            if len(alike) > 1:
                told = {re.sub(r"_\d+$", "", name) for name in told}
            names.append(told.pop() if len(told) == 1 else "")
        floats = [i for i, v in enumerate(block.inputs) if _is_number(v)]
        if len(floats) == 1:
            names[floats[0]] = ""  # what goes through it is called x
        return names

    def _home(self, path: Path) -> tuple[nn.Module, str]:
        module: nn.Module = self.root
        for part in path[:-1]:
            if part not in module._modules:
                module.add_module(part, nn.Module())
            module = module._modules[part]
        return module, path[-1]

    def fill(self, module: Network, block: Block, whole: fx.Graph | None = None) -> None:
        """Give a block's module its graph, and those inside it theirs."""
        module.graph = _Writer(self, module, block, whole).graph  # before there are others in it, which it would compile again
        for item in block.items:
            if isinstance(item, Block):
                self.make(item)


class _Writer:
    """Writes the graph of one block; that of the `whole` has inputs and an output already."""

    def __init__(self, nest: _Nest, module: Network, block: Block, whole: fx.Graph | None) -> None:
        self.sizes = nest.found.sizes
        self.moved = nest.moved
        self.named = nest.named
        self.weights = nest.weights
        self.module = module
        self.block = block
        self.graph = fx.Graph()
        self.env: dict[fx.Node, fx.Node] = {}
        self.dims: dict[Any, tuple[fx.Node, int]] = {}
        self.asked: dict[tuple[fx.Node, int], fx.Node] = {}
        self.first: fx.Node | None = None
        if whole is None:
            names = _parameters(block.inputs, nest.given(block), [self._told(v) for v in block.inputs])
            for value, name in zip(block.inputs, names, strict=True):
                self._keep(value, self.graph.placeholder(name))
        else:
            for node in whole.nodes:
                if node.op == "placeholder":
                    self._keep(node, self.graph.node_copy(node))
        for item in block.items:
            if isinstance(item, Block):
                self._call(item)
            else:
                self._copy(item)
        if whole is None:
            values = [self._value(r) for r in block.results]
            self.graph.output(values[0] if len(values) == 1 else tuple(values))
        else:
            (output,) = [n for n in whole.nodes if n.op == "output"]
            self.graph.output(fx.node.map_arg(output.args[0], self._value))

    def _keep(self, old: fx.Node, new: fx.Node) -> None:
        new.meta.update(old.meta)
        self.env[old] = new
        for key, axis in self.sizes.dims(old):
            self.dims.setdefault(key, (new, axis))

    def _told(self, value: fx.Node) -> str:
        return self.named.get(self.sizes.key(value.meta.get("val")), "size")

    def _copy(self, node: fx.Node) -> None:
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), self._value)
        target = node.target
        if node.op == "call_module":
            target = ".".join(str(target).split(".")[len(self.block.path) :])
        made = self.graph.create_node(node.op, target, args, kwargs, _short(node))
        self._keep(node, made)

    def _call(self, block: Block) -> None:
        args = tuple(self._value(v) for v in block.inputs)
        named = block.path[len(self.block.path) :]
        made = self.graph.create_node("call_module", ".".join(named), args, {}, _label(named))
        where = Source(scope=".".join(block.path))
        if len(block.results) == 1:
            self._keep(block.results[0], made)
            made.meta["where"] = where
            return
        made.meta.update(val=tuple(r.meta["val"] for r in block.results), where=where)
        for i, result in enumerate(block.results):
            self._keep(result, self.graph.create_node("call_function", operator.getitem, (made, i), {}, _short(result)))

    def _value(self, node: fx.Node) -> fx.Node:
        """What stands for a value of the whole graph in this one."""
        if node not in self.env:
            if node.op == "get_attr":
                made = self.graph.get_attr(self._attribute(node))
            else:
                if node not in self.sizes:
                    raise Untold(f"{node} in {'.'.join(self.block.path)}")
                told = self.dims.get(self.sizes.key(node.meta["val"]))
                if node.target is getattr:
                    first = next(n for n in self.env.values() if isinstance(n.meta.get("val"), torch.Tensor))
                    made = self.graph.create_node("call_function", getattr, (first, "device"), {}, "device")
                elif told is not None:
                    made = self.asked.get(told) or self._size(told, node)
                    self.asked[told] = made
                else:
                    args, kwargs = fx.node.map_arg((node.args, node.kwargs), self._value)
                    made = self.graph.create_node(node.op, node.target, args, kwargs, _short(node))
            made.meta.update(node.meta)
            self.env[node] = made
        return self.env[node]

    def _size(self, told: tuple[fx.Node, int], size: fx.Node) -> fx.Node:
        """A size of a value; those of inputs come first, and are called as the source calls them."""
        name = self.named.get(self.sizes.key(size.meta["val"]), "size")
        if told[0].op != "placeholder":
            return self.graph.create_node("call_method", "size", told, {}, name)
        with self.graph.inserting_after(self.first or next(n for n in reversed(self.graph.nodes) if n.op == "placeholder")):
            self.first = self.graph.create_node("call_method", "size", told, {}, name)
        return self.first

    def _attribute(self, node: fx.Node) -> str:
        """The path of a weight inside the block, which takes what is its own alone."""
        path = str(node.target).split(".")
        if tuple(path[: len(self.block.path)]) == self.block.path:
            return ".".join(path[len(self.block.path) :])
        held = self.weights.at(str(node.target))
        self.moved.add(str(node.target))
        [wanted], number = identifiers(re.sub(r"_\d+$", "", path[-1])), 0
        name = wanted
        while hasattr(self.module, name):
            number += 1
            name = f"{wanted}_{number}"
        if isinstance(held, nn.Module):
            self.module.add_module(name, held)
        else:
            self.module.register_buffer(name, held, persistent=False)
        return name


def _short(node: fx.Node) -> str:
    """A name for what a call gives, without numbers that tell it from others in the whole graph."""
    if node.op == "call_module":
        return _label(tuple(str(node.target).split(".")))
    name = re.sub(r"_\d+$", "", node.name)
    return "part" if name == "getitem" else name


def _label(path: Path) -> str:
    last = [p for p in path if not p.isdigit()][-1:] or ["layer"]
    name = re.sub(r"\W", "_", last[0])
    return f"{name}_" if name in IN_CODE else name


def _parameters(values: list[fx.Node], given: list[str], sizes: list[str]) -> list[str]:
    """Names for a block's inputs: those that are `given` for them, or that people give to what is computed."""
    names: list[str] = []
    for value, told, size in zip(values, given, sizes, strict=True):
        known = value.meta.get("val")
        name = told
        if not told and isinstance(known, torch.Tensor):
            ordinary = next((n for n in _ORDINARY if n not in names), "other")
            name = ordinary if _is_number(value) else "mask" if known.dtype == torch.bool else "indices"
        elif not told:
            name = size if isinstance(known, (int, torch.SymInt)) else "value"
        name = name if _is_name(name) else "value"
        made, number = name, 0
        while made in names:
            number += 1
            made = f"{name}_{number}"
        names.append(made)
    return names


def _kind(path: Path) -> Path:
    """What the paths of blocks that are alike have in common."""
    return tuple("*" if part.isdigit() else part for part in path)


def _is_name(name: str) -> bool:
    return name.isidentifier() and name.isascii() and not keyword.iskeyword(name) and name[0] != "_" and name not in IN_CODE


def _is_number(value: fx.Node) -> bool:
    known = value.meta.get("val")
    return isinstance(known, torch.Tensor) and (known.is_floating_point() or known.is_complex())


def _leave(root: nn.Module, moved: set[str]) -> None:
    """Take what blocks have for their own now from where it was, if nothing there uses it, and what holds nothing any more."""
    used = set()
    for path, module in root.named_modules(remove_duplicate=False):
        if isinstance(module, fx.GraphModule):
            used |= {f"{path}.{n.target}".strip(".") for n in module.graph.nodes if n.op == "get_attr"}
    for path in moved - used:
        scopes = path.split(".")[:-1]
        homes = [root]
        for part in scopes:
            homes.append(homes[-1]._modules[part])
        name = path.rpartition(".")[2]
        homes[-1]._modules.pop(name, None)
        homes[-1]._buffers.pop(name, None)
        homes[-1]._non_persistent_buffers_set.discard(name)
        while scopes and type(homes[-1]) is nn.Module and not list(homes[-1].children()) and not list(homes[-1].buffers()):
            if list(homes[-1].parameters()):
                break
            homes.pop()
            del homes[-1]._modules[scopes.pop()]


def _lists(module: nn.Module) -> None:
    """Make lists of what does nothing but hold others in places."""
    for name, child in module._modules.items():
        if child is None:
            continue
        _lists(child)
        if is_list(child):
            within = sorted(child._modules.items(), key=lambda m: int(m[0]))
            whole = [n for n, _ in within] == [str(i) for i in range(len(within))]
            made = nn.ModuleList() if whole else nn.ModuleDict()
            made._modules.update(within)
            module._modules[name] = made
