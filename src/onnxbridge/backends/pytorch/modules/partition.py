"""Partitions the traced graph by source module; each partition becomes a submodule with its own forward.

The calls of one module form a block if they can run contiguously, that is if no call outside depends on one of them and is needed
by another. Other calls stay in the enclosing module. Sizes belong to no block; each block computes the sizes that follow from its
inputs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

import torch
from torch import fx, nn

from onnxbridge.backends.pytorch.modules.graph_module import Network
from onnxbridge.backends.pytorch.modules.module_paths import module_path
from onnxbridge.backends.pytorch.modules.submodule_sizes import Sizes
from onnxbridge.backends.pytorch.weights import Weights

Path = tuple[str, ...]
Item = Union[fx.Node, "Block"]

_MIN_CALLS = 3
"""Blocks of fewer operators that hold no weights are not worth a module."""
_MAX_INDEX_RATIO = 3
"""A list whose indices exceed this multiple of its length is no list: other names may be digits too."""


@dataclass(eq=False)
class Block:
    """The calls of a module, including nested blocks, in a valid execution order.

    `inputs` and `results` are values of the whole graph that enter and leave it. A `chained` block is a list whose elements are
    called in sequence.
    """

    path: Path
    items: list[Item]
    nodes: set[fx.Node]
    needs: set[fx.Node]
    inputs: list[fx.Node] = field(default_factory=list)
    results: list[fx.Node] = field(default_factory=list)
    chained: bool = False
    list_element_only: bool = False
    """Whether it is a block only as an element of a list."""


class Blocks:
    """Finds the blocks of a graph, `found` by their paths; `root_block` is the graph as one block."""

    def __init__(self, root: nn.Module, graph: fx.Graph, weights: Weights, unnamed: Any = None) -> None:
        self.root = root
        self.weights = weights
        self.sizes = Sizes(graph, unnamed)
        self.order = {n: i for i, n in enumerate(graph.nodes)}
        calls = [n for n in graph.nodes if n.op.startswith("call") and n not in self.sizes]
        self._owners = {n: self._owner(n) for n in calls}
        self._assign_unowned(calls)
        scopes = {tuple(p.split(".")) for n in calls if n.meta.get("named_by_module") and (p := module_path(n))}
        self._scopes = {s[:i] for s in scopes for i in range(1, len(s) + 1)}
        self.found: dict[Path, Block] = {}
        items = self._split(calls, ())
        self.root_block = Block((), items, set(calls), set())

    def _owner(self, node: fx.Node) -> Path:
        """The module that a call belongs to; for a layer, the enclosing module."""
        called = node.op == "call_module"
        path = tuple(str(node.target).split("."))[:-1] if called else tuple(p for p in module_path(node).split(".") if p)
        module: Any = self.root
        for i, part in enumerate(path):
            is_tensor = module is not None and (part in module._parameters or part in module._buffers)
            module = module._modules.get(part) if module is not None else None
            if is_tensor or module is not None and type(module) is not nn.Module:
                return path[:i]
        return path

    def _assign_unowned(self, calls: Sequence[fx.Node]) -> None:
        """Assign calls without a module to the innermost module that contains their producers and consumers."""
        unowned = {n for n in calls if n.op != "call_module" and not module_path(n) and not n.meta.get("outside")}
        before: dict[fx.Node, Path | None] = {}
        fixed: set[fx.Node] = set()  # values computed from weights alone belong where they are used
        for node in calls:
            if node in unowned and all(n.op == "get_attr" or n in fixed for n in node.all_input_nodes):
                fixed.add(node)
            producers = [before.get(n) for n in self._needs(node)]
            before[node] = _common_prefix([p for p in producers if p is not None]) if node in unowned else self._owners[node]
        after: dict[fx.Node, Path | None] = {}
        for node in reversed(calls):
            users = [after.get(u, ()) for u in self._used(node)]
            after[node] = _common_prefix([p for p in users if p is not None]) if node in unowned else self._owners[node]
            if node in unowned:
                found = [after[node] or ()] if node in fixed else [before[node] or (), after[node] or ()]
                self._owners[node] = _common_prefix(found) or ()

    def module_at(self, path: Path) -> nn.Module | None:
        """The module at a path."""
        module: nn.Module | None = self.root
        for part in path:
            module = module._modules.get(part) if module is not None else None
        return module

    def _needs(self, item: Item) -> set[fx.Node]:
        """The calls whose values an item depends on."""
        if isinstance(item, Block):
            return item.needs
        found: set[fx.Node] = set()
        for n in item.all_input_nodes:
            found |= self.sizes.roots(n) if n in self.sizes else {n}
        return {n for n in found if n.op.startswith("call")}

    def is_local(self, weight: fx.Node, path: Path, nodes: set[fx.Node]) -> bool:
        """Whether the module at a path owns a weight, or may own a copy of a constant."""
        target = tuple(str(weight.target).split("."))
        if target[: len(path)] == path:
            return True
        stored = self.weights.get(str(weight.target))
        if isinstance(stored, nn.Module):
            return True
        if isinstance(stored, nn.Parameter) or self._is_saved(target):
            return False
        return stored.numel() <= 16 or all(u in nodes for u in weight.users)

    def _is_saved(self, path: Path) -> bool:
        """Whether a buffer is in the `state_dict`."""
        module = self.module_at(path[:-1])
        return module is not None and path[-1] not in module._non_persistent_buffers_set

    def _complete(self, block: Block) -> Block:
        """Set the block's inputs and results."""
        incoming: dict[fx.Node, None] = {}
        sizes: dict[fx.Node, set[fx.Node]] = {}
        available: set[fx.Node] = set()
        for item in block.items:
            item_inputs = item.inputs if isinstance(item, Block) else item.all_input_nodes
            for n in item_inputs:
                if n in self.sizes:
                    sizes.setdefault(n, set(available))  # only values computed before the size can provide it
                elif n not in block.nodes and not (n.op == "get_attr" and self.is_local(n, block.path, block.nodes)):
                    incoming[n] = None
            available.update(item.results if isinstance(item, Block) else (item,))
        block.inputs = sorted(incoming, key=_is_mask)  # data first, masks last
        block.inputs += [s for s, before in sizes.items() if not self.sizes.computable(s, {*incoming, *before})]
        block.needs = {n for item in block.items for n in self._needs(item)} - block.nodes
        ordered = sorted(block.nodes, key=self.order.__getitem__)
        results = [n for n in ordered if any(u not in block.nodes for u in n.users if u not in self.sizes)]
        for node in ordered:
            for user in node.users:
                outside = user in self.sizes and any(u not in block.nodes for u in self.sizes.users(user))
                if outside and not self.sizes.computable(user, {*block.inputs, *results}):
                    key = self.sizes.key(user.meta["val"])
                    providers = [n for n in available if key is not None and key in dict(self.sizes.dims(n))]
                    results.append(node if node in available or not providers else min(providers, key=self.order.__getitem__))
        if len(results) > 1:
            results = [results[-1], *results[:-1]] if results[-1] is ordered[-1] else results
        block.results = list(dict.fromkeys(results))
        return block

    def _split(self, nodes: Sequence[fx.Node], path: Path) -> list[Item]:
        """The calls of one module, with those of each submodule grouped into a block where possible."""
        items: list[Item] = list(nodes)
        groups: dict[str, list[fx.Node]] = {}
        for node in nodes:
            owner = self._owners[node]
            if owner[: len(path)] == path and len(owner) > len(path):
                groups.setdefault(owner[len(path)], []).append(node)
        for name, group in groups.items():
            for part in self._calls(group):
                inner = self._split(part, (*path, name))
                is_whole_graph = len(part) == len(nodes) and not path
                made = self._block(inner, (*path, name), is_whole_graph)
                items = self._insert(items, Block((*path, name), inner, set(part), set()) if made is None else made, made is None)
        return items

    def _insert(self, items: list[Item], block: Block, dissolved: bool = False) -> list[Item]:
        """The items with a block in place of its calls, or with its nested blocks if it cannot be one."""
        found = None if dissolved else self._contracted(items, block)
        if found is not None:
            known = self.found.setdefault(block.path, block)
            if known is block or self.same(known, block):
                return found
        elif self.found.get(block.path) is block:
            del self.found[block.path]
        for inner in block.items:
            if isinstance(inner, Block) and not (inner.list_element_only and self._forget(inner)):
                items = self._insert(items, inner)
        return items

    def _forget(self, block: Block) -> bool:
        if self.found.get(block.path) is block:
            del self.found[block.path]
        return True

    def _contracted(self, items: list[Item], block: Block) -> list[Item] | None:
        """The items with the block as one of them; None if a result of the block reaches it again through calls outside."""
        inside = [not isinstance(i, Block) and i in block.nodes or isinstance(i, Block) and i.nodes <= block.nodes for i in items]
        first, last = inside.index(True), len(items) - 1 - inside[::-1].index(True)
        before: list[Item] = []
        after: list[Item] = []
        dependent = set(block.nodes)
        outside_dependent: set[fx.Node] = set()
        for item, inside_block in zip(items[first : last + 1], inside[first : last + 1], strict=True):
            needs = self._needs(item)
            if inside_block:
                if not outside_dependent.isdisjoint(needs):
                    return None
            elif dependent.isdisjoint(needs):
                before.append(item)
            else:
                after.append(item)
                made = item.nodes if isinstance(item, Block) else {item}
                dependent |= made
                outside_dependent |= made
        return [*items[:first], *before, block, *after, *items[last + 1 :]]

    @staticmethod
    def _calls(group: list[fx.Node]) -> list[list[fx.Node]]:
        """The calls of a module that is called several times, split by invocation if these are identical."""
        counts = Counter(str(n.target) for n in group if n.op == "call_module")
        times = min(counts.values(), default=1)
        length, rest = divmod(len(group), times)
        parts = [group[i : i + length] for i in range(0, len(group), length)]
        equal = not rest and all([(n.op, n.target) for n in p] == [(n.op, n.target) for n in parts[0]] for p in parts)
        return parts if equal else [group]

    def _block(self, items: list[Item], path: Path, is_whole_graph: bool) -> Block | None:
        module = self.module_at(path)
        nodes = {n for i in items for n in (i.nodes if isinstance(i, Block) else (i,))}
        made = Block(path, items, nodes, set())
        if module is not None and type(module) is not nn.Module:
            return None
        if is_list(module):
            return self._as_chain(made)
        parent = self.module_at(path[:-1])
        member_names = [path[-1]] if module is None else [*module._modules, *module._parameters, *module._buffers]
        if not RESERVED.isdisjoint(member_names) or module is None and not RESERVED.isdisjoint(path):
            return None
        if path not in self._scopes:
            # the path comes from a name only: a module if it holds several calls
            holds_several = sum(isinstance(i, Block) or i.op == "call_module" for i in items) > 1
            if module is None or not holds_several:
                return None
        if module is None:
            made.list_element_only = len(nodes) < _MIN_CALLS
            in_list = is_list(parent) and _is_index(path[-1])
            if is_whole_graph or (made.list_element_only and not in_list) or parent is not None and _is_tensor(parent, path[-1]):
                return None
        self._move_out(made)
        self._complete(made)
        return made if made.results and made.items else None

    def _move_out(self, block: Block) -> None:
        """Move to the enclosing module what it needs too and what uses no trained weights: masks, positions."""
        without_weights: set[fx.Node] = set()
        for item in block.items:
            if not isinstance(item, Block) and item.op != "call_module":
                trained = any(n.op == "get_attr" and self._is_trained(n) for n in item.all_input_nodes)
                if not trained and (self._needs(item) & block.nodes) <= without_weights:
                    without_weights.add(item)
        results = [n for n in block.nodes if any(u not in block.nodes for u in self._used(n))]
        shared = [n for n in results if n in without_weights]
        if not shared or len(shared) == len(results):
            return
        moved: set[fx.Node] = set()
        while shared:
            node = shared.pop()
            if node not in moved:
                moved.add(node)
                shared += self._needs(node) & block.nodes
        block.items = [i for i in block.items if isinstance(i, Block) or i not in moved]
        block.nodes -= moved

    def _used(self, node: fx.Node) -> Iterator[fx.Node]:
        for user in node.users:
            if user not in self.sizes:
                yield user

    def _is_trained(self, node: fx.Node) -> bool:
        return isinstance(self.weights.get(str(node.target)), nn.Parameter)

    def _as_chain(self, block: Block) -> Block | None:
        """The list as a sequence, if each element takes only the result of the previous one, which nothing else uses."""
        indices = [self._element(item, block.path) for item in block.items]
        module = self.module_at(block.path)
        assert module is not None
        increasing = all(p is not None for p in indices) and indices == sorted({p for p in indices if p is not None})
        if not increasing or not {int(n) for n in module._modules} <= set(indices):
            return None
        self._complete(block)
        before: fx.Node | None = None
        for item in block.items:
            item_inputs = item.inputs if isinstance(item, Block) else list(item.args)
            results = item.results if isinstance(item, Block) else [item]
            positional = isinstance(item, Block) or not item.kwargs
            if not positional or len(item_inputs) != 1 or len(results) != 1 or not isinstance(item_inputs[0], fx.Node):
                return None
            if before is not None and (item_inputs[0] is not before or before in block.results):
                return None
            before = results[0]
        block.chained = True
        return block if block.inputs and block.results == [before] and len(block.inputs) == 1 else None

    @staticmethod
    def _element(item: Item, path: Path) -> int | None:
        at = item.path if isinstance(item, Block) else tuple(str(item.target).split(".")) if item.op == "call_module" else ()
        return int(at[-1]) if at[:-1] == path and _is_index(at[-1]) else None

    def same(self, a: Block, b: Block) -> bool:
        """Whether two blocks of the same path compute the same from their inputs, so that one module serves both."""
        if len(a.items) != len(b.items) or len(a.inputs) != len(b.inputs) or a.chained != b.chained:
            return False
        pairs = dict(zip(a.inputs, b.inputs, strict=True))

        def equal(x: Any, y: Any) -> bool:
            if isinstance(x, fx.Node) and isinstance(y, fx.Node):
                if x in pairs or x.op == "get_attr":
                    return pairs.get(x, x) is y
                both = x in self.sizes and y in self.sizes and (x.op, x.target) == (y.op, y.target)
                return both and equal(x.args, y.args)
            if isinstance(x, (tuple, list)):
                return type(x) is type(y) and len(x) == len(y) and all(map(equal, x, y))
            if isinstance(x, dict):
                return isinstance(y, dict) and x.keys() == y.keys() and all(equal(v, y[k]) for k, v in x.items())
            if isinstance(x, slice):
                return isinstance(y, slice) and equal((x.start, x.stop, x.step), (y.start, y.stop, y.step))
            return type(x) is type(y) and bool(x == y)

        for x, y in zip(a.items, b.items, strict=True):
            if isinstance(x, Block) or isinstance(y, Block):
                if not isinstance(x, Block) or not isinstance(y, Block) or x.path != y.path:
                    return False
                if not equal(x.inputs, y.inputs) or len(x.results) != len(y.results) or not self.same(x, y):
                    return False
                pairs.update(zip(x.results, y.results, strict=True))
            elif (x.op, x.target) != (y.op, y.target) or not equal((x.args, x.kwargs), (y.args, y.kwargs)):
                return False
            else:
                pairs[x] = y
        return [pairs.get(r, r) for r in a.results] == b.results


RESERVED = frozenset(dir(Network(nn.Module(), fx.Graph())))
"""Attribute names of a module with a graph, which no submodule may have."""


def _common_prefix(paths: Sequence[Path]) -> Path | None:
    """The longest common prefix of the paths; None if there are none."""
    if not paths:
        return None
    first, *rest = paths
    length = 0
    while all(p[: length + 1] == first[: length + 1] for p in rest) and length < len(first):
        length += 1
    return first[:length]


def is_list(module: nn.Module | None) -> bool:
    """Whether a module only holds others under consecutive indices."""
    if module is None or type(module) is not nn.Module or module._parameters or module._buffers:
        return False
    names = list(module._modules)
    return bool(names) and all(map(_is_index, names)) and max(map(int, names)) < _MAX_INDEX_RATIO * len(names)


def _is_index(name: str) -> bool:
    return name.isascii() and name.isdigit() and str(int(name)) == name


def _is_mask(value: fx.Node) -> bool:
    known = value.meta.get("val")
    return isinstance(known, torch.Tensor) and known.dtype == torch.bool


def _is_tensor(module: nn.Module, name: str) -> bool:
    return name in module._parameters or name in module._buffers
