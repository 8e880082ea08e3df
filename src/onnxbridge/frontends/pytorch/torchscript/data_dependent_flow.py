"""Branches and loops of TorchScript whose course depends on data, as PyTorch's cond and while_loop.

A region is run once aside to learn which tensors it reads and what it gives; then it is traced with all of them as its operands.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from onnxbridge import frameworks
from onnxbridge.frontends.pytorch.torchscript import python_values
from onnxbridge.frontends.pytorch.torchscript.graph_nodes import every_node
from onnxbridge.frontends.pytorch.torchscript.not_traceable import NotTraceable


def _free(block: Any) -> list[str]:
    """The names that a block uses and does not define."""
    defined = {v.debugName() for v in block.inputs()}
    used: dict[str, None] = {}
    for node in every_node(block):
        for inner in node.blocks():
            defined |= {v.debugName() for v in inner.inputs()}
            used |= {v.debugName(): None for v in inner.outputs()}
        used |= {v.debugName(): None for v in node.inputs()}
        defined |= {v.debugName() for v in node.outputs()}
    used |= {v.debugName(): None for v in block.outputs()}
    return [name for name in used if name not in defined]


def _unnoticed(leaves: list[Any]) -> contextlib.AbstractContextManager[Any]:
    """In which the sizes that data decides are not asked for again: what is run aside is thrown away."""
    tensors = [leaf for leaf in leaves if isinstance(leaf, frameworks.torch().Tensor)]
    mode = frameworks.torch()._guards.detect_fake_mode(tensors)
    known = mode.shape_env if mode is not None else None
    return contextlib.nullcontext() if known is None else known.ignore_fresh_unbacked_symbols()


def _symbolic(value: Any) -> bool:
    torch = frameworks.torch()
    return isinstance(value, (torch.Tensor, torch.SymInt))


class _Region:
    """Blocks that become one operator: what they read from outside, as operands."""

    def __init__(self, blocks: list[Any], values: dict[str, Any], attributes: Any) -> None:
        from torch.utils import _pytree as pytree

        self.values, self.attributes = values, attributes
        names = [n for n in dict.fromkeys(n for b in blocks for n in _free(b)) if n in values]
        self.leaves, self.spec = pytree.tree_flatten({n: values[n] for n in names})
        self.places = [i for i, leaf in enumerate(self.leaves) if _symbolic(leaf)]
        self.read: list[Any] = []

    def outside(self) -> list[Any]:
        return [self.leaves[i] for i in self.places] + self.read

    def aside(self, block: Any, given: Callable[[], dict[str, Any]]) -> list[Any]:
        """What a block gives, without a trace of it; the tensors of modules that it reads are noted."""
        from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing

        objects = self.attributes.objects
        outer, objects.read = objects.read, []
        try:
            with disable_proxy_modes_tracing(), frameworks.torch().no_grad(), _unnoticed(self.leaves):
                results = self._run(block, given(), [self.leaves[i] for i in self.places])
            seen = {id(t) for t in self.read}
            self.read += [t for t in {id(t): t for t in objects.read}.values() if id(t) not in seen]
        finally:
            if outer is not None:
                outer += objects.read
            objects.read = outer
        return results

    def traced(self, block: Any, given: dict[str, Any], operands: Any) -> list[Any]:
        """Run a block on a subgraph's own operands."""
        count = len(self.places)
        objects = self.attributes.objects
        outer = objects.instead
        objects.instead = {**outer, **{id(t): o for t, o in zip(self.read, operands[count:], strict=True)}}
        try:
            return self._run(block, given, operands[:count])
        finally:
            objects.instead = outer

    def _run(self, block: Any, given: dict[str, Any], operands: Any) -> list[Any]:
        from torch.utils import _pytree as pytree

        leaves = list(self.leaves)
        for place, operand in zip(self.places, operands, strict=True):
            leaves[place] = operand
        values = pytree.tree_unflatten(leaves, self.spec) | given
        before = [id(x) for x in pytree.tree_leaves({n: v for n, v in values.items() if isinstance(v, (list, dict))})]
        kept = {n: v for n, v in values.items() if isinstance(v, (list, dict))}
        objects = self.attributes.objects
        objects.inside += 1
        try:
            self.attributes.run(block, values)
        finally:
            objects.inside -= 1
        if [id(x) for x in pytree.tree_leaves(kept)] != before:
            raise NotTraceable("a list grows inside a branch or loop that depends on data")
        return [values[v.debugName()] for v in block.outputs()]


def _as_tensor(value: Any) -> Any:
    torch = frameworks.torch()
    if isinstance(value, torch.Tensor):
        return value.clone()
    dtype = torch.bool if isinstance(value, (bool, torch.SymBool)) else torch.int64
    if isinstance(value, (float, torch.SymFloat)):
        dtype = torch.float64
    return torch.scalar_tensor(value, dtype=dtype)


