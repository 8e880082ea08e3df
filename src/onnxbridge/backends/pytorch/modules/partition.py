"""Finds the blocks in what was recorded: the modules of the source, each of which becomes one with a forward of its own.

The calls of one module are a block where they can be made at once: where nothing outside them lies between two of them. What is
not so stays in the module around it. Sizes belong to no block; each computes those that its own inputs tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

import torch
from torch import fx, nn

from onnxbridge.backends.pytorch.modules.graph_module import Network
from onnxbridge.backends.pytorch.modules.module_paths import place
from onnxbridge.backends.pytorch.modules.submodule_sizes import Sizes
from onnxbridge.backends.pytorch.weights import Weights

Path = tuple[str, ...]
Item = Union[fx.Node, "Block"]

_FEW = 3
"""Calls of fewer operators, without weights of their own, are no module that a person would write."""
_GAPS = 3
"""A list with more places than so many times its layers is no sequence: names of another kind are numbers too."""


@dataclass(eq=False)
class Block:
    """The calls of a module, the blocks inside it among them, in an order that runs.

    `inputs` and `results` are values of the whole graph: what it takes from around it, and gives to that. A `chained` one is a
    list whose elements are called one behind the other.
    """

    path: Path
    items: list[Item]
    nodes: set[fx.Node]
    needs: set[fx.Node]
    inputs: list[fx.Node] = field(default_factory=list)
    results: list[fx.Node] = field(default_factory=list)
    chained: bool = False
    slight: bool = False
    """Whether it is one only for the list that it is an element of."""


class Blocks:
    """Finds the blocks of one graph, `found` by their paths; `whole` is the graph itself as one."""

    def __init__(self, root: nn.Module, graph: fx.Graph, weights: Weights, unnamed: Any = None) -> None:
        self.root = root
        self.weights = weights
        self.sizes = Sizes(graph, unnamed)
        self.order = {n: i for i, n in enumerate(graph.nodes)}
        calls = [n for n in graph.nodes if n.op.startswith("call") and n not in self.sizes]
        self._owners = {n: self._owner(n) for n in calls}
        self._adopt(calls)
        scopes = {tuple(p.split(".")) for n in calls if n.meta.get("told") and (p := place(n))}
        self._scopes = {s[:i] for s in scopes for i in range(1, len(s) + 1)}
        self.found: dict[Path, Block] = {}
        items = self._split(calls, ())
        self.whole = Block((), items, set(calls), set())

    def _owner(self, node: fx.Node) -> Path:
        """The module that calls: of a layer the one that it is in."""
        called = node.op == "call_module"
        path = tuple(str(node.target).split("."))[:-1] if called else tuple(p for p in place(node).split(".") if p)
        module: Any = self.root
        for i, part in enumerate(path):
            held = module is not None and (part in module._parameters or part in module._buffers)
            module = module._modules.get(part) if module is not None else None
            if held or module is not None and type(module) is not nn.Module:
                return path[:i]
        return path

    def _adopt(self, calls: Sequence[fx.Node]) -> None:
        """Take calls of which nothing tells the module for those of the innermost that has what is before and behind them."""
        lost = {n for n in calls if n.op != "call_module" and not place(n) and not n.meta.get("outside")}
        before: dict[fx.Node, Path | None] = {}
        fixed: set[fx.Node] = set()  # what is computed from weights alone is where it is used
        for node in calls:
            if node in lost and all(n.op == "get_attr" or n in fixed for n in node.all_input_nodes):
                fixed.add(node)
            around = [before.get(n) for n in self._needs(node)]
            before[node] = _common([p for p in around if p is not None]) if node in lost else self._owners[node]
        behind: dict[fx.Node, Path | None] = {}
        for node in reversed(calls):
            users = [behind.get(u, ()) for u in self._used(node)]
            behind[node] = _common([p for p in users if p is not None]) if node in lost else self._owners[node]
            if node in lost:
                found = [behind[node] or ()] if node in fixed else [before[node] or (), behind[node] or ()]
                self._owners[node] = _common(found) or ()

    def holder(self, path: Path) -> nn.Module | None:
        """What is at a path."""
        module: nn.Module | None = self.root
        for part in path:
            module = module._modules.get(part) if module is not None else None
        return module

    # what calls need

    def _needs(self, item: Item) -> set[fx.Node]:
        """The calls' values that an item comes after."""
        if isinstance(item, Block):
            return item.needs
        found: set[fx.Node] = set()
        for n in item.all_input_nodes:
            found |= self.sizes.roots(n) if n in self.sizes else {n}
        return {n for n in found if n.op.startswith("call")}

    def is_local(self, weight: fx.Node, path: Path, nodes: set[fx.Node]) -> bool:
        """Whether a module at a path has a weight, or may have a constant for its own."""
        target = tuple(str(weight.target).split("."))
        if target[: len(path)] == path:
            return True
        held = self.weights.at(str(weight.target))
        if isinstance(held, nn.Module):
            return True
        if isinstance(held, nn.Parameter) or self._is_saved(target):
            return False
        return held.numel() <= 16 or all(u in nodes for u in weight.users)

    def _is_saved(self, path: Path) -> bool:
        """Whether a `state_dict` has a buffer."""
        holder = self.holder(path[:-1])
        return holder is not None and path[-1] not in holder._non_persistent_buffers_set

    def _complete(self, block: Block) -> Block:
        """The block with its inputs and results."""
        taken: dict[fx.Node, None] = {}
        sizes: dict[fx.Node, set[fx.Node]] = {}
        shown: set[fx.Node] = set()
        for item in block.items:
            given = item.inputs if isinstance(item, Block) else item.all_input_nodes
            for n in given:
                if n in self.sizes:
                    sizes.setdefault(n, set(shown))  # what is made of a size tells it too late
                elif n not in block.nodes and not (n.op == "get_attr" and self.is_local(n, block.path, block.nodes)):
                    taken[n] = None
            shown.update(item.results if isinstance(item, Block) else (item,))
        block.inputs = sorted(taken, key=_is_choice)  # masks and the like behind what is computed with
        block.inputs += [s for s, before in sizes.items() if not self.sizes.told(s, {*taken, *before})]
        block.needs = {n for item in block.items for n in self._needs(item)} - block.nodes
        ordered = sorted(block.nodes, key=self.order.__getitem__)
        results = [n for n in ordered if any(u not in block.nodes for u in n.users if u not in self.sizes)]
        for node in ordered:
            for user in node.users:
                outside = user in self.sizes and any(u not in block.nodes for u in self.sizes.users(user))
                if outside and not self.sizes.told(user, {*block.inputs, *results}):
                    key = self.sizes.key(user.meta["val"])
                    tells = [n for n in shown if key is not None and key in dict(self.sizes.dims(n))]
                    results.append(node if node in shown or not tells else min(tells, key=self.order.__getitem__))
        if len(results) > 1:
            results = [results[-1], *results[:-1]] if results[-1] is ordered[-1] else results
        block.results = list(dict.fromkeys(results))
        return block

    # where blocks are

    def _split(self, nodes: Sequence[fx.Node], path: Path) -> list[Item]:
        """The calls of one module with those of each module in it as a block, where that is one."""
        items: list[Item] = list(nodes)
        groups: dict[str, list[fx.Node]] = {}
        for node in nodes:
            owner = self._owners[node]
            if owner[: len(path)] == path and len(owner) > len(path):
                groups.setdefault(owner[len(path)], []).append(node)
        for name, group in groups.items():
            for part in self._calls(group):
                inner = self._split(part, (*path, name))
                whole = len(part) == len(nodes) and not path
                made = self._block(inner, (*path, name), whole)
                items = self._put(items, Block((*path, name), inner, set(part), set()) if made is None else made, made is None)
        return items

    def _put(self, items: list[Item], block: Block, dissolved: bool = False) -> list[Item]:
        """The items with a block in the place of its calls, or with those inside it, where it is none."""
        found = None if dissolved else self._contracted(items, block)
        if found is not None:
            known = self.found.setdefault(block.path, block)
            if known is block or self.same(known, block):
                return found
        elif self.found.get(block.path) is block:
            del self.found[block.path]
        for inner in block.items:
            if isinstance(inner, Block) and not (inner.slight and self._forget(inner)):
                items = self._put(items, inner)
        return items

    def _forget(self, block: Block) -> bool:
        if self.found.get(block.path) is block:
            del self.found[block.path]
        return True

    def _contracted(self, items: list[Item], block: Block) -> list[Item] | None:
        """The items with the block as one of them, None where what it gives comes back into it on a way around."""
        inside = [not isinstance(i, Block) and i in block.nodes or isinstance(i, Block) and i.nodes <= block.nodes for i in items]
        first, last = inside.index(True), len(items) - 1 - inside[::-1].index(True)
        before: list[Item] = []
        after: list[Item] = []
        given = set(block.nodes)
        around: set[fx.Node] = set()
        for item, within in zip(items[first : last + 1], inside[first : last + 1], strict=True):
            needs = self._needs(item)
            if within:
                if not around.isdisjoint(needs):
                    return None
            elif given.isdisjoint(needs):
                before.append(item)
            else:
                after.append(item)
                made = item.nodes if isinstance(item, Block) else {item}
                given |= made
                around |= made
        return [*items[:first], *before, block, *after, *items[last + 1 :]]

    @staticmethod
    def _calls(group: list[fx.Node]) -> list[list[fx.Node]]:
        """The calls of a module that is called several times, each by itself where they are alike."""
        counts = Counter(str(n.target) for n in group if n.op == "call_module")
        times = min(counts.values(), default=1)
        length, rest = divmod(len(group), times)
        parts = [group[i : i + length] for i in range(0, len(group), length)]
        alike = not rest and all([(n.op, n.target) for n in p] == [(n.op, n.target) for n in parts[0]] for p in parts)
        return parts if alike else [group]

    def _block(self, items: list[Item], path: Path, whole: bool) -> Block | None:
        holder = self.holder(path)
        nodes = {n for i in items for n in (i.nodes if isinstance(i, Block) else (i,))}
        made = Block(path, items, nodes, set())
        if holder is not None and type(holder) is not nn.Module:
            return None
        if is_list(holder):
            return self._chained(made)
        above = self.holder(path[:-1])
        within = [path[-1]] if holder is None else [*holder._modules, *holder._parameters, *holder._buffers]
        if not RESERVED.isdisjoint(within) or holder is None and not RESERVED.isdisjoint(path):
            return None
        if path not in self._scopes:
            # a name with dots or strokes alone: a module where it has several
            several = sum(isinstance(i, Block) or i.op == "call_module" for i in items) > 1
            if holder is None or not several:
                return None
        if holder is None:
            made.slight = len(nodes) < _FEW
            in_list = is_list(above) and _is_place(path[-1])
            if whole or (made.slight and not in_list) or above is not None and _is_tensor(above, path[-1]):
                return None
        self._lift(made)
        self._complete(made)
        return made if made.results and made.items else None

    def _lift(self, block: Block) -> None:
        """Leave to the module around it what others need too, and what needs no weights: masks, positions."""
        light: set[fx.Node] = set()
        for item in block.items:
            if not isinstance(item, Block) and item.op != "call_module":
                trained = any(n.op == "get_attr" and self._is_trained(n) for n in item.all_input_nodes)
                if not trained and (self._needs(item) & block.nodes) <= light:
                    light.add(item)
        results = [n for n in block.nodes if any(u not in block.nodes for u in self._used(n))]
        shared = [n for n in results if n in light]
        if not shared or len(shared) == len(results):
            return
        lifted: set[fx.Node] = set()
        while shared:
            node = shared.pop()
            if node not in lifted:
                lifted.add(node)
                shared += self._needs(node) & block.nodes
        block.items = [i for i in block.items if isinstance(i, Block) or i not in lifted]
        block.nodes -= lifted

    def _used(self, node: fx.Node) -> Iterator[fx.Node]:
        for user in node.users:
            if user not in self.sizes:
                yield user

    def _is_trained(self, node: fx.Node) -> bool:
        return isinstance(self.weights.at(str(node.target)), nn.Parameter)

    def _chained(self, block: Block) -> Block | None:
        """The list as a sequence, where each element takes what the one before gives, which nobody else does."""
        places = [self._element(item, block.path) for item in block.items]
        holder = self.holder(block.path)
        assert holder is not None
        rising = all(p is not None for p in places) and places == sorted({p for p in places if p is not None})
        if not rising or not {int(n) for n in holder._modules} <= set(places):
            return None
        self._complete(block)
        before: fx.Node | None = None
        for item in block.items:
            given = item.inputs if isinstance(item, Block) else list(item.args)
            results = item.results if isinstance(item, Block) else [item]
            plain = isinstance(item, Block) or not item.kwargs
            if not plain or len(given) != 1 or len(results) != 1 or not isinstance(given[0], fx.Node):
                return None
            if before is not None and (given[0] is not before or before in block.results):
                return None
            before = results[0]
        block.chained = True
        return block if block.inputs and block.results == [before] and len(block.inputs) == 1 else None

    @staticmethod
    def _element(item: Item, path: Path) -> int | None:
        at = item.path if isinstance(item, Block) else tuple(str(item.target).split(".")) if item.op == "call_module" else ()
        return int(at[-1]) if at[:-1] == path and _is_place(at[-1]) else None

    # one module, called several times

    def same(self, a: Block, b: Block) -> bool:
        """Whether two blocks of the same path do the same to their inputs, so that one module is called for both."""
        if len(a.items) != len(b.items) or len(a.inputs) != len(b.inputs) or a.chained != b.chained:
            return False
        pairs = dict(zip(a.inputs, b.inputs, strict=True))

        def alike(x: Any, y: Any) -> bool:
            if isinstance(x, fx.Node) and isinstance(y, fx.Node):
                if x in pairs or x.op == "get_attr":
                    return pairs.get(x, x) is y
                both = x in self.sizes and y in self.sizes and (x.op, x.target) == (y.op, y.target)
                return both and alike(x.args, y.args)
            if isinstance(x, (tuple, list)):
                return type(x) is type(y) and len(x) == len(y) and all(map(alike, x, y))
            if isinstance(x, dict):
                return isinstance(y, dict) and x.keys() == y.keys() and all(alike(v, y[k]) for k, v in x.items())
            if isinstance(x, slice):
                return isinstance(y, slice) and alike((x.start, x.stop, x.step), (y.start, y.stop, y.step))
            return type(x) is type(y) and bool(x == y)

        for x, y in zip(a.items, b.items, strict=True):
            if isinstance(x, Block) or isinstance(y, Block):
                if not isinstance(x, Block) or not isinstance(y, Block) or x.path != y.path:
                    return False
                if not alike(x.inputs, y.inputs) or len(x.results) != len(y.results) or not self.same(x, y):
                    return False
                pairs.update(zip(x.results, y.results, strict=True))
            elif (x.op, x.target) != (y.op, y.target) or not alike((x.args, x.kwargs), (y.args, y.kwargs)):
                return False
            else:
                pairs[x] = y
        return [pairs.get(r, r) for r in a.results] == b.results


RESERVED = frozenset(dir(Network(nn.Module(), fx.Graph())))
"""What a module with a graph has itself, under whose names it can hold no other."""


def _common(paths: Sequence[Path]) -> Path | None:
    """The innermost module that has all of these in it, None of none."""
    if not paths:
        return None
    first, *rest = paths
    length = 0
    while all(p[: length + 1] == first[: length + 1] for p in rest) and length < len(first):
        length += 1
    return first[:length]


def is_list(module: nn.Module | None) -> bool:
    """Whether a module does nothing but hold others in places of a list."""
    if module is None or type(module) is not nn.Module or module._parameters or module._buffers:
        return False
    names = list(module._modules)
    return bool(names) and all(map(_is_place, names)) and max(map(int, names)) < _GAPS * len(names)


def _is_place(name: str) -> bool:
    return name.isascii() and name.isdigit() and str(int(name)) == name


def _is_choice(value: fx.Node) -> bool:
    known = value.meta.get("val")
    return isinstance(known, torch.Tensor) and known.dtype == torch.bool


def _is_tensor(module: nn.Module, name: str) -> bool:
    return name in module._parameters or name in module._buffers
