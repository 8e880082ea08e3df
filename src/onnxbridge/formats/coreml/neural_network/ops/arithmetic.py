"""Elementwise arithmetic, comparison and logic. All blobs are float32, including truth values."""

import functools

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.formats.coreml.neural_network import weights as stored
from onnxbridge.formats.coreml.neural_network.ops import rule


def float32(value):
    return np.float32(value)


def _unary(layer, op):
    @rule(layer)
    def unary(mil, x):
        return mil.emit(op, x=x)


def _binary(layer, op):
    @rule(layer)
    def binary(mil, x, y):
        return mil.emit(op, x=x, y=y)


def _comparison(layer, op):
    @rule(layer)
    def compare(mil, x, y=None, *, alpha=0.0):
        return mil.cast(x=mil.emit(op, x=x, y=float32(alpha) if y is None else y), dtype="fp32")


def _logic(layer, op):
    @rule(layer)
    def logic(mil, x, y):
        return mil.cast(x=mil.emit(op, x=mil.cast(x=x, dtype="bool"), y=mil.cast(x=y, dtype="bool")), dtype="fp32")


def _variadic(layer, op):
    @rule(layer)
    def variadic(mil, *xs, alpha=None):
        found = functools.reduce(lambda x, y: mil.emit(op, x=x, y=y), xs)
        return found if alpha is None or len(xs) > 1 else mil.emit(op, x=found, y=float32(alpha))


for _name in ["ceil", "floor", "sign", "round", "exp2", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh",
              "atanh", "erf"]:  # fmt: skip
    _unary(_name, _name)
for _name in ["mod", "pow", "add"]:
    _binary(f"{_name}Broadcastable", _name)
for _name, _op in {"divide": "real_div", "floorDiv": "floor_div", "multiply": "mul", "subtract": "sub"}.items():
    _binary(f"{_name}Broadcastable", _op)
for _name, _op in {"equal": "equal", "notEqual": "not_equal", "lessThan": "less", "lessEqual": "less_equal",
                   "greaterThan": "greater", "greaterEqual": "greater_equal"}.items():  # fmt: skip
    _comparison(_name, _op)
for _name, _op in {"logicalOr": "logical_or", "logicalXor": "logical_xor", "logicalAnd": "logical_and"}.items():
    _logic(_name, _op)
for _name, _op in {"add": "add", "multiply": "mul", "max": "maximum", "min": "minimum", "maxBroadcastable": "maximum",
                   "minBroadcastable": "minimum"}.items():  # fmt: skip
    _variadic(_name, _op)


@rule("logicalNot")
def logical_not(mil, x):
    return mil.cast(x=mil.logical_not(x=mil.cast(x=x, dtype="bool")), dtype="fp32")


@rule("average")
def average(mil, *xs):
    return mil.mul(x=functools.reduce(lambda x, y: mil.add(x=x, y=y), xs), y=float32(1 / len(xs)))


@rule("copy")
def copy(mil, x):
    return mil.identity(x=x)


@rule("asinh")
def asinh(mil, x):
    """sign(x) log(|x| + sqrt(x^2 + 1)), which does not cancel for large negative numbers."""
    size = mil.abs(x=x)
    root = mil.sqrt(x=mil.add(x=mil.square(x=x), y=float32(1)))
    return mil.mul(x=mil.sign(x=x), y=mil.log(x=mil.add(x=size, y=root), epsilon=float32(0)))


@rule("acosh")
def acosh(mil, x):
    root = mil.sqrt(x=mil.sub(x=mil.square(x=x), y=float32(1)))
    return mil.log(x=mil.add(x=x, y=root), epsilon=float32(0))


@rule("clip")
def clip(mil, x, *, minVal=0.0, maxVal=0.0):
    return mil.clip(x=x, alpha=float32(minVal), beta=float32(maxVal))


@rule("unary")
def unary(mil, x, *, type="SQRT", alpha=0.0, epsilon=1e-6, shift=0.0, scale=1.0):
    """Applies a function to scale * x + shift."""
    x = x if scale == 1 else mil.mul(x=x, y=float32(scale))
    x = x if shift == 0 else mil.add(x=x, y=float32(shift))
    if type == "POWER":
        return mil.pow(x=x, y=float32(alpha))
    if type == "THRESHOLD":
        return mil.threshold(x=x, alpha=float32(alpha))
    if type in ("RSQRT", "INVERSE"):
        return mil.emit(type.lower(), x=x, epsilon=float32(epsilon))
    if type == "LOG":
        return mil.log(x=x, epsilon=float32(0))
    if type not in ("SQRT", "EXP", "ABS"):
        raise Unsupported(f"type {type}")
    return mil.emit(type.lower(), x=x)


@rule("dot")
def dot(mil, x, y, *, cosineSimilarity=False):
    axes = np.array([-3])
    product = mil.reduce_sum(x=mil.mul(x=x, y=y), axes=axes, keep_dims=True)
    if not cosineSimilarity:
        return product
    lengths = (mil.reduce_l2_norm(x=v, axes=axes, keep_dims=True) for v in (x, y))
    return mil.real_div(x=product, y=functools.reduce(lambda a, b: mil.mul(x=a, y=b), lengths))


def _broadcast_weight(mil, params, shape, name):
    """A weight of shape [1], [C], [1, H, W] or [C, H, W], reshaped to broadcast to a blob."""
    shape = tuple(int(n) for n in shape)
    values = stored.read(params, shape)
    return mil.weight(values.reshape(*shape, 1, 1) if len(shape) == 1 else values, name)


@rule("scale")
def scale(mil, x, *, shapeScale, scale, hasBias=False, shapeBias=(), bias=None):
    y = mil.mul(x=x, y=_broadcast_weight(mil, scale, shapeScale, "scale"))
    return mil.add(x=y, y=_broadcast_weight(mil, bias, shapeBias, "bias")) if hasBias else y


@rule("bias")
def bias(mil, x, *, shape, bias):
    return mil.add(x=x, y=_broadcast_weight(mil, bias, shape, "bias"))


@rule("whereBroadcastable")
def where_broadcastable(mil, condition, x, y):
    return mil.select(cond=mil.cast(x=condition, dtype="bool"), a=x, b=y)
