"""Elementwise arithmetic with PyTorch's type promotion."""

import math

import numpy as np
import onnx_ir as ir

from onnxbridge.frontends.pytorch.fx.promotion import cast, is_float, promote, promote_to_float, result_type
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.frontends.pytorch.ops.activation import clip, expm1, log1p
from onnxbridge.hub.decompositions.complex_numbers import arithmetic as complex_arithmetic
from onnxbridge.hub.ir import fold
from onnxbridge.hub.ir.values import UNSIGNED

D = ir.DataType
LN2, LN10 = math.log(2), math.log(10)


def add_promoted(op, a, b):
    a, b = promote(op, a, b)
    return op.Or(a, b) if a.dtype == D.BOOL else op.Add(a, b)


def multiply_promoted(op, a, b):
    a, b = promote(op, a, b)
    return op.And(a, b) if a.dtype == D.BOOL else op.Mul(a, b)


def times_alpha(op, self, other, alpha):
    """alpha * other in the common dtype of self and other."""
    if isinstance(alpha, (int, float)) and alpha == 1:
        return other
    return multiply_promoted(op, cast(op, other, result_type(self, other)), alpha)


@rule("aten::add.Tensor", "aten::add.Scalar")
def add(op, self, other, *, alpha=1):
    return add_promoted(op, self, times_alpha(op, self, other, alpha))


@rule("aten::sub.Tensor", "aten::sub.Scalar", "aten::subtract.Tensor", "aten::subtract.Scalar")
def sub(op, self, other, *, alpha=1):
    return op.Sub(*promote(op, self, times_alpha(op, self, other, alpha)))


@rule("aten::rsub.Tensor", "aten::rsub.Scalar")
def rsub(op, self, other, alpha=1):
    return op.Sub(*promote(op, other, times_alpha(op, other, self, alpha)))


@rule("aten::mul.Tensor", "aten::mul.Scalar", "aten::multiply.Tensor", "aten::multiply.Scalar")
def mul(op, self, other):
    return multiply_promoted(op, self, other)


@rule("aten::div.Tensor", "aten::div.Scalar", "aten::divide.Tensor", "aten::divide.Scalar", "aten::true_divide.Tensor",
      "aten::true_divide.Scalar")  # fmt: skip
def div(op, self, other):
    return op.Div(*promote_to_float(op, self, other))


@rule("aten::div.Tensor_mode", "aten::div.Scalar_mode", "aten::divide.Tensor_mode", "aten::divide.Scalar_mode")
def div_mode(op, self, other, *, rounding_mode):
    if rounding_mode is None:
        return div(op, self, other)
    if rounding_mode == "floor":
        return floor_divide(op, self, other)
    a, b = promote(op, self, other)
    return trunc(op, op.Div(a, b))


@rule("aten::floor_divide", "aten::floor_divide.Scalar")
def floor_divide(op, self, other):
    a, b = promote(op, self, other)
    if is_float(a):
        # uses the remainder, as a / b may round up to an integer greater than the exact quotient
        rest = remainder(op, a, b)
        exact = op.Div(op.Sub(a, rest), b)
        return op.Where(op.Equal(b, 0.0), op.Div(a, b), _round_half_down(op, exact))
    q = op.Div(a, b)
    uneven = op.Not(op.Equal(op.Mul(q, b), a))
    divisor = fold.constant_array(b)
    positive = divisor is not None and (divisor > 0).all()
    signs_differ = op.Less(a, 0) if positive else op.Xor(op.Less(a, 0), op.Less(b, 0))
    return op.Sub(q, op.Cast(op.And(uneven, signs_differ), to=a.dtype)) if a.dtype not in UNSIGNED else q


def _round_half_down(op, x):
    f = op.Floor(x)
    return op.Where(op.Greater(op.Sub(x, f), 0.5), op.Add(f, 1.0), f)


