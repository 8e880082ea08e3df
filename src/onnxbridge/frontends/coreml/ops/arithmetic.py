"""Elementwise arithmetic, comparison and logic."""

import onnx_ir as ir

from onnxbridge.frontends.coreml.dtypes import onnx_dtype
from onnxbridge.frontends.coreml.ops import rule
from onnxbridge.hub.ir.values import cast as to_dtype
from onnxbridge.hub.ir.values import is_integer
from onnxbridge.rules import Float, Str


def _unary(name, onnx):
    @rule(name)
    def unary(op, x):
        return op.call(onnx, x)


def _binary(name, onnx):
    @rule(name)
    def binary(op, x, y):
        return op.call(onnx, x, y)


for _name, _onnx in {
    "abs": "Abs", "acos": "Acos", "asin": "Asin", "atan": "Atan", "atanh": "Atanh", "ceil": "Ceil", "cos": "Cos", "cosh": "Cosh",
    "erf": "Erf", "exp": "Exp", "floor": "Floor", "logical_not": "Not", "round": "Round", "sign": "Sign", "sin": "Sin",
    "sinh": "Sinh", "sqrt": "Sqrt", "tan": "Tan", "tanh": "Tanh",
}.items():  # fmt: skip
    _unary(_name, _onnx)
for _name, _onnx in {
    "add": "Add", "equal": "Equal", "greater": "Greater", "greater_equal": "GreaterOrEqual", "less": "Less",
    "less_equal": "LessOrEqual", "logical_and": "And", "logical_or": "Or", "logical_xor": "Xor", "maximum": "Max",
    "minimum": "Min", "mul": "Mul", "pow": "Pow", "real_div": "Div", "sub": "Sub",
}.items():  # fmt: skip
    _binary(_name, _onnx)


@rule("not_equal")
def not_equal(op, x, y):
    return op.Not(op.Equal(x, y))


@rule("floor_div")
def floor_div(op, x, y):
    """ONNX's integer Div rounds toward zero, its Mod is that of floor division."""
    return op.Div(op.Sub(x, op.Mod(x, y)), y) if is_integer(x) else op.Floor(op.Div(x, y))


@rule("mod")
def mod(op, x, y):
    """The remainder with the sign of the divisor; ONNX's Mod of floats has that of the dividend."""
    if is_integer(x):
        return op.Mod(x, y)
    remainder = op.Mod(x, y, fmod=1)
    return op.Where(op.Less(op.Mul(op.Sign(remainder), op.Sign(y)), 0), op.Add(remainder, y), remainder)


@rule("cast")
def cast(op, x, dtype: Str):
    return to_dtype(op, x, onnx_dtype(dtype))


@rule("square")
def square(op, x):
    return op.Mul(x, x)


@rule("clip")
def clip(op, x, alpha, beta):
    return op.Clip(x, alpha, beta)


@rule("threshold")
def threshold(op, x, alpha):
    return op.Max(x, alpha)


@rule("exp2")
def exp2(op, x):
    return op.Pow(op.constant(2, dtype=x.dtype), x)


def _add_epsilon(op, x, epsilon):
    """x + epsilon; x if epsilon underflows in float16."""
    is_fp16 = x.dtype == ir.DataType.FLOAT16
    return op.Add(x, epsilon) if x.dtype.numpy().type(epsilon) or not is_fp16 else x


@rule("inverse")
def inverse(op, x, epsilon: Float = 1e-4):
    return op.Reciprocal(_add_epsilon(op, x, epsilon))


@rule("log")
def log(op, x, epsilon: Float = 1e-45):
    return op.Log(_add_epsilon(op, x, epsilon))


@rule("rsqrt")
def rsqrt(op, x, epsilon: Float = 1e-12):
    return op.Reciprocal(op.Sqrt(_add_epsilon(op, x, epsilon)))
