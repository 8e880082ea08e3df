"""Activations as Keras layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from onnxbridge.backends.tensorflow.functional.expressions import Expression
from onnxbridge.backends.tensorflow.functional.values import (
    dims,
    dtype_config,
    is_float,
    is_weight,
    known,
    rank,
    sizes_of,
    weight,
)
from onnxbridge.backends.tensorflow.layers import layer
from onnxbridge.backends.tensorflow.layers.norm import short


def _activation(x: ir.Value, name: str) -> Expression | None:
    return Expression("Activation", (x,), {"activation": name, **dtype_config(x)}) if is_float(x) else None


def _named(name: str) -> Callable[..., Expression | None]:
    def activation(node: ir.Node, X: ir.Value) -> Expression | None:
        return _activation(X, name)

    return activation


for _op, _name in {
    "Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "Softsign": "softsign", "Softplus": "softplus", "Mish": "mish",
    "HardSwish": "hard_silu",
}.items():  # fmt: skip
    layer(_op)(_named(_name))


@layer("Elu")
def elu(node: ir.Node, X: ir.Value, *, alpha: float = 1.0) -> Expression | None:
    return Expression("ELU", (X,), {"alpha": short(alpha, X), **dtype_config(X)}) if is_float(X) else None


@layer("Selu")
def selu(
    node: ir.Node, X: ir.Value, *, alpha: float = 1.6732631921768188, gamma: float = 1.0507010221481323
) -> Expression | None:
    return _activation(X, "selu") if (alpha, gamma) == (1.6732631921768188, 1.0507010221481323) else None


@layer("LeakyRelu")
def leaky_relu(node: ir.Node, X: ir.Value, *, alpha: float = 0.009999999776482582) -> Expression | None:
    if not is_float(X) or alpha < 0:
        return None
    return Expression("LeakyReLU", (X,), {"negative_slope": short(alpha, X), **dtype_config(X)})


@layer("PRelu")
def p_relu(node: ir.Node, X: ir.Value, slope: ir.Value) -> Expression | None:
    if rank(X) < 2 or not is_float(X, slope) or not is_weight(slope) or rank(slope) > rank(X):
        return None
    sizes = [1] * (rank(X) - rank(slope)) + sizes_of(slope)
    if sizes[0] != 1 or any(s not in (1, d) for s, d in zip(sizes, dims(X), strict=True)):
        return None
    shared = [i for i, s in enumerate(sizes) if i and s == 1]
    return Expression(
        "PReLU", (X,), {**({"shared_axes": shared} if shared else {}), **dtype_config(X)}, (weight(slope, shape=sizes[1:]),)
    )


@layer("HardSigmoid")
def hard_sigmoid(node: ir.Node, X: ir.Value, *, alpha: float = 0.20000000298023224, beta: float = 0.5) -> Expression | None:
    return _activation(X, "hard_sigmoid") if abs(alpha - 1 / 6) < 1e-7 and beta == 0.5 else None


@layer("Gelu")
def gelu(node: ir.Node, X: ir.Value, *, approximate: str = "none") -> Expression | None:
    if approximate == "tanh":
        exact = is_float(X) and X.dtype != ir.DataType.DOUBLE  # TensorFlow has its factor in float32
        return Expression("ops.gelu", (X,), {"approximate": True}) if exact and rank(X) >= 1 else None
    return _activation(X, "gelu")


@layer("Swish")
def swish(node: ir.Node, X: ir.Value, *, alpha: float = 1.0) -> Expression | None:
    return _activation(X, "silu") if alpha == 1.0 else None


@layer("Softmax")
def softmax(node: ir.Node, input: ir.Value, *, axis: int = -1) -> Expression | None:
    if not is_float(input) or rank(input) < 2:
        return None
    axis = axis - rank(input) if axis >= 0 else axis
    return Expression("Softmax", (input,), {**({} if axis == -1 else {"axis": axis}), **dtype_config(input)})


@layer("LogSoftmax")
def log_softmax(node: ir.Node, input: ir.Value, *, axis: int = -1) -> Expression | None:
    return Expression("ops.log_softmax", (input,), {"axis": axis}) if is_float(input) and rank(input) >= 1 else None


@layer("Clip")
def clip(node: ir.Node, input: ir.Value, min: ir.Value | None = None, max: ir.Value | None = None) -> Expression | None:  # noqa: A002
    bounds = [None if v is None else known(v) for v in (min, max)]
    if not is_float(input) or any(b is None and v is not None for b, v in zip(bounds, (min, max), strict=True)):
        return None
    low, high = (None if b is None else float(b.reshape(())) for b in bounds)
    if low == 0.0 and (high is None or 0 < high < float("inf")):
        return Expression("ReLU", (input,), {**({} if high is None else {"max_value": high}), **dtype_config(input)})
    if low is None or high is None or low > high:
        return None
    arguments: dict[str, Any] = {"x_min": low, "x_max": high}
    return Expression("ops.clip", (input,), arguments)
