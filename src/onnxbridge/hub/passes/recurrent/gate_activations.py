"""Recognizes the activation of a recurrent layer's gate, as ONNX names it: also a hard sigmoid written as a clipped line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.ir.fold import constant_array
from onnxbridge.hub.passes.value_queries import produced_by, skip_nodes

_PARAMETERS = {
    "Sigmoid": {}, "Tanh": {}, "Relu": {}, "Softsign": {}, "Softplus": {}, "Elu": {"alpha": 1.0}, "LeakyRelu": {"alpha": 0.01},
    "ThresholdedRelu": {"alpha": 1.0}, "HardSigmoid": {"alpha": 0.2, "beta": 0.5},
}  # fmt: skip
"""The activations that LSTM, GRU and RNN support, with the defaults of their attributes."""


@dataclass(frozen=True)
class Activation:
    """An activation by its name in ONNX; `alpha` and `beta` are None where it has no such attribute."""

    name: str
    alpha: float | None = None
    beta: float | None = None


LINEAR = Activation("Affine", 1.0, 0.0)


def activation_of(value: ir.Value | None) -> tuple[Activation, ir.Value] | None:
    """The activation that produces a value, and its argument; None if it is none that recurrent layers support."""
    node = skip_nodes(value).producer() if value is not None else None
    if node is None or node.domain or node.op_type not in _PARAMETERS:
        return _hard_sigmoid(value)
    numbers = {
        name: node.attributes[name].as_float() if name in node.attributes else default
        for name, default in _PARAMETERS[node.op_type].items()
    }
    argument = node.inputs[0]
    return None if argument is None else (Activation(node.op_type, numbers.get("alpha"), numbers.get("beta")), argument)


def attributes(activations: Sequence[Activation], default: Sequence[str]) -> dict[str, Any]:
    """The attributes of a recurrent operator that has these activations, none for the default ones."""
    if [a.name for a in activations] == list(default):
        return {}
    found: dict[str, Any] = {"activations": [a.name for a in activations]}
    for name in ("alpha", "beta"):
        numbers = [number for a in activations if (number := getattr(a, name)) is not None]
        if numbers:
            found[f"activation_{name}"] = numbers
    return found


def _hard_sigmoid(value: Any) -> tuple[Activation, ir.Value] | None:
    """clip(a x + b, 0, c) / c, whose slope is a / c and whose value at 0 is b / c."""
    scaled, scale = _scaled(value)
    line, low, high = _clipped(scaled)
    # the reciprocal of a bound such as 6 is rounded to float32
    if low != 0 or high is None or not np.isclose(high * scale, 1.0, rtol=1e-6, atol=0):
        return None
    shift = 0.0
    if (add := produced_by(line, "Add")) is not None:
        known = [_number(v) for v in add.inputs]
        index = next((i for i, number in enumerate(known) if number is not None), None)
        if index is not None:
            shift, line = float(known[index] or 0.0), add.inputs[1 - index]
    argument, slope = _scaled(line)
    return Activation("HardSigmoid", slope / high, shift / high), argument


def _clipped(value: Any) -> tuple[Any, float | None, float | None]:
    """What is clipped, and its bounds; None for bounds that it does not have. Also written as Max(Min(x, high), low)."""
    node = produced_by(value, "Clip")
    if node is not None and len(node.inputs) > 2:
        return node.inputs[0], _number(node.inputs[1]), _number(node.inputs[2])
    bounds: dict[str, float] = {}
    for kind in ("Max", "Min", "Max"):
        node = produced_by(value, kind)
        if node is None or kind in bounds or len(node.inputs) != 2:
            continue
        for other, bound in (tuple(node.inputs), tuple(node.inputs)[::-1]):
            if (number := _number(bound)) is not None:
                value, bounds[kind] = other, number
                break
    return value, bounds.get("Max"), bounds.get("Min")


def _scaled(value: Any) -> tuple[Any, float]:
    """A value as a number times another."""
    if (node := produced_by(value, "Div")) is not None and (number := _number(node.inputs[1])):
        return node.inputs[0], 1 / number
    if (node := produced_by(value, "Mul")) is not None:
        for one, other in (node.inputs, node.inputs[::-1]):
            if (number := _number(other)) is not None:
                return one, number
    return value, 1.0


def _number(value: ir.Value | None) -> float | None:
    known = constant_array(value)
    return float(known.reshape(-1)[0]) if known is not None and known.size == 1 and known.ndim <= 1 else None
