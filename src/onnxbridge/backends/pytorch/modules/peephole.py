"""Removes transposes and reshapes that cancel: rules convert to ONNX's shapes, and neighboring operators often convert back."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from onnxbridge.backends.pytorch.ops.shape import squeezed, unsqueezed

_METHODS = ("reshape", "unflatten", "unsqueeze", "squeeze")
_FUNCTIONS = (squeezed, unsqueezed, torch.flatten)


def simplify_shapes(graph: fx.Graph) -> None:
    """Remove transposes and reshapes whose composition is the identity, and merge consecutive transposes."""
    for node in list(graph.nodes):
        if node.op not in ("call_method", "call_function"):
            continue
        permutation = _permutation(node)
        if permutation is not None:
            before = _permutation(node.args[0])
            if before is not None:
                permutation = [before[i] for i in permutation]
                node.target, node.args = "permute", (node.args[0].args[0], tuple(permutation))
                node.kwargs = {}
            if permutation == sorted(permutation):
                node.replace_all_uses_with(node.args[0])
        elif _reshapes(node):
            start = node.args[0]
            while _reshapes(start):
                start = start.args[0]
                if _same_shape(start, node):
                    node.replace_all_uses_with(start)
                    break
    drop_unused(graph)


def drop_unused(graph: fx.Graph) -> None:
    """Remove unused nodes; traced calls have no side effects, whatever module they call."""
    graph.eliminate_dead_code(is_impure_node=lambda node: node.op in ("placeholder", "output"))


def _permutation(node: Any) -> list[int] | None:
    """The permutation of dimensions that a node performs, or None if it does something else."""
    if not isinstance(node, fx.Node) or node.op != "call_method" or node.target not in ("permute", "transpose") or node.kwargs:
        return None
    rank = getattr(node.meta["val"], "ndim", 0)
    axes = node.args[1] if isinstance(node.args[1], (tuple, list)) else node.args[1:]
    if not rank or not all(isinstance(a, int) for a in axes):
        return None
    axes = [a % rank for a in axes]
    if node.target == "permute":
        return axes
    permutation = list(range(rank))
    permutation[axes[0]], permutation[axes[1]] = axes[1], axes[0]
    return permutation


def _reshapes(node: Any) -> bool:
    return isinstance(node, fx.Node) and (
        (node.op == "call_method" and node.target in _METHODS) or (node.op == "call_function" and node.target in _FUNCTIONS)
    )


def _same_shape(a: fx.Node, b: fx.Node) -> bool:
    """Whether two nodes are known to have the same shape."""
    shapes = [getattr(n.meta["val"], "shape", None) for n in (a, b)]
    if shapes[0] is None or shapes[1] is None or len(shapes[0]) != len(shapes[1]):
        return False
    return all(statically_known_true(m == n) for m, n in zip(*shapes, strict=True))
