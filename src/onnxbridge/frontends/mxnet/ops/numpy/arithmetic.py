"""Elementwise operators of `mx.np`: unary, binary with broadcasting, and with a scalar."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.mxnet.ops import arithmetic, rule
from onnxbridge.frontends.mxnet.ops.arithmetic import floating
from onnxbridge.frontends.mxnet.ops.types import NARROW
from onnxbridge.hub.ir.values import cast, is_integer, like

BOOL, FLOAT, DOUBLE, INT32, INT64 = (getattr(ir.DataType, n) for n in ("BOOL", "FLOAT", "DOUBLE", "INT32", "INT64"))
ORDER = ("BOOL", "UINT8", "INT8", "INT16", "INT32", "INT64", "FLOAT16", "FLOAT", "DOUBLE")
"""Two operands of different types are computed in the later of the two."""

EXACT = {"abs": "Abs", "absolute": "Abs"}
FLOATING = {
    "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "sin": "Sin", "cos": "Cos", "tan": "Tan", "arcsin": "Asin", "arccos": "Acos",
    "arctan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "tanh": "Tanh", "arcsinh": "Asinh", "arccosh": "Acosh",
    "arctanh": "Atanh", "ceil": "Ceil", "floor": "Floor", "reciprocal": "Reciprocal",
}  # fmt: skip
SHARED = {
    "cbrt": arithmetic.cbrt, "log2": arithmetic.log2, "log10": arithmetic.log10, "log1p": arithmetic.log1p,
    "expm1": arithmetic.expm1, "degrees": arithmetic.degrees, "radians": arithmetic.radians, "rint": arithmetic.rint,
    "trunc": arithmetic.trunc, "fix": arithmetic.trunc, "sign": arithmetic.sign, "square": arithmetic.square,
    "negative": arithmetic.negative,
}  # fmt: skip


def _unary(function):
    def lower(op, x):
        return function(op, x)

    return lower


for _name, _onnx in EXACT.items():
    rule(f"_npi_{_name}")(_unary(lambda op, x, onnx=_onnx: op.call(onnx, x)))
def _unary_of_floats(function):
    def lower(op, x, *, mxnet_2=False):
        """Integers give integers in MXNet 1, and float32 in MXNet 2."""
        return function(op, op.Cast(x, to=FLOAT) if mxnet_2 and is_integer(x) else x)

    return lower


for _name, _onnx in FLOATING.items():
    rule(f"_npi_{_name}")(_unary_of_floats(floating(lambda op, x, onnx=_onnx: op.call(onnx, x))))
for _name, _function in SHARED.items():
    rule(f"_npi_{_name}")((_unary if _name in ("sign", "square", "trunc", "fix", "negative") else _unary_of_floats)(_function))


# whether elements are special values; those of integers and booleans are not


def _special(op, x, *tests):
    if not x.dtype.is_floating_point():
        return op.Expand(op.constant(np.False_), op.Shape(x))
    found = tests[0](x)
    for test in tests[1:]:
        found = op.Or(found, test(x))
    return found


@rule("_npi_isnan")
def isnan(op, x):
    return _special(op, x, op.IsNaN)


@rule("_npi_isinf")
def isinf(op, x):
    return _special(op, x, op.IsInf)


@rule("_npi_isposinf")
def isposinf(op, x):
    return _special(op, x, lambda v: op.IsInf(v, detect_negative=0))


@rule("_npi_isneginf")
def isneginf(op, x):
    return _special(op, x, lambda v: op.IsInf(v, detect_positive=0))


@rule("_npi_isfinite")
def isfinite(op, x):
    return op.Not(_special(op, x, op.IsNaN, op.IsInf))


@rule("_npi_nan_to_num")
def nan_to_num(op, data, *, copy=True, nan=0.0, posinf=None, neginf=None):
    """Infinities become the largest finite numbers unless given."""
    if not data.dtype.is_floating_point():
        return op.Identity(data)
    limits = np.finfo(data.dtype.numpy())
    high = float(limits.max) if posinf is None else posinf
    low = float(limits.min) if neginf is None else neginf
    y = op.Where(op.IsInf(data, detect_negative=0), high, op.Where(op.IsInf(data, detect_positive=0), low, data))
    return op.Where(op.IsNaN(data), nan, y)


@rule("_npi_logical_not")
def logical_not(op, x):
    return op.Not(cast(op, x, BOOL))


@rule("_npi_bitwise_not")
def bitwise_not(op, x):
    return op.Not(x) if x.dtype == BOOL else op.BitwiseNot(x)


@rule("_npi_around")
def around(op, x, *, decimals=0):
    """Round half to even; an integer is cut off at a digit left of the point."""
    if is_integer(x):
        step = op.constant(10 ** max(0, -decimals), dtype=x.dtype)
        return op.Mul(op.Div(x, step), step) if decimals < 0 else op.Identity(x)
    if not decimals:
        return op.Round(x)
    step = float(10 ** abs(decimals))
    return op.Div(op.Round(op.Mul(x, step)), step) if decimals > 0 else op.Mul(op.Round(op.Div(x, step)), step)


# binary operators


def promoted(op, a, b):
    """Both operands in the later type of the two in `ORDER`."""
    later = max(a.dtype, b.dtype, key=lambda t: ORDER.index(t.name) if t.name in ORDER else -1)
    return cast(op, a, later), cast(op, b, later)


def _boolean(function, onnx):
    """An arithmetic operator that is a logical one on booleans."""

    def lower(op, a, b):
        return op.call(onnx, a, b) if a.dtype == BOOL else function(op, a, b)

    return lower


def power(op, a, b):
    return op.Or(a, op.Not(b)) if a.dtype == BOOL else arithmetic.power(op, a, b)


def true_divide(op, a, b):
    """Integers and booleans are divided in float32."""
    return op.Div(*(x if x.dtype.is_floating_point() else op.Cast(x, to=FLOAT) for x in (a, b)))


def floor_divide(op, a, b):
    if not is_integer(a):
        return op.Floor(op.Div(a, b))
    quotient = op.Div(op.Sub(a, arithmetic.mod(op, a, b)), op.Where(op.Equal(b, 0), 1, b))
    return op.Where(op.Equal(b, 0), 0, quotient)


def fmod(op, a, b):
    return op.Mod(a, b, fmod=1)


def copysign(op, a, b):
    """The size of one with the sign of the other; in MXNet the sign of a negative zero is positive."""
    size = op.Abs(a)
    return op.Where(op.Less(b, 0), op.Neg(size), size)


def _signed(op, size, y):
    """A number with the sign of `y`, or of its reciprocal if it is 0."""
    size = op.constant(size, dtype=y.dtype)
    return op.Where(op.Less(op.Where(op.Equal(y, 0), op.Reciprocal(y), y), 0), op.Neg(size), size)


def arctan2(op, y, x):
    """The angle of the point (x, y), from -pi to pi."""
    slope = op.Atan(op.Div(y, x))
    is_left = op.Less(op.Where(op.Equal(x, 0), op.Reciprocal(x), x), 0)
    turned = op.Where(is_left, op.Add(slope, _signed(op, np.pi, y)), slope)
    turned = op.Where(op.Equal(y, 0), op.Where(is_left, _signed(op, np.pi, y), _signed(op, 0.0, y)), turned)
    corner = op.Where(op.Less(x, 0), _signed(op, 0.75 * np.pi, y), _signed(op, 0.25 * np.pi, y))
    return op.Where(op.And(op.IsInf(x), op.IsInf(y)), corner, turned)


def ldexp(op, a, b):
    """a * 2 ** b"""
    return op.Mul(a, op.Pow(op.constant(2, dtype=a.dtype), b))


def lcm(op, a, b):
    """The least common multiple, 0 if either number is 0."""
    a, b = op.Abs(a), op.Abs(b)
    divisor = gcd(op, a, b)
    return op.Mul(op.Div(a, op.Where(op.Equal(divisor, 0), 1, divisor)), b)


def gcd(op, a, b):
    """The greatest common divisor, by Euclid's algorithm, whose steps number at most 1.45 per bit."""
    a, b = (op.Abs(op.Cast(v, to=INT64)) for v in (a, b))
    shape = op.Shape(op.Add(a, b))

    def body(i, going, x, y):
        rest = op.Where(op.Equal(y, 0), x, y), op.Where(op.Equal(y, 0), y, op.Mod(x, op.Where(op.Equal(y, 0), 1, y)))
        return op.Cast(op.ReduceMax(op.Abs(rest[1]), keepdims=0), to=BOOL), *rest

    return op.Loop(np.int64(93), op.constant(np.True_), op.Expand(a, shape), op.Expand(b, shape), body=body, outputs=2)[0]


