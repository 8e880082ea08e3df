"""Elementwise arithmetic: unary, binary with broadcasting, and with a scalar."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.frontends.mxnet.ops.types import NARROW
from onnxbridge.hub.decompositions.complex_numbers import arithmetic as complex_arithmetic
from onnxbridge.hub.ir.values import UNSIGNED, cast, is_integer, like

BOOL, DOUBLE, INT32, INT64 = (getattr(ir.DataType, n) for n in ("BOOL", "DOUBLE", "INT32", "INT64"))
EXACT = {
    "abs": "Abs", "_copy": "Identity", "identity": "Identity", "BlockGrad": "Identity",
    "stop_gradient": "Identity", "make_loss": "Identity",
}  # fmt: skip
FLOATING = {
    "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "sin": "Sin", "cos": "Cos", "tan": "Tan", "arcsin": "Asin", "arccos": "Acos",
    "arctan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "tanh": "Tanh", "arcsinh": "Asinh", "arccosh": "Acosh",
    "arctanh": "Atanh", "erf": "Erf", "ceil": "Ceil", "floor": "Floor", "reciprocal": "Reciprocal",
}  # fmt: skip


def _exact(onnx):
    def lower(op, data):
        return op.call(onnx, data)

    return lower


def floating(function):
    """A function of floats; for integers MXNet computes in double precision and truncates."""

    def lower(op, data):
        if not is_integer(data):
            return function(op, data)
        return op.Cast(function(op, op.Cast(data, to=DOUBLE)), to=data.dtype)

    return lower


for _name, _onnx in EXACT.items():
    rule(_name)(_exact(_onnx))
for _name, _onnx in FLOATING.items():
    rule(_name)(floating(_exact(_onnx)))


@rule("negative")
def negative(op, data):
    return op.Sub(0, data) if data.dtype in UNSIGNED else op.Neg(data)


@rule("sign", "_contrib_sign_ste")
def sign(op, data):
    """In MXNet the sign of NaN is 0."""
    return op.Sign(op.Where(op.IsNaN(data), 0, data) if data.dtype.is_floating_point() else data)


@rule("MakeLoss")
def make_loss(op, data, *, valid_thresh=0.0, normalization="null"):
    return op.Identity(data)


@rule("IdentityAttachKLSparseReg")
def identity_attach_kl_sparse_reg(op, data, moving_avg=None, *, sparseness_target=0.1, penalty=0.001):
    return op.Identity(data)


@rule("_identity_with_attr_like_rhs")
def identity_with_attr_like_rhs(op, lhs, rhs):
    return op.Identity(lhs)


@rule("_contrib_gradientmultiplier")
def gradientmultiplier(op, data, *, scalar=1.0, is_int=True):
    return op.Identity(data)


@rule("_contrib_round_ste", "round")
@floating
def round_(op, data):
    """Round half away from zero."""
    size = op.Abs(data)
    floor = op.Floor(size)
    return op.Mul(op.Sign(data), op.Where(op.GreaterOrEqual(op.Sub(size, floor), 0.5), op.Add(floor, 1.0), floor))


@rule("rint")
@floating
def rint(op, data):
    """Round half down."""
    low, high = op.Floor(data), op.Ceil(data)
    return op.Where(op.LessOrEqual(op.Sub(data, low), op.Sub(high, data)), low, high)


@rule("fix", "trunc")
@floating
def trunc(op, data):
    return op.Mul(op.Sign(data), op.Floor(op.Abs(data)))


@rule("square")
def square(op, data):
    return op.Mul(data, data)


@rule("rsqrt")
@floating
def rsqrt(op, data):
    return op.Reciprocal(op.Sqrt(data))


@rule("cbrt")
@floating
def cbrt(op, data):
    return op.Mul(op.Sign(data), op.Pow(op.Abs(data), 1 / 3))


@rule("rcbrt")
@floating
def rcbrt(op, data):
    return op.Where(op.Equal(data, 0), op.Reciprocal(data), op.Mul(op.Sign(data), op.Pow(op.Abs(data), -1 / 3)))


@rule("log2")
@floating
def log2(op, data):
    return op.Div(op.Log(data), math.log(2))


@rule("log10")
@floating
def log10(op, data):
    return op.Div(op.Log(data), math.log(10))


@rule("log1p")
@floating
def log1p(op, data):
    """Near 0, log(1 + x) loses the rounding error of u = 1 + x; x / (u - 1) corrects it."""
    u = op.Add(data, 1.0)
    rest = op.Sub(u, 1.0)
    is_zero = op.Equal(rest, 0.0)
    corrected = op.Where(is_zero, data, op.Mul(op.Log(u), op.Div(data, op.Where(is_zero, 1.0, rest))))
    return op.Where(op.Less(op.Abs(data), 0.5), corrected, op.Log(u))


@rule("expm1")
@floating
def expm1(op, data):
    """Near 0, exp(x) - 1 loses the rounding error of u = exp(x); x / log(u) corrects it."""
    u = op.Exp(data)
    rest, log = op.Sub(u, 1.0), op.Log(u)
    is_zero = op.Equal(log, 0.0)
    corrected = op.Where(is_zero, data, op.Mul(rest, op.Div(data, op.Where(is_zero, 1.0, log))))
    return op.Where(op.Less(op.Abs(data), 0.5), corrected, rest)


@rule("degrees")
@floating
def degrees(op, data):
    return op.Mul(data, 180 / math.pi)


@rule("radians")
@floating
def radians(op, data):
    return op.Mul(data, math.pi / 180)


@rule("logical_not")
def logical_not(op, data):
    return like(op, op.Equal(data, 0), data)


@rule("_contrib_quadratic")
def quadratic(op, data, *, a=0.0, b=0.0, c=0.0):
    return op.Add(op.Mul(op.Add(op.Mul(data, a), b), data), c)


@rule("_contrib_div_sqrt_dim")
def div_sqrt_dim(op, data):
    last = op.Cast(op.Shape(data, start=-1), to=data.dtype)
    return op.Div(data, op.Sqrt(last))


@rule("smooth_l1", "_npx_smooth_l1")
def smooth_l1(op, data, *, scalar=1.0, is_int=True):
    """0.5 (scalar x)^2 below 1 / scalar^2, |x| - 0.5 / scalar^2 from there on."""
    size, square = op.Abs(data), scalar * scalar
    return op.Where(op.Less(size, 1 / square), op.Mul(op.Mul(data, data), 0.5 * square), op.Sub(size, 0.5 / square))


@rule("clip")
def clip(op, data, *, a_min, a_max):
    if is_integer(data):
        limits = np.iinfo(data.dtype.numpy())
        a_min, a_max = (min(max(int(bound), limits.min), limits.max) for bound in (a_min, a_max))
    return op.Clip(data, a_min, a_max)


@rule("add_n", "ElementWiseSum")
def add_n(op, *args):
    total = args[0]
    for item in args[1:]:
        total = op.Add(total, item)
    return total if len(args) > 1 else op.Identity(total)


# binary operators


def add(op, a, b):
    return op.Add(a, b)


def sub(op, a, b):
    return op.Sub(a, b)


def mul(op, a, b):
    return op.Mul(a, b)


def div(op, a, b):
    return op.Div(a, b)


def power(op, a, b):
    if a.dtype in NARROW:
        return like(op, op.Pow(cast(op, a, INT32), cast(op, b, INT32)), a)
    return op.Pow(a, b)


def maximum(op, a, b):
    return op.Max(a, b)


def minimum(op, a, b):
    return op.Min(a, b)


def mod(op, a, b):
    """The remainder has the sign of the divisor, and is 0 for a divisor of 0."""
    none = op.Equal(b, 0)
    divisor = op.Where(none, 1, b)
    if is_integer(a):
        return op.Where(none, 0, op.Mod(a, divisor))
    rest = op.Mod(a, divisor, fmod=1)
    other = op.And(op.Not(op.Equal(rest, 0)), op.Xor(op.Less(rest, 0), op.Less(divisor, 0)))
    return op.Where(none, 0, op.Where(other, op.Add(rest, divisor), rest))


def hypot(op, a, b):
    if is_integer(a):
        return op.Cast(hypot(op, op.Cast(a, to=DOUBLE), op.Cast(b, to=DOUBLE)), to=a.dtype)
    return complex_arithmetic.hypot(op, a, b)


def _truth(onnx):
    def compare(op, a, b):
        return like(op, op.call(onnx, a, b), a)

    return compare


def _logical(onnx):
    def combine(op, a, b):
        return like(op, op.call(onnx, cast(op, a, BOOL), cast(op, b, BOOL)), a)

    return combine


def not_equal(op, a, b):
    return like(op, op.Not(op.Equal(a, b)), a)


BINARY = {
    "add": add, "sub": sub, "mul": mul, "div": div, "power": power, "maximum": maximum, "minimum": minimum, "mod": mod,
    "hypot": hypot, "equal": _truth("Equal"), "not_equal": not_equal, "greater": _truth("Greater"),
    "greater_equal": _truth("GreaterOrEqual"), "lesser": _truth("Less"), "lesser_equal": _truth("LessOrEqual"),
    "logical_and": _logical("And"), "logical_or": _logical("Or"), "logical_xor": _logical("Xor"),
}  # fmt: skip
ALIASES = {
    "add": ("elemwise_add", "broadcast_plus", "_plus", "_Plus", "_add", "_grad_add"),
    "sub": ("elemwise_sub", "broadcast_minus", "_minus", "_Minus", "_sub"),
    "mul": ("elemwise_mul", "_mul", "_Mul"),
    "div": ("elemwise_div", "_div", "_Div", "_scatter_elemwise_div"),
    "power": ("_power", "_Power"),
    "maximum": ("_maximum", "_Maximum"),
    "minimum": ("_minimum", "_Minimum"),
    "mod": ("_mod", "_Mod"),
    "hypot": ("_hypot", "_Hypot"),
    "equal": ("_equal", "_Equal"),
    "not_equal": ("_not_equal", "_Not_Equal"),
    "greater": ("_greater", "_Greater"),
    "greater_equal": ("_greater_equal", "_Greater_Equal"),
    "lesser": ("_lesser", "_Lesser"),
    "lesser_equal": ("_lesser_equal", "_Lesser_Equal"),
    "logical_and": ("_logical_and", "_Logical_And"),
    "logical_or": ("_logical_or", "_Logical_Or"),
    "logical_xor": ("_logical_xor", "_Logical_Xor"),
}


def _binary(function):
    def lower(op, lhs, rhs, *, axis=None):
        """MXNet ignores `axis`, which its own cosine loss writes."""
        return function(op, lhs, rhs)

    return lower


def _scalar(function, reverse=False):
    """Integers and booleans give float64 if the scalar is fractional, booleans int64 if it is not."""

    def lower(op, data, *, scalar=1.0, is_int=True):
        if not data.dtype.is_floating_point() and not is_int:
            data = op.Cast(data, to=DOUBLE)
        elif data.dtype == BOOL:
            data = op.Cast(data, to=INT64)
        number = op.constant(int(scalar) if is_integer(data) else scalar, dtype=data.dtype)
        return function(op, number, data) if reverse else function(op, data, number)

    return lower


SCALAR = {
    "plus": (add, "Plus"), "minus": (sub, "Minus"), "mul": (mul, "Mul"), "div": (div, "Div"), "mod": (mod, "Mod"),
    "power": (power, "Power"), "maximum": (maximum, "Maximum"), "minimum": (minimum, "Minimum"), "hypot": (hypot, "Hypot"),
    "equal": (BINARY["equal"], "Equal"), "not_equal": (BINARY["not_equal"], "NotEqual"),
    "greater": (BINARY["greater"], "Greater"), "greater_equal": (BINARY["greater_equal"], "GreaterEqual"),
    "lesser": (BINARY["lesser"], "Lesser"), "lesser_equal": (BINARY["lesser_equal"], "LesserEqual"),
    "logical_and": (BINARY["logical_and"], "LogicalAnd"), "logical_or": (BINARY["logical_or"], "LogicalOr"),
    "logical_xor": (BINARY["logical_xor"], "LogicalXor"),
}  # fmt: skip
for _name, _function in BINARY.items():
    rule(f"broadcast_{_name}", *ALIASES[_name])(_binary(_function))
for _name, (_function, _old) in SCALAR.items():
    rule(f"_{_name}_scalar", f"_{_old}Scalar")(_scalar(_function))
for _name, (_function, _old) in {k: SCALAR[k] for k in ("minus", "div", "mod", "power")}.items():
    rule(f"_r{_name}_scalar", f"_R{_old}Scalar")(_scalar(_function, reverse=True))
rule("_scatter_plus_scalar")(_scalar(add))
rule("_scatter_minus_scalar")(_scalar(sub))