def _numeric(value: Any) -> bool:
    torch = frameworks.torch()
    return isinstance(value, (torch.Tensor, bool, int, float, torch.SymInt, torch.SymFloat, torch.SymBool))


def _fixed(a: Any, b: Any) -> bool:
    """Whether two results are one and the same thing that no tensor is needed for."""
    return a is b and not isinstance(a, frameworks.torch().Tensor) or type(a) is type(b) and not _symbolic(a) and bool(a == b)


def branches(blocks: list[Any], condition: Any, values: dict[str, Any], attributes: Any) -> list[Any]:
    """An If whose condition is only known when the model runs."""
    torch = frameworks.torch()
    from torch.utils import _pytree as pytree

    region = _Region(blocks, values, attributes)
    then, other = (pytree.tree_flatten(region.aside(b, dict)) for b in blocks)
    if then[1] != other[1]:
        raise NotTraceable("the branches of an if give different structures")
    fixed = [_fixed(a, b) for a, b in zip(then[0], other[0], strict=True)]
    for a, b, same in zip(then[0], other[0], fixed, strict=True):
        if not same and not (_numeric(a) and _numeric(b)):
            raise NotTraceable(f"the branches of an if give {type(a).__name__} and {type(b).__name__}")
    if all(fixed):
        return list(pytree.tree_unflatten(then[0], then[1]))

    def branch(block: Any) -> Callable[..., Any]:
        def taken(*operands: Any) -> Any:
            leaves = pytree.tree_leaves(region.traced(block, {}, operands), is_leaf=lambda x: x is None)
            return tuple(_as_tensor(leaf) for leaf, same in zip(leaves, fixed, strict=True) if not same)

        return taken

    made = iter(torch.ops.higher_order.cond(condition, branch(blocks[0]), branch(blocks[1]), tuple(region.outside())))
    leaves = [
        a if same else next(made) if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor) else next(made).item()
        for a, b, same in zip(then[0], other[0], fixed, strict=True)
    ]
    return list(pytree.tree_unflatten(leaves, then[1]))


def loop_or_turns(block: Any, most: Any, going: Any, carried: list[Any], values: dict[str, Any], attributes: Any) -> Any:
    """The results of a loop as often as a dynamic size says; where none can be made, the turns that the size is fixed to."""
    try:
        return loop(block, most, going, carried, values, attributes, 0)
    except NotTraceable:
        return int(most)


def loop(block: Any, most: Any, going: Any, carried: list[Any], values: dict[str, Any], attributes: Any, turn: int) -> list[Any]:
    """A Loop whose number of turns is only known when the model runs; `turn` turns have been made."""
    torch = frameworks.torch()
    from torch.utils import _pytree as pytree

    counter, *names = [v.debugName() for v in block.inputs()]
    leaves, spec = pytree.tree_flatten(list(carried))
    if not all(_numeric(leaf) for leaf in leaves):
        raise NotTraceable("a loop that depends on data carries something that is no number or tensor")
    plain = [not isinstance(leaf, torch.Tensor) for leaf in leaves]
    region = _Region([block], values, attributes)
    state = [_as_tensor(leaf) for leaf in leaves]
    step = torch.scalar_tensor(turn, dtype=torch.int64)
    limit = torch.scalar_tensor(most, dtype=torch.int64)

    def opened(index: Any, states: Any) -> dict[str, Any]:
        items = [s.item() if p else s for s, p in zip(states, plain, strict=True)]
        number = index.item()
        torch._check(number >= 0)
        return {counter: number, **dict(zip(names, pytree.tree_unflatten(items, spec), strict=True))}

    aside = region.aside(block, lambda: opened(step, state))[1:]
    after = pytree.tree_structure(aside)
    if after != spec:
        raise NotTraceable("a list grows inside a loop that depends on data")

    def goes_on(index: Any, going: Any, *rest: Any) -> Any:
        return torch.logical_and(going, index < rest[-1])

    def body(index: Any, going: Any, *rest: Any) -> Any:
        states, operands = rest[: len(state)], rest[len(state) : -1]
        again, *results = region.traced(block, opened(index, states), operands)
        flat = pytree.tree_leaves(results)
        return (index + 1, _as_tensor(python_values.truth(again)), *map(_as_tensor, flat))

    first = (step, _as_tensor(python_values.truth(going)), *state)
    made = torch.ops.higher_order.while_loop(goes_on, body, first, (*region.outside(), limit))
    results = [m.item() if p else m for m, p in zip(made[2:], plain, strict=True)]
    return list(pytree.tree_unflatten(results, spec))