def _ignoring_nan(extreme):
    """The larger or the smaller operand; a number rather than NaN."""

    def lower(op, a, b):
        if not a.dtype.is_floating_point():
            return extreme(op, a, b)
        return op.Where(op.IsNaN(a), b, op.Where(op.IsNaN(b), a, extreme(op, a, b)))

    return lower


def logaddexp(op, a, b):
    """log(exp(a) + exp(b))"""
    largest = op.Max(a, b)
    return op.Add(largest, op.Log(op.Add(op.Exp(op.Neg(op.Abs(op.Sub(a, b)))), 1.0)))


def _shifted(op, a, b, combine):
    """Shifts as products and quotients of powers of two, exact up to 2^53."""
    power_of_two = op.Cast(op.Pow(op.constant(2.0, dtype=DOUBLE), op.Cast(b, to=DOUBLE)), to=INT64)
    return like(op, combine(op, op.Cast(a, to=INT64), power_of_two), a)


def bitwise_left_shift(op, a, b):
    return _shifted(op, a, b, lambda op, x, y: op.Mul(x, y))


def bitwise_right_shift(op, a, b):
    return _shifted(op, a, b, floor_divide)


def _in_floats(function, dtype):
    """A function of floats; integers are computed in floating point and truncated."""

    def lower(op, a, b):
        if not is_integer(a):
            return function(op, a, b)
        return op.Cast(function(op, op.Cast(a, to=dtype), op.Cast(b, to=dtype)), to=a.dtype)

    return lower


