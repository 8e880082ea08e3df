"""Data-dependent branches and loops of TorchScript, as PyTorch's cond and while_loop.

A block is first evaluated without tracing, to find the tensors that it reads and the structure of its results; then it is traced
with these tensors as operands.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from onnxbridge import frameworks
from onnxbridge.frontends.pytorch.torchscript import python_values
from onnxbridge.frontends.pytorch.torchscript.graph_nodes import every_node
from onnxbridge.frontends.pytorch.torchscript.not_traceable import NotTraceable


def _free_names(block: Any) -> list[str]:
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


def _ignore_new_symbols(leaves: list[Any]) -> contextlib.AbstractContextManager[Any]:
    """Ignore new unbacked symbols: the results of an untraced evaluation are discarded."""
    tensors = [leaf for leaf in leaves if isinstance(leaf, frameworks.torch().Tensor)]
    mode = frameworks.torch()._guards.detect_fake_mode(tensors)
    known = mode.shape_env if mode is not None else None
    return contextlib.nullcontext() if known is None else known.ignore_fresh_unbacked_symbols()


def _is_symbolic(value: Any) -> bool:
    torch = frameworks.torch()
    return isinstance(value, (torch.Tensor, torch.SymInt))


class _Region:
    """Blocks that become one operator, and the outer values that they read, which become its operands."""

    def __init__(self, blocks: list[Any], values: dict[str, Any], attributes: Any) -> None:
        from torch.utils import _pytree as pytree

        self.values, self.attributes = values, attributes
        names = [n for n in dict.fromkeys(n for b in blocks for n in _free_names(b)) if n in values]
        self.leaves, self.spec = pytree.tree_flatten({n: values[n] for n in names})
        self.operand_indices = [i for i, leaf in enumerate(self.leaves) if _is_symbolic(leaf)]
        self.read: list[Any] = []

    def operands(self) -> list[Any]:
        return [self.leaves[i] for i in self.operand_indices] + self.read

    def evaluate(self, block: Any, inputs: Callable[[], dict[str, Any]]) -> list[Any]:
        """The results of a block, evaluated without tracing; records which tensors of modules it reads."""
        from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing

        shared = self.attributes.shared
        outer, shared.read = shared.read, []
        try:
            with disable_proxy_modes_tracing(), frameworks.torch().no_grad(), _ignore_new_symbols(self.leaves):
                results = self._run(block, inputs(), [self.leaves[i] for i in self.operand_indices])
            recorded = {id(t) for t in self.read}
            self.read += [t for t in {id(t): t for t in shared.read}.values() if id(t) not in recorded]
        finally:
            if outer is not None:
                outer += shared.read
            shared.read = outer
        return results

    def trace(self, block: Any, inputs: dict[str, Any], operands: Any) -> list[Any]:
        """Run a block on the operands of a subgraph."""
        count = len(self.operand_indices)
        shared = self.attributes.shared
        outer = shared.replacements
        shared.replacements = {**outer, **{id(t): o for t, o in zip(self.read, operands[count:], strict=True)}}
        try:
            return self._run(block, inputs, operands[:count])
        finally:
            shared.replacements = outer

    def _run(self, block: Any, inputs: dict[str, Any], operands: Any) -> list[Any]:
        from torch.utils import _pytree as pytree

        leaves = list(self.leaves)
        for index, operand in zip(self.operand_indices, operands, strict=True):
            leaves[index] = operand
        values = pytree.tree_unflatten(leaves, self.spec) | inputs
        before = [id(x) for x in pytree.tree_leaves({n: v for n, v in values.items() if isinstance(v, (list, dict))})]
        containers = {n: v for n, v in values.items() if isinstance(v, (list, dict))}
        shared = self.attributes.shared
        shared.depth += 1
        try:
            self.attributes.run(block, values)
        finally:
            shared.depth -= 1
        if [id(x) for x in pytree.tree_leaves(containers)] != before:
            raise NotTraceable("a list changes its length inside a data-dependent branch or loop")
        return [values[v.debugName()] for v in block.outputs()]


def _as_tensor(value: Any) -> Any:
    torch = frameworks.torch()
    if isinstance(value, torch.Tensor):
        return value.clone()
    dtype = torch.bool if isinstance(value, (bool, torch.SymBool)) else torch.int64
    if isinstance(value, (float, torch.SymFloat)):
        dtype = torch.float64
    return torch.scalar_tensor(value, dtype=dtype)


def _is_numeric(value: Any) -> bool:
    torch = frameworks.torch()
    return isinstance(value, (torch.Tensor, bool, int, float, torch.SymInt, torch.SymFloat, torch.SymBool))


def _is_same_constant(a: Any, b: Any) -> bool:
    """Whether two results are the same constant, so that no tensor is needed."""
    return a is b and not isinstance(a, frameworks.torch().Tensor) or type(a) is type(b) and not _is_symbolic(a) and bool(a == b)


def branches(blocks: list[Any], condition: Any, values: dict[str, Any], attributes: Any) -> list[Any]:
    """An If with a data-dependent condition."""
    torch = frameworks.torch()
    from torch.utils import _pytree as pytree

    region = _Region(blocks, values, attributes)
    then, other = (pytree.tree_flatten(region.evaluate(b, dict)) for b in blocks)
    if then[1] != other[1]:
        raise NotTraceable("the branches of an if return different structures")
    constant = [_is_same_constant(a, b) for a, b in zip(then[0], other[0], strict=True)]
    for a, b, same in zip(then[0], other[0], constant, strict=True):
        if not same and not (_is_numeric(a) and _is_numeric(b)):
            raise NotTraceable(f"the branches of an if return {type(a).__name__} and {type(b).__name__}")
    if all(constant):
        return list(pytree.tree_unflatten(then[0], then[1]))

    def branch(block: Any) -> Callable[..., Any]:
        def run_branch(*operands: Any) -> Any:
            leaves = pytree.tree_leaves(region.trace(block, {}, operands), is_leaf=lambda x: x is None)
            return tuple(_as_tensor(leaf) for leaf, same in zip(leaves, constant, strict=True) if not same)

        return run_branch

    outputs = iter(torch.ops.higher_order.cond(condition, branch(blocks[0]), branch(blocks[1]), tuple(region.operands())))
    leaves = [
        a if same else next(outputs) if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor) else next(outputs).item()
        for a, b, same in zip(then[0], other[0], constant, strict=True)
    ]
    return list(pytree.tree_unflatten(leaves, then[1]))


def loop_or_trip_count(
    block: Any, max_trip_count: Any, condition: Any, carried: list[Any], values: dict[str, Any], attributes: Any
) -> Any:
    """The results of a loop over a dynamic size; if it cannot be traced, the trip count to which the size is specialized."""
    try:
        return loop(block, max_trip_count, condition, carried, values, attributes, 0)
    except NotTraceable:
        return int(max_trip_count)


def loop(
    block: Any, max_trip_count: Any, condition: Any, carried: list[Any], values: dict[str, Any], attributes: Any, iteration: int
) -> list[Any]:
    """A Loop with a data-dependent trip count; `iteration` iterations have been unrolled already."""
    torch = frameworks.torch()
    from torch.utils import _pytree as pytree

    counter, *names = [v.debugName() for v in block.inputs()]
    leaves, spec = pytree.tree_flatten(list(carried))
    if not all(_is_numeric(leaf) for leaf in leaves):
        raise NotTraceable("a data-dependent loop carries a value that is neither a number nor a tensor")
    is_number = [not isinstance(leaf, torch.Tensor) for leaf in leaves]
    region = _Region([block], values, attributes)
    state = [_as_tensor(leaf) for leaf in leaves]
    step = torch.scalar_tensor(iteration, dtype=torch.int64)
    limit = torch.scalar_tensor(max_trip_count, dtype=torch.int64)

    def block_inputs(index: Any, states: Any) -> dict[str, Any]:
        items = [s.item() if p else s for s, p in zip(states, is_number, strict=True)]
        number = index.item()
        torch._check(number >= 0)
        return {counter: number, **dict(zip(names, pytree.tree_unflatten(items, spec), strict=True))}

    evaluated = region.evaluate(block, lambda: block_inputs(step, state))[1:]
    after = pytree.tree_structure(evaluated)
    if after != spec:
        raise NotTraceable("a list changes its length inside a data-dependent loop")

    def loop_condition(index: Any, condition: Any, *rest: Any) -> Any:
        return torch.logical_and(condition, index < rest[-1])

    def body(index: Any, condition: Any, *rest: Any) -> Any:
        states, operands = rest[: len(state)], rest[len(state) : -1]
        next_condition, *results = region.trace(block, block_inputs(index, states), operands)
        flat = pytree.tree_leaves(results)
        return (index + 1, _as_tensor(python_values.truth_value(next_condition)), *map(_as_tensor, flat))

    first = (step, _as_tensor(python_values.truth_value(condition)), *state)
    outputs = torch.ops.higher_order.while_loop(loop_condition, body, first, (*region.operands(), limit))
    results = [m.item() if p else m for m, p in zip(outputs[2:], is_number, strict=True)]
    return list(pytree.tree_unflatten(results, spec))
