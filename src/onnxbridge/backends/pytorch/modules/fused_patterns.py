"""Which calls, taken together, are one of torch.nn's layers: what formats without that operator write out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx, nn

from onnxbridge.backends.pytorch.modules.layer_patterns import one_size
from onnxbridge.backends.pytorch.modules.lift_modules import Layer, finder, rank, shape
from onnxbridge.backends.pytorch.modules.module_paths import place
from onnxbridge.backends.pytorch.modules.peephole import drop_unused
from onnxbridge.backends.pytorch.ops.indexing import from_the_end


def look_up(graph: fx.Graph, classes: Mapping[str, str]) -> None:
    """Give embedding layers of the source their indices as they come: PyTorch's own take none that count from the end.

    `classes` has all modules that are not such layers, by their paths.
    """
    for node in graph.nodes:
        if node.target is not nn.functional.embedding:
            continue
        indices, weight = node.args[:2]
        path = place(node)
        own = path and path not in classes and weight.op == "get_attr" and weight.target == f"{path}.weight"
        if own and isinstance(indices, fx.Node) and indices.target is from_the_end:
            node.args = (indices.args[0], *node.args[1:])
    drop_unused(graph)


@finder(torch.mul)
def silu(node: fx.Node, input: Any, other: Any) -> Layer | None:
    """x * sigmoid(x)."""
    for x, gate in ((input, other), (other, input)):
        if isinstance(gate, fx.Node) and gate.target is torch.sigmoid and gate.args[0] is x:
            inner = (gate,) if len(gate.users) == 1 else ()
            return Layer(nn.SiLU, {}, (x,), inner=inner, plain=nn.functional.silu)
    return None


@finder(torch.where)
def softplus(node: fx.Node, condition: Any, input: Any, other: Any) -> Layer | None:
    """x beyond a threshold, softplus below, which is what PyTorch's own does by itself."""
    soft = isinstance(other, fx.Node) and other.target is torch._C._nn.softplus and other.args == (input,)
    beyond = isinstance(condition, fx.Node) and condition.target is torch.gt and condition.args == (input, 20.0)
    if not soft or not beyond or other.kwargs:
        return None
    inner = tuple(n for n in (condition, other) if len(n.users) == 1)
    return Layer(nn.Softplus, {}, (input,), inner=inner, plain=nn.functional.softplus)


@finder(torch.mean)
def rms_norm(node: fx.Node, squares: Any, dim: Any = None, keepdim: bool = False) -> Layer | None:
    """x / sqrt(mean(x * x) + eps) * weight, in each of the ways in which that is written."""
    x = _squared(squares)
    total = _only(node)
    if x is None or not keepdim or dim not in (-1, (rank(x) or 0) - 1) or len(squares.users) != 1:
        return None
    if total is None or total.target is not torch.add or total.kwargs or not isinstance(total.args[1], float):
        return None
    normed = _divided(x, total)
    scaled = None if normed is None else _only(normed)
    if normed is None or scaled is None or scaled.target is not torch.mul:
        return None
    (weight,) = [a for a in scaled.args if a is not normed] or [None]
    if not isinstance(weight, fx.Node) or weight.op != "get_attr" or len(shape(weight)) != 1 or shape(weight)[0] != _last(x):
        return None
    if weight.meta["val"].dtype != x.meta["val"].dtype:
        return None
    given = {"normalized_shape": one_size(shape(weight)), "eps": total.args[1]}
    return Layer(nn.RMSNorm, given, (x,), {"weight": weight}, replaced=scaled)


def _squared(node: Any) -> fx.Node | None:
    if not isinstance(node, fx.Node) or node.op != "call_function" or node.kwargs:
        return None
    x, *rest = node.args
    square = (node.target is torch.mul and rest == [x]) or (node.target is torch.pow and rest in ([2], [2.0]))
    return x if isinstance(x, fx.Node) and (square or node.target is torch.square) else None


def _divided(x: fx.Node, total: fx.Node) -> fx.Node | None:
    """What divides x by the root of the total."""
    root = _only(total)
    inverse = root if root is not None and root.target is torch.rsqrt else None
    if root is not None and root.target is torch.sqrt:
        after = _only(root)
        if after is not None and after.target is torch.div and after.args == (x, root) and not after.kwargs:
            return after
        known = after is not None and after.target is torch.reciprocal
        inverse = after if known else None
        if after is not None and after.target is torch.div and after.args == (1.0, root):
            inverse = after
    found = None if inverse is None else _only(inverse)
    return found if found is not None and found.target is torch.mul and set(found.args) == {x, inverse} else None


def _only(node: fx.Node) -> fx.Node | None:
    """The one call that uses a value."""
    found = list(node.users)
    return found[0] if len(found) == 1 and found[0].op == "call_function" else None


def _last(node: fx.Node) -> Any:
    return node.meta["val"].shape[-1]
