"""Elementwise arithmetic, comparison, logic, bit operations and casts."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.frontends.tensorflow.wider_dtypes import compute, where
from onnxbridge.hub.decompositions.complex_numbers import arithmetic as functions
from onnxbridge.hub.ir import fold
from onnxbridge.hub.ir.values import rank

D = ir.DataType


def _like(x, number):
    """A number in the dtype of `x`."""
    return np.array(number, x.dtype.numpy())


def _unary(name, onnx):
    @rule(name)
    def unary(op, x):
        return op.call(onnx, x)


def _binary(name, onnx):
    @rule(name)
    def binary(op, x, y):
        return op.call(onnx, x, y)


for _name in [
    "Abs", "Exp", "Log", "Sqrt", "Sin", "Cos", "Tan", "Sinh", "Cosh", "Tanh", "Asin", "Acos", "Atan", "Asinh", "Acosh", "Atanh",
    "Floor", "Ceil", "Sign", "Erf", "Neg",
]:  # fmt: skip
    _unary(_name, _name)
for _name, _onnx in {
    "Rint": "Round", "Reciprocal": "Reciprocal", "Inv": "Reciprocal", "IsNan": "IsNaN", "IsInf": "IsInf",
    "LogicalNot": "Not", "Invert": "BitwiseNot",
}.items():  # fmt: skip
    _unary(_name, _onnx)
for _name, _onnx in {
    "AddV2": "Add", "Sub": "Sub", "Mul": "Mul", "RealDiv": "Div",
    "Greater": "Greater", "GreaterEqual": "GreaterOrEqual", "Less": "Less", "LessEqual": "LessOrEqual", "Equal": "Equal",
    "LogicalAnd": "And", "LogicalOr": "Or", "BitwiseAnd": "BitwiseAnd", "BitwiseOr": "BitwiseOr", "BitwiseXor": "BitwiseXor",
}.items():  # fmt: skip
    _binary(_name, _onnx)


@rule("Add")
def add(op, x, y):
    return op.StringConcat(x, y) if x.dtype == D.STRING else op.Add(x, y)


@rule("Round")
def round_(op, x):
    return op.Round(x) if x.dtype.is_floating_point() else x


@rule("Identity", "StopGradient", "PreventGradient", "Snapshot", "GuaranteeConst")
def identity(op, input):
    return input


@rule("DeepCopy")
def deep_copy(op, x):
    return x


@rule("CheckNumerics", "CheckNumericsV2")
def check_numerics(op, tensor):
    return tensor


@rule("PlaceholderWithDefault")
def placeholder_with_default(op, input, *, shape):
    return input


@rule("IdentityN")
def identity_n(op, input):
    return tuple(input)


@rule("EnsureShape")
def ensure_shape(op, input, *, shape):
    return input


@rule("NotEqual")
def not_equal(op, x, y):
    return op.Not(op.Equal(x, y))


@rule("Maximum")
def maximum(op, x, y):
    return compute(op, "Max", x, y)


@rule("Minimum")
def minimum(op, x, y):
    return compute(op, "Min", x, y)


@rule("Pow")
def pow_(op, x, y):
    if x.dtype not in (D.INT16, D.UINT16, D.INT8, D.UINT8):
        return op.Pow(x, y)
    return op.Cast(op.Pow(op.Cast(x, to=D.INT32), op.Cast(y, to=D.INT32)), to=x.dtype)


@rule("AddN")
def add_n(op, inputs):
    return inputs[0] if len(inputs) == 1 else op.Sum(*inputs) if inputs[0].dtype.is_floating_point() else _added(op, inputs)


def _added(op, inputs):
    total = inputs[0]
    for x in inputs[1:]:
        total = op.Add(total, x)
    return total


@rule("BiasAdd")
def bias_add(op, value, bias, *, data_format="NHWC"):
    if data_format.startswith("NC"):
        bias = op.Unsqueeze(bias, list(range(1, rank(value) - 1)))
    return op.Add(value, bias)


@rule("Square")
def square(op, x):
    return op.Mul(x, x)


@rule("SquaredDifference")
def squared_difference(op, x, y):
    d = op.Sub(x, y)
    return op.Mul(d, d)


@rule("Rsqrt")
def rsqrt(op, x):
    return op.Reciprocal(op.Sqrt(x))


@rule("Erfc", limits="rounds as 1 - erf(x): where erfc(x) is small, little of it is left")
def erfc(op, x):
    return op.Sub(_like(x, 1), op.Erf(x))


@rule("Expm1", limits="rounds as exp(x) - 1 beyond |x| = 0.5")
def expm1(op, x):
    """Near zero by tanh, because exp(x) - 1 would cancel: expm1(x) = 2 t / (1 - t) with t = tanh(x / 2)."""
    t = op.Tanh(op.Mul(x, _like(x, 0.5)))
    near = op.Div(op.Mul(t, _like(x, 2)), op.Sub(_like(x, 1), t))
    return op.Where(op.Less(op.Abs(x), _like(x, 0.5)), near, op.Sub(op.Exp(x), _like(x, 1)))


@rule("Log1p")
def log1p(op, x):
    """x if u = 1 + x rounds to 1, otherwise log(u) * x / (u - 1), which corrects the rounding of the sum."""
    u = op.Add(x, _like(x, 1))
    d = op.Sub(u, _like(x, 1))
    corrected = op.Mul(op.Log(u), op.Div(x, d))
    plain = op.Or(op.Equal(d, _like(x, 0)), op.IsInf(x))
    return op.Where(plain, op.Where(op.IsInf(x), op.Log(u), x), corrected)


@rule("Atan2")
def atan2(op, y, x):
    return functions.atan2(op, y, x)


@rule("IsFinite")
def is_finite(op, x):
    return op.Not(op.Or(op.IsInf(x), op.IsNaN(x)))


@rule("Div")
def div(op, x, y):
    return op.Div(x, y)


@rule("TruncateDiv")
def truncate_div(op, x, y):
    q = op.Div(x, y)
    return op.Where(op.Less(q, _like(q, 0)), op.Ceil(q), op.Floor(q)) if x.dtype.is_floating_point() else q


@rule("FloorDiv")
def floor_div(op, x, y):
    q = op.Div(x, y)
    if x.dtype.is_floating_point():
        return op.Floor(q)
    if x.dtype.name.startswith("U"):
        return q
    off = op.Not(op.Equal(op.Mul(q, y), x))
    opposite = op.Xor(op.Less(x, _like(x, 0)), op.Less(y, _like(x, 0)))
    return op.Sub(q, op.Cast(op.And(off, opposite), to=x.dtype))


@rule("FloorMod")
def floor_mod(op, x, y):
    if not x.dtype.is_floating_point():
        return op.Mod(x, y, fmod=0)
    r = op.Mod(x, y, fmod=1)
    opposite = op.And(op.Not(op.Equal(r, _like(x, 0))), op.Xor(op.Less(r, _like(x, 0)), op.Less(y, _like(x, 0))))
    return op.Where(opposite, op.Add(r, y), r)


@rule("Mod", "TruncateMod")
def truncate_mod(op, x, y):
    if x.dtype in (D.INT64, D.UINT64):  # runtimes compute the remainder of their Mod in floating point
        return op.Sub(x, op.Mul(op.Div(x, y), y))
    return op.Mod(x, y, fmod=1)


@rule("DivNoNan")
def div_no_nan(op, x, y):
    known = fold.constant_array(y)
    if known is not None and known.all():
        return op.Div(x, y)
    zero = op.Equal(y, _like(y, 0))
    return op.Where(zero, _like(x, 0), op.Div(x, op.Where(zero, _like(y, 1), y)))


@rule("MulNoNan")
def mul_no_nan(op, x, y):
    return op.Where(op.Equal(y, _like(y, 0)), _like(x, 0), op.Mul(x, y))


@rule("Xdivy")
def xdivy(op, x, y):
    return op.Where(op.Equal(x, _like(x, 0)), _like(x, 0), op.Div(x, y))


@rule("Xlogy")
def xlogy(op, x, y):
    return op.Where(op.Equal(x, _like(x, 0)), _like(x, 0), op.Mul(x, op.Log(y)))


@rule("Xlog1py")
def xlog1py(op, x, y):
    return op.Where(op.Equal(x, _like(x, 0)), _like(x, 0), op.Mul(x, log1p(op, y)))


@rule("ClipByValue")
def clip_by_value(op, t, clip_value_min, clip_value_max):
    return op.Max(op.Min(t, clip_value_max), clip_value_min)


@rule("ApproximateEqual")
def approximate_equal(op, x, y, *, tolerance=1e-5):
    return op.Less(op.Abs(op.Sub(x, y)), _like(x, tolerance))


@rule("Select")
def select(op, condition, t, e):
    if rank(condition) == 1 and rank(t) > 1:
        condition = op.Unsqueeze(condition, list(range(1, rank(t))))
    return where(op, condition, t, e)


@rule("SelectV2")
def select_v2(op, condition, t, e):
    return where(op, condition, t, e)


@rule("Cast")
def cast(op, x, *, DstT, Truncate=False):
    narrower = x.dtype.is_floating_point() and DstT is not None and DstT.is_floating_point() and DstT.bitwidth < x.dtype.bitwidth
    if DstT is None or (Truncate and narrower):
        raise Unsupported("a cast to a type that ONNX does not have, or with Truncate to a narrower one")
    if x.dtype == DstT:
        return x
    if x.dtype.is_floating_point() and DstT in (ir.DataType.UINT8, ir.DataType.INT8, ir.DataType.INT16, ir.DataType.UINT16):
        # ONNX leaves out-of-range values undefined; through int32 they wrap, as in TensorFlow
        x = op.Cast(x, to=ir.DataType.INT32)
    return op.Cast(x, to=DstT)


@rule("ToBool")
def to_bool(op, input):
    """Whether a scalar is not zero, or another tensor has elements."""
    if rank(input):
        return op.Greater(op.Size(input), np.int64(0))
    return input if input.dtype == D.BOOL else op.Not(op.Equal(input, _like(input, 0)))


@rule("PopulationCount")
def population_count(op, x):
    """The number of bits that are set: counted in pairs, fours and bytes."""
    bits = {8: D.UINT8, 16: D.UINT16, 32: D.UINT32, 64: D.UINT64}[x.dtype.bitwidth]
    n = op.Cast(op.BitCast(x, to=bits) if x.dtype != bits else x, to=D.UINT64)
    for width, mask in ((1, 0x5555555555555555), (2, 0x3333333333333333), (4, 0x0F0F0F0F0F0F0F0F)):
        low, high = np.uint64(mask), op.BitShift(n, np.uint64(width), direction="RIGHT")
        n = op.Add(op.BitwiseAnd(n, low), op.BitwiseAnd(high, low))
    total = op.BitShift(op.Mul(n, np.uint64(0x0101010101010101)), np.uint64(56), direction="RIGHT")
    return op.Cast(total, to=D.UINT8)


@rule("NextAfter")
def next_after(op, x1, x2):
    """The next number after `x1` towards `x2`: as integers, the numbers of one sign are in order."""
    bits = D.INT32 if x1.dtype == D.FLOAT else D.INT64
    zero, smallest = _like(x1, 0), op.BitCast(np.array(1, bits.numpy()), to=x1.dtype)
    away = op.Equal(op.Greater(x2, x1), op.Greater(x1, zero))
    moved = op.Add(op.BitCast(x1, to=bits), op.Where(away, np.array(1, bits.numpy()), np.array(-1, bits.numpy())))
    from_zero = op.Where(op.Greater(x2, zero), smallest, op.Neg(smallest))
    moved = op.Where(op.Equal(x1, zero), from_zero, op.BitCast(moved, to=x1.dtype))
    unordered = op.Or(op.IsNaN(x1), op.IsNaN(x2))
    return op.Where(unordered, op.Add(x1, x2), op.Where(op.Equal(x1, x2), x2, moved))


@rule("LeftShift")
def left_shift(op, x, y):
    return _shift(op, x, y, "LEFT")


@rule("RightShift")
def right_shift(op, x, y):
    return _shift(op, x, y, "RIGHT")


def _shift(op, x, y, direction):
    """TensorFlow clamps the amount to what the type has; a signed integer keeps its sign to the right."""
    most = x.dtype.bitwidth - 1
    known = fold.constant_array(y)
    if not x.dtype.name.startswith("U"):
        amount = op.Cast(op.Min(op.Max(op.Cast(y, to=D.INT64), np.int64(0)), np.int64(most)), to=D.UINT64)
        wide = op.Cast(x, to=D.INT64)
        negative = op.Less(wide, np.int64(0))
        if direction == "RIGHT":  # of a negative number, the complement is shifted
            wide = op.Where(negative, op.BitwiseNot(wide), wide)
        bits = op.BitCast(op.BitShift(op.BitCast(wide, to=D.UINT64), amount, direction=direction), to=D.INT64)
        return op.Cast(op.Where(negative, op.BitwiseNot(bits), bits) if direction == "RIGHT" else bits, to=x.dtype)
    wide = D.UINT32 if x.dtype == D.UINT16 else x.dtype  # runtimes have no kernel for it
    dtype = x.dtype
    x, y = (v if v.dtype == wide else op.Cast(v, to=wide) for v in (x, y))
    if known is None or known.max(initial=0) > most:
        y = op.Min(y, _like(y, most))
    shifted = op.BitShift(x, y, direction=direction)
    return shifted if dtype == wide else op.Cast(shifted, to=dtype)
