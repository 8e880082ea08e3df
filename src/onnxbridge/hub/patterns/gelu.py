"""Patterns of Gelu, exact and with the tanh approximation."""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir

from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.patterns.forms import form
from onnxbridge.hub.patterns.match import Either, Op, Power, Product, Value

X = Value("x")
_ERF = Op("Erf", Product(X, math.sqrt(0.5)))
_ROOT = math.sqrt(2 / math.pi)
_CUBIC = Either(
    (
        Product(_ROOT, Op("Add", X, Product(0.044715, Power(X, 3.0)))),
        Product(_ROOT, X, Op("Add", 1.0, Product(0.044715, Power(X, 2.0)))),
        Op("Add", Product(_ROOT, X), Product(_ROOT * 0.044715, Power(X, 3.0))),
    )
)


@form(
    "Gelu",
    Product(X, 0.5, Op("Add", 1.0, _ERF)),
    Product(X, Op("Add", 0.5, Product(0.5, _ERF))),
    Product(X, 0.5, Op("Sub", 1.0, Op("Erf", Product(X, -math.sqrt(0.5))))),
)
def exact(op: Builder, x: ir.Value) -> Any:
    """x / 2 (1 + erf(x / sqrt(2)))."""
    return op.Gelu(x)


_TANH = Op("Tanh", _CUBIC)


@form("Gelu", Product(X, 0.5, Op("Add", 1.0, _TANH)), Product(X, Op("Add", 0.5, Product(0.5, _TANH))))
def approximate(op: Builder, x: ir.Value) -> Any:
    """x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))."""
    return op.Gelu(x, approximate="tanh")