@rule("aten::remainder.Tensor", "aten::remainder.Scalar", "aten::remainder.Scalar_Tensor")
def remainder(op, self, other):
    a, b = promote(op, self, other)
    if not is_float(a):
        return op.Mod(a, b)
    rest = op.Mod(a, b, fmod=1)
    opposite_sign = op.And(op.Not(op.Equal(rest, 0.0)), op.Xor(op.Less(rest, 0.0), op.Less(b, 0.0)))
    return op.Where(opposite_sign, op.Add(rest, b), rest)


@rule("aten::fmod.Tensor", "aten::fmod.Scalar")
def fmod(op, self, other):
    return op.Mod(*promote(op, self, other), fmod=1)


@rule("aten::neg", "aten::negative")
def neg(op, self):
    if self.dtype in UNSIGNED:  # wraps around
        return op.Add(op.BitwiseNot(self), 1)
    return op.Neg(self)


@rule("aten::abs", "aten::absolute")
def abs_(op, self):
    return self if self.dtype == D.BOOL else op.Abs(self)


@rule("aten::sign", "aten::sgn")
def sign(op, self):
    return self if self.dtype == D.BOOL else op.Sign(self)


@rule("aten::signbit")
def signbit(op, self):
    if self.dtype == D.BOOL:
        return op.And(self, False)
    # 1 / -0 is minus infinity
    return op.Or(op.Less(self, 0), op.Equal(op.Div(1.0, self), -math.inf)) if is_float(self) else op.Less(self, 0)


@rule("aten::square")
def square(op, self):
    return multiply_promoted(op, self, self) if self.dtype != D.BOOL else op.Cast(self, to=D.INT64)


@rule("aten::reciprocal")
def reciprocal(op, self):
    return op.Reciprocal(*promote_to_float(op, self))


@rule("aten::rsqrt")
def rsqrt(op, self):
    return op.Reciprocal(op.Sqrt(*promote_to_float(op, self)))


def _unary(name):
    def lower(op, self):
        return op.call(name, *promote_to_float(op, self))

    return lower


for _aten, _onnx in {
    "sqrt": "Sqrt", "exp": "Exp", "log": "Log", "sin": "Sin", "cos": "Cos", "tan": "Tan", "sinh": "Sinh", "cosh": "Cosh",
    "asin": "Asin", "acos": "Acos", "atan": "Atan", "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "erf": "Erf",
    "special_erf": "Erf", "arcsin": "Asin", "arccos": "Acos", "arctan": "Atan", "arcsinh": "Asinh", "arccosh": "Acosh",
    "arctanh": "Atanh",
}.items():  # fmt: skip
    rule(f"aten::{_aten}")(_unary(_onnx))


@rule("aten::expm1", "aten::special_expm1")
def expm1_(op, self):
    return expm1(op, *promote_to_float(op, self))


@rule("aten::log1p", "aten::special_log1p")
def log1p_(op, self):
    return log1p(op, *promote_to_float(op, self))


@rule("aten::exp2", "aten::special_exp2")
def exp2(op, self):
    [x] = promote_to_float(op, self)
    return op.Pow(op.constant(np.asarray(2.0, x.dtype.numpy())), x)


@rule("aten::log2")
def log2(op, self):
    return op.Div(op.Log(*promote_to_float(op, self)), LN2)


@rule("aten::log10")
def log10(op, self):
    return op.Div(op.Log(*promote_to_float(op, self)), LN10)


@rule("aten::floor")
def floor(op, self):
    return op.Floor(self) if is_float(self) else self


@rule("aten::ceil")
def ceil(op, self):
    return op.Ceil(self) if is_float(self) else self


@rule("aten::round")
def round_(op, self):
    return op.Round(self) if is_float(self) else self


@rule("aten::round.decimals", "aten::special_round")
def round_decimals(op, self, *, decimals=0):
    if not is_float(self) or decimals == 0:
        return round_(op, self)
    ten = 10.0 ** abs(decimals)
    if decimals > 0:
        return op.Div(op.Round(op.Mul(self, ten)), ten)
    return op.Mul(op.Round(op.Div(self, ten)), ten)


