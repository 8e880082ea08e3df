"""Inlines scalar constants into the calls that use them, as people write them: `x + 1e-05`."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import fx

from onnxbridge.backends.pytorch.modules.peephole import drop_unused
from onnxbridge.backends.pytorch.weights import Weights

_SWAPPED: dict[Any, Any] = {
    torch.add: torch.add, torch.mul: torch.mul, torch.eq: torch.eq, torch.ne: torch.ne, torch.gt: torch.lt, torch.lt: torch.gt,
    torch.ge: torch.le, torch.le: torch.ge, torch.sub: operator.sub,
}  # fmt: skip
"""The function with swapped operands: except for Python's operators, the tensor comes first."""
_SCALAR_SECOND = frozenset({*_SWAPPED, torch.div, torch.pow, torch.remainder, torch.fmod})
"""Functions that accept a number as their second operand."""
_BOUNDS = {torch.maximum: "min", torch.minimum: "max"}


def inline_scalars(graph: fx.Graph, weights: Weights) -> None:
    """Replace constants that are not in the `state_dict` by numbers, if the result is bit-identical."""
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if len(node.args) == 2 and (node.target in _SCALAR_SECOND or node.target in _BOUNDS):
            _operands(node, weights)
        elif node.target is torch.where and len(node.args) == 3:
            condition, *values = node.args
            for i, value in enumerate(values):
                number = _number(value, [v for v in values if v is not value], weights)
                if number is not None:
                    values[i] = number
                    node.args = (condition, *values)
                    break
    drop_unused(graph)


def _operands(node: fx.Node, weights: Weights) -> None:
    first, second = node.args
    number = _number(second, [first], weights)
    if number is not None:
        _set(node, node.target, first, number)
        return
    number = _number(first, [second], weights)
    swapped = _SWAPPED.get(node.target) or (node.target if node.target in _BOUNDS else None)
    if number is not None and swapped is operator.sub:
        node.target, node.args = swapped, (number, second)
    elif number is not None and swapped is not None:
        _set(node, swapped, second, number)


def _set(node: fx.Node, target: Callable[..., Any], tensor: Any, number: Any) -> None:
    bound = _BOUNDS.get(target)
    if bound is None:
        node.target, node.args = target, (tensor, number)
    else:
        node.target, node.args, node.kwargs = torch.clamp, (tensor,), {bound: number}


def _number(value: Any, others: Sequence[Any], weights: Weights) -> Any:
    """The number of a one-element constant; None if it is none, or if the other operands do not determine dtype and rank."""
    if not isinstance(value, fx.Node) or value.op != "get_attr":
        return None
    constant = weights.get(str(value.target))
    if (
        not isinstance(constant, torch.Tensor)
        or constant.numel() != 1
        or constant.requires_grad
        or weights.is_saved(str(value.target))
    ):
        return None
    for other in others:
        known = other.meta["val"] if isinstance(other, fx.Node) else None
        if isinstance(known, torch.Tensor) and known.dtype == constant.dtype != torch.bool and known.ndim >= constant.ndim:
            return _literal(constant)
    return None


def _literal(constant: torch.Tensor) -> Any:
    number = constant.item()
    # the literal is rounded to float32 anyway: 1e-05 is the same number as 9.999999747378752e-06
    if constant.dtype != torch.float32 or not math.isfinite(number):
        return number
    short = float(str(np.float32(number)))
    return (
        short if abs(short) <= torch.finfo(torch.float32).max else number
    )  # the shortest digits of the largest float32 exceed it