def _in_integers(function):
    def lower(op, a, b):
        return like(op, function(op, op.Cast(a, to=INT64), op.Cast(b, to=INT64)), a)

    return lower


def _compared(onnx):
    def compare(op, a, b):
        return op.call(onnx, a, b)

    return compare


def not_equal(op, a, b):
    return op.Not(op.Equal(a, b))


def _ordered(onnx):
    """A comparison by size, in which False is less than True."""

    def compare(op, a, b):
        return op.call(onnx, *(op.Cast(v, to=INT32) if v.dtype == BOOL or v.dtype in NARROW else v for v in (a, b)))

    return compare


def _logical(onnx):
    def combine(op, a, b):
        return op.call(onnx, cast(op, a, BOOL), cast(op, b, BOOL))

    return combine


def _bitwise(onnx, logical):
    def combine(op, a, b):
        return op.call(logical if a.dtype == BOOL else onnx, a, b)

    return combine


# operators whose operands may have different types
MIXED = {
    "add": _boolean(arithmetic.add, "Or"), "subtract": arithmetic.sub, "multiply": _boolean(arithmetic.mul, "And"),
    "power": power, "mod": arithmetic.mod, "true_divide": true_divide,
}  # fmt: skip
BINARY = MIXED | {
    "maximum": arithmetic.maximum, "minimum": arithmetic.minimum, "equal": _compared("Equal"), "not_equal": not_equal,
    "greater": _ordered("Greater"), "greater_equal": _ordered("GreaterOrEqual"), "less": _ordered("Less"),
    "less_equal": _ordered("LessOrEqual"), "arctan2": _in_floats(arctan2, FLOAT), "copysign": copysign,
    "ldexp": _in_floats(ldexp, DOUBLE), "lcm": _in_integers(lcm), "bitwise_and": _bitwise("BitwiseAnd", "And"),
    "bitwise_or": _bitwise("BitwiseOr", "Or"), "bitwise_xor": _bitwise("BitwiseXor", "Xor"),
}  # fmt: skip
IN_VERSION_2 = {
    "floor_divide": floor_divide, "fmod": fmod, "fmax": _ignoring_nan(arithmetic.maximum),
    "fmin": _ignoring_nan(arithmetic.minimum), "gcd": _in_integers(gcd), "logaddexp": _in_floats(logaddexp, FLOAT),
    "logical_and": _logical("And"), "logical_or": _logical("Or"), "logical_xor": _logical("Xor"),
    "bitwise_left_shift": bitwise_left_shift, "bitwise_right_shift": bitwise_right_shift,
}  # fmt: skip
"""Operators that MXNet 2 added."""
REVERSED = (
    "subtract", "power", "mod", "true_divide", "arctan2", "copysign", "ldexp", "floor_divide", "fmod", "bitwise_left_shift",
    "bitwise_right_shift",
)  # fmt: skip
NAMES = {"arctan2": ("x1", "x2"), "logaddexp": ("x1", "x2")}
TRUTHS = frozenset({
    "equal", "not_equal", "greater", "greater_equal", "less", "less_equal", "logical_and", "logical_or", "logical_xor",
})  # fmt: skip
BITWISE = frozenset({"bitwise_and", "bitwise_or", "bitwise_xor"})


