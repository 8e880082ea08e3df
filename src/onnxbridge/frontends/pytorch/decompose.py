"""ATen operators without a rule, in simpler ones, by PyTorch's own decompositions; traced one by one where they occur."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from onnxbridge import frameworks

# they write running statistics when they train; what their rules refuse must not come in by their parts, without the writes
_STATEFUL = frozenset(
    {
        "aten::batch_norm", "aten::native_batch_norm", "aten::_native_batch_norm_legit", "aten::instance_norm",
        "aten::_native_batch_norm_legit_functional", "aten::_batch_norm_with_update", "aten::_batch_norm_with_update_functional",
        "aten::cudnn_batch_norm",
    }
)  # fmt: skip


@functools.cache
def _table() -> dict[Any, Callable[..., Any]]:
    from torch._decomp import decomposition_table

    return dict(decomposition_table)


@functools.cache
def _implicit(target: Any) -> bool:
    torch = frameworks.torch()
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(target.name(), key)) or target.has_kernel_for_dispatch_key(key)


def decompositions_of(target: Any) -> list[Callable[..., Any]]:
    """Functions of the operator's own arguments that compute it with others, the best first."""
    if not hasattr(target, "_schema") or target._schema.name in _STATEFUL:
        return []
    found = [_table()[target]] if target in _table() else []
    return [*found, target.decompose] if _implicit(target) else found


def _about_one(guard: Any) -> bool:
    """Whether a guard only says that a size is not 0 or 1, which torch.export takes for granted."""
    return guard.func.__name__ in ("Unequality", "StrictGreaterThan", "GreaterThan", "LessThan") and guard.args[-1] in (0, 1, 2)


def traced(node: Any) -> tuple[Any, list[Any]] | None:
    """The graph of one node's decomposition, and the nodes that its placeholders stand for; None where there is none."""
    return next((found for function in decompositions_of(node.target) if (found := _traced(node, function))), None)


def _traced(node: Any, function: Callable[..., Any]) -> tuple[Any, list[Any]] | None:
    torch = frameworks.torch()
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils import _pytree as pytree

    leaves, spec = pytree.tree_flatten((node.args, node.kwargs))
    sources = list(dict.fromkeys(leaf for leaf in leaves if isinstance(leaf, torch.fx.Node)))
    values = [source.meta["val"] for source in sources]
    if not all(isinstance(v, (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)) for v in values):
        return None

    def run(*given: Any) -> Any:
        where = dict(zip(sources, given, strict=True))
        args, kwargs = pytree.tree_unflatten([where.get(x, x) if isinstance(x, torch.fx.Node) else x for x in leaves], spec)
        return function(*args, **kwargs)

    mode = torch._guards.detect_fake_mode(values)
    if mode is None:
        return None
    guards = mode.shape_env.guards if mode.shape_env is not None else []
    before = len(guards)
    try:
        with mode, torch.no_grad():
            made = make_fx(torch.func.functionalize(run, remove="mutations"), tracing_mode="real")(*values)
    except Exception:  # PyTorch's own code, which cannot take these values: the operator counts as one without decomposition
        return None
    if not all(_about_one(g.expr) for g in guards[before:]):
        return None  # it holds only for sizes like the example's
    made.graph.eliminate_dead_code()
    if any(n.target is node.target for n in made.graph.nodes):
        return None
    return made.graph, sources