@rule("aten::trunc", "aten::fix")
def trunc(op, self):
    return op.Mul(op.Sign(self), op.Floor(op.Abs(self))) if is_float(self) else self


@rule("aten::frac")
def frac(op, self):
    return op.Sub(self, trunc(op, self))


@rule("aten::float_power.Tensor_Tensor", "aten::float_power.Tensor_Scalar", "aten::float_power.Scalar")
def float_power(op, self, exponent):
    return op.Pow(cast(op, self, D.DOUBLE), cast(op, exponent, D.DOUBLE))


@rule("aten::clamp", "aten::clamp.Tensor", "aten::clip", "aten::clip.Tensor")
def clamp(op, self, min=None, max=None):
    return clip(op, self, min, max)


@rule("aten::clamp_min", "aten::clamp_min.Tensor")
def clamp_min(op, self, min):
    return clip(op, self, min, None)


@rule("aten::clamp_max", "aten::clamp_max.Tensor")
def clamp_max(op, self, max):
    return clip(op, self, None, max)


@rule("aten::maximum", "aten::max.other")
def maximum(op, self, other):
    a, b = promote(op, self, other)
    return op.Or(a, b) if a.dtype == D.BOOL else op.Max(a, b)


@rule("aten::minimum", "aten::min.other")
def minimum(op, self, other):
    a, b = promote(op, self, other)
    return op.And(a, b) if a.dtype == D.BOOL else op.Min(a, b)


@rule("aten::fmax")
def fmax(op, self, other):
    a, b = promote(op, self, other)
    return op.Where(op.IsNaN(a), b, op.Where(op.IsNaN(b), a, op.Max(a, b))) if is_float(a) else maximum(op, a, b)


@rule("aten::fmin")
def fmin(op, self, other):
    a, b = promote(op, self, other)
    return op.Where(op.IsNaN(a), b, op.Where(op.IsNaN(b), a, op.Min(a, b))) if is_float(a) else minimum(op, a, b)


@rule("aten::addcmul")
def addcmul(op, self, tensor1, tensor2, *, value=1):
    return add_promoted(op, self, multiply_promoted(op, times_alpha(op, self, tensor1, value), tensor2))


@rule("aten::addcdiv")
def addcdiv(op, self, tensor1, tensor2, *, value=1):
    return add_promoted(op, self, op.Div(*promote_to_float(op, times_alpha(op, self, tensor1, value), tensor2)))


@rule("aten::lerp.Scalar", "aten::lerp.Tensor")
def lerp(op, self, end, weight):
    # interpolates from the nearer end, as PyTorch does
    step = op.Sub(end, self)
    if isinstance(weight, ir.Value):
        near = op.Add(self, op.Mul(weight, step))
        far = op.Sub(end, op.Mul(step, op.Sub(1.0, weight)))
        return op.Where(op.Less(op.Abs(weight), 0.5), near, far)
    if abs(weight) < 0.5:
        return op.Add(self, op.Mul(step, float(weight)))
    return op.Sub(end, op.Mul(step, 1.0 - weight))


@rule("aten::atan2", "aten::arctan2")
def atan2(op, self, other):
    return complex_arithmetic.atan2(op, *promote_to_float(op, self, other))


@rule("aten::hypot")
def hypot(op, self, other):
    return complex_arithmetic.hypot(op, *promote(op, self, other))


@rule("aten::xlogy.Tensor", "aten::xlogy.Scalar_Self", "aten::xlogy.Scalar_Other", "aten::special_xlogy",
      "aten::special_xlogy.self_scalar", "aten::special_xlogy.other_scalar")  # fmt: skip
def xlogy(op, self, other):
    a, b = promote_to_float(op, self, other)
    y = op.Where(op.Equal(a, 0.0), 0.0, op.Mul(a, op.Log(b)))
    return op.Where(op.IsNaN(b), b, y)