def _binary(function, mixed):
    def lower(op, lhs, rhs):
        return function(op, *(promoted(op, lhs, rhs) if mixed else (lhs, rhs)))

    return lower


def _binary_of_points(function):
    def lower(op, x1, x2):
        return function(op, x1, x2)

    return lower


def _scalar(name, function, reverse=False):
    """The scalar has the array's type. Integers are computed in float64 if it is fractional, booleans in int64.

    Booleans are compared with whether the scalar is not 0.
    """

    def lower(op, data, *, scalar=1.0, is_int=True):
        if name == "true_divide" and not data.dtype.is_floating_point():
            data = op.Cast(data, to=FLOAT)
        elif not is_int and (is_integer(data) or (data.dtype == BOOL and name not in TRUTHS | BITWISE)):
            data = op.Cast(data, to=DOUBLE)
        elif data.dtype == BOOL and name not in TRUTHS | BITWISE:
            data = op.Cast(data, to=INT64)
        number = int(scalar) if is_integer(data) else scalar
        number = op.constant(np.asarray(number).astype(data.dtype.numpy()))
        return function(op, number, data) if reverse else function(op, data, number)

    return lower


for _name, _function in (BINARY | IN_VERSION_2).items():
    mixed = _name in MIXED or _name in IN_VERSION_2
    rule(f"_npi_{_name}")(_binary_of_points(_function) if _name in NAMES else _binary(_function, mixed))
    rule(f"_npi_{_name}_scalar")(_scalar(_name, _function))
    if _name in REVERSED:
        rule(f"_npi_r{_name}_scalar")(_scalar(_name, _function, reverse=True))


@rule("_npi_hypot")
def hypot(op, x1, x2):
    return arithmetic.hypot(op, x1, x2)


@rule("_npi_polyval")
def polyval(op, p, x):
    """Horner's rule, highest power first."""
    count = p.shape[0]
    if not isinstance(count, int):
        raise Unsupported("a polynomial of dynamic degree is not supported", hint="give the coefficients a fixed shape")
    y = op.Expand(op.constant(np.zeros((), x.dtype.numpy())), op.Shape(x))
    for k in range(count):
        y = op.Add(op.Mul(y, x), op.Gather(p, np.int64(k)))
    return y
