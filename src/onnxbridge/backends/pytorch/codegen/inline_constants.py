"""Writes numbers that the model has as constants into the calls that compute with them, as people write them: `x + 1e-05`."""

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

_TURNED: dict[Any, Any] = {
    torch.add: torch.add, torch.mul: torch.mul, torch.eq: torch.eq, torch.ne: torch.ne, torch.gt: torch.lt, torch.lt: torch.gt,
    torch.ge: torch.le, torch.le: torch.ge, torch.sub: operator.sub,
}  # fmt: skip
"""The function that does the same with its operands the other way round; a tensor comes first, but for Python's own operators."""
_SECOND = frozenset({*_TURNED, torch.div, torch.pow, torch.remainder, torch.fmod})
"""Functions that take a number as their second operand."""
_BOUNDS = {torch.maximum: "min", torch.minimum: "max"}


def write(graph: fx.Graph, weights: Weights) -> None:
    """Put numbers in the place of constants that no `state_dict` has, wherever the result is the same to the bit."""
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if len(node.args) == 2 and (node.target in _SECOND or node.target in _BOUNDS):
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
    turned = _TURNED.get(node.target) or (node.target if node.target in _BOUNDS else None)
    if number is not None and turned is operator.sub:
        node.target, node.args = turned, (number, second)
    elif number is not None and turned is not None:
        _set(node, turned, second, number)


def _set(node: fx.Node, target: Callable[..., Any], tensor: Any, number: Any) -> None:
    bound = _BOUNDS.get(target)
    if bound is None:
        node.target, node.args = target, (tensor, number)
    else:
        node.target, node.args, node.kwargs = torch.clamp, (tensor,), {bound: number}


def _number(value: Any, others: Sequence[Any], weights: Weights) -> Any:
    """The number of a constant of one element, None where it is none, or the other operands would not settle type and rank."""
    if not isinstance(value, fx.Node) or value.op != "get_attr":
        return None
    held = weights.at(str(value.target))
    if not isinstance(held, torch.Tensor) or held.numel() != 1 or held.requires_grad or weights.is_saved(str(value.target)):
        return None
    for other in others:
        known = other.meta["val"] if isinstance(other, fx.Node) else None
        if isinstance(known, torch.Tensor) and known.dtype == held.dtype != torch.bool and known.ndim >= held.ndim:
            return _written(held)
    return None


def _written(held: torch.Tensor) -> Any:
    number = held.item()
    # float32 is computed in float32 whatever the literal: 1e-05 is the same number as 9.999999747378752e-06
    if held.dtype != torch.float32 or not math.isfinite(number):
        return number
    short = float(str(np.float32(number)))
    return short if abs(short) <= torch.finfo(torch.float32).max else number  # the largest one's digits say a larger one
