"""Patterns of Swish, HardSwish and Mish: x times a sigmoid-like function of x."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.patterns.forms import form
from onnxbridge.hub.patterns.match import Either, Number, Op, Power, Product, Value

X = Value("x")
_SHIFTED = Op("Add", X, 3.0)
_RELU6 = Either((Op("Clip", _SHIFTED, 0.0, 6.0), Op("Min", Op("Relu", _SHIFTED), 6.0)))


@form(
    "Swish",
    Product(X, Op("Sigmoid", Product(X, Number("alpha")))),
    Product(X, Power(Op("Add", 1.0, Op("Exp", Product(X, Number("negative")))), -1.0)),
)
def swish(op: Builder, x: ir.Value, alpha: float = 1.0, negative: float | None = None) -> Any:
    """x sigmoid(alpha x)."""
    return op.Swish(x, alpha=alpha if negative is None else -negative)


@form(
    "HardSwish",
    Product(X, Op("HardSigmoid", X, alpha=1 / 6, beta=lambda beta: beta in (None, 0.5))),
    Product(X, 1 / 6, _RELU6),
)
def hard_swish(op: Builder, x: ir.Value) -> Any:
    """x max(0, min(1, x / 6 + 1 / 2))."""
    return op.HardSwish(x)


@form("Mish", Product(X, Op("Tanh", Op("Softplus", X))))
def mish(op: Builder, x: ir.Value) -> Any:
    """x tanh(softplus(x))."""
    return op.Mish(x)
