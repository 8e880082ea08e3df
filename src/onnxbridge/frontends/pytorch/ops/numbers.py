"""What numbers are made of: common divisors, signs, powers, exponents, neighbours, bits."""

import math

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.pytorch.fx.promotion import cast, category, floating, is_float, together
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.frontends.pytorch.ops.arithmetic import UNSIGNED, floor_divide
from onnxbridge.frontends.pytorch.ops.shape import rank
from onnxbridge.hub.ir import fold

D = ir.DataType


def _gcd(op, a, b):
    """Euclid's algorithm, all elements at once, until every remainder is 0."""

    def turn(iteration, condition, x, y):
        done = op.Equal(y, 0)
        rest = op.Mod(x, op.Where(done, 1, y))
        x, y = op.Where(done, x, y), op.Where(done, 0, rest)
        return _any(op, y), x, y

    zero = op.Mul(op.Add(a, b), 0)
    x, y = op.Add(op.Abs(a), zero), op.Add(op.Abs(b), zero)
    return op.Loop(None, _any(op, y), x, y, body=turn, outputs=2)[0]


def _any(op, y):
    flat = op.Cast(op.Not(op.Equal(op.reshape(y, [-1]), 0)), to=D.INT32)
    return op.Greater(op.ReduceSum(flat, [0], keepdims=0), 0)


@rule("aten::gcd")
def gcd(op, self, other):
    return _gcd(op, *together(op, self, other))


@rule("aten::lcm")
def lcm(op, self, other):
    a, b = together(op, self, other)
    common = op.Max(_gcd(op, a, b), 1)
    return op.Abs(op.Mul(floor_divide(op, a, common), b))


@rule("aten::copysign.Tensor", "aten::copysign.Scalar")
def copysign(op, self, other):
    a, b = floating(op, self, other)
    negative = op.Or(op.Less(b, 0.0), op.And(op.Equal(b, 0.0), op.Less(op.Reciprocal(b), 0.0)))
    size = op.Abs(a)
    return op.Where(negative, op.Neg(size), size)


@rule("aten::angle")
def angle(op, self):
    [x] = floating(op, self)
    return op.Where(op.IsNaN(x), x, op.Where(op.Less(x, 0.0), op.CastLike(np.float64(math.pi), x), op.CastLike(0.0, x)))

_WORDS = {D.FLOAT: D.INT32, D.DOUBLE: D.INT64, D.FLOAT16: D.INT16, D.BFLOAT16: D.INT16}


@rule("aten::frexp.Tensor")
def frexp(op, self):
    x = cast(op, self, D.DOUBLE)
    small = op.Less(op.Abs(x), 2.0**-1000)
    bits = op.BitCast(op.Where(small, op.Mul(x, 2.0**60), x), to=D.UINT64)
    power = op.BitwiseAnd(op.BitShift(bits, np.uint64(52), direction="RIGHT"), np.uint64(0x7FF))
    exponent = op.Sub(op.Cast(power, to=D.INT32), op.Where(small, np.int32(1082), np.int32(1022)))
    half = op.BitwiseOr(op.BitwiseAnd(bits, np.uint64(0x800FFFFFFFFFFFFF)), np.uint64(0x3FE0000000000000))
    plain = op.Or(op.Or(op.Equal(x, 0.0), op.IsNaN(x)), op.IsInf(x))
    mantissa = op.Where(plain, x, op.BitCast(half, to=D.DOUBLE))
    return cast(op, mantissa, self.dtype), op.Where(plain, 0, exponent)


@rule("aten::nextafter")
def nextafter(op, self, other):
    a, b = together(op, self, other)
    word = _WORDS[a.dtype]
    zero = op.Mul(op.Where(op.IsInf(b), 0.0, b), 0.0)
    a = op.Where(op.Equal(a, b), b, op.Add(a, zero))
    smallest = op.BitCast(op.constant(np.asarray(1, word.numpy())), to=a.dtype)
    step = op.Where(op.Equal(op.Less(a, b), op.Greater(a, 0.0)), np.asarray(1, word.numpy()), np.asarray(-1, word.numpy()))
    moved = op.BitCast(op.Add(op.BitCast(a, to=word), step), to=a.dtype)
    moved = op.Where(op.Equal(a, 0.0), op.Where(op.Less(b, 0.0), op.Neg(smallest), smallest), moved)
    moved = op.Where(op.Equal(a, b), b, moved)
    return op.Where(op.Or(op.IsNaN(a), op.IsNaN(b)), math.nan, moved)


@rule("aten::hash_tensor")
def hash_tensor(op, self, dim=(), *, keepdim=False, mode=0):
    """The exclusive or of all elements' bits, halving the axis until one is left."""
    if mode != 0:
        raise Unsupported(f"hash_tensor of mode {mode}")
    wide = cast(op, self, D.DOUBLE if self.dtype in _WORDS else D.INT64)
    bits = op.BitCast(wide, to=D.UINT64)
    rank = len(self.shape)
    axes = sorted(d % rank for d in dim) if dim and rank else list(range(rank))
    for axis in axes:
        size = self.shape[axis]
        if not isinstance(size, int):
            raise Unsupported("a hash over a dynamic size", "fix that size")
        while size > 1:
            half = size // 2
            low, high = op.Slice(bits, [0], [half], [axis]), op.Slice(bits, [half], [2 * half], [axis])
            left = [op.Slice(bits, [2 * half], [size], [axis])] if size % 2 else []
            bits = op.Concat(op.BitwiseXor(low, high), *left, axis=axis) if left else op.BitwiseXor(low, high)
            size = half + size % 2
        if size == 0:
            raise Unsupported("the hash of an empty tensor")
    return bits if keepdim or not axes else op.Squeeze(bits, axes)


@rule("aten::pow.Tensor_Scalar", "aten::pow.Tensor_Tensor", "aten::pow.Scalar")
def pow_(op, self, exponent):
    if isinstance(exponent, (int, float)) and not isinstance(exponent, bool) and is_float(self):
        if exponent == 2:
            return op.Mul(self, self)
        if exponent == 0.5:
            return op.Sqrt(self)
        if exponent == 1:
            return self
    a, b = together(op, self, exponent)
    if a.dtype == D.BOOL:
        return op.Or(a, op.Not(b))
    return op.Pow(a, b) if is_float(a) else _whole_power(op, a, b)


def _whole_power(op, a, b):
    """Integers to the power of integers, by squares: exact, where runtimes go through floating point, and wrapping."""
    dtype, known = a.dtype, fold.static(b)
    if dtype.bitwidth < 32:
        a, b = (op.Cast(v, to=D.INT32) for v in (a, b))
    if known is not None and rank(b) == 0 and int(known) >= 0:
        return cast(op, _fixed_power(op, a, int(known)), dtype)
    one, zero = (op.constant(np.asarray(v, a.dtype.numpy())) for v in (1, 0))
    y, square, rest = one, a, op.Max(b, zero)
    for _ in range(int(known.max(initial=0)).bit_length() if known is not None else dtype.bitwidth):
        half = op.Div(rest, 2)
        y = op.Mul(y, op.Where(op.Equal(op.Mul(half, 2), rest), one, square))
        square, rest = op.Mul(square, square), half
    if a.dtype in UNSIGNED:
        return cast(op, y, dtype)
    # a negative power is a fraction, of which only those of 1 and -1 are left
    sign = op.Where(op.Equal(op.Mod(b, 2), 0), one, -1)
    fraction = op.Where(op.Equal(op.Abs(a), 1), op.Where(op.Equal(a, 1), one, sign), zero)
    return cast(op, op.Where(op.Less(b, 0), fraction, y), dtype)


def _fixed_power(op, a, exponent):
    y = None
    while exponent:
        if exponent & 1:
            y = a if y is None else op.Mul(y, a)
        exponent >>= 1
        a = op.Mul(a, a) if exponent else a
    return op.Add(op.Mul(a, 0), 1) if y is None else y


def _shifted(op, a, b, right):
    """a shifted by b bits; by more than it has, and by less than none, all bits go."""
    if category(a.dtype) != 1:
        raise Unsupported("shifts of floating point numbers")
    dtype, known, signed = a.dtype, fold.static(b), a.dtype not in UNSIGNED
    most = dtype.bitwidth - int(signed and right)
    b, over = op.Cast(b, to=D.INT64) if signed else b, None
    if known is None or known.size == 0 or known.min() < 0 or known.max() >= most:
        over = op.GreaterOrEqual(b, most)
        over = op.Or(over, op.Less(b, 0)) if signed else over
        b = op.Where(over, 0, b)
    if not signed:
        y, rest = op.BitShift(a, b, direction="RIGHT" if right else "LEFT"), 0
    else:
        wide = max(dtype, D.INT32, key=lambda d: d.bitwidth)  # runtimes have fewer operators for narrower ones
        a, power = cast(op, a, wide), op.BitShift(np.uint64(1), op.Cast(b, to=D.UINT64), direction="LEFT")
        power = op.Cast(power, to=wide)
        y = floor_divide(op, a, power) if right else op.Mul(a, power)
        rest = op.Neg(op.Cast(op.Less(a, 0), to=wide)) if right else 0
    return cast(op, y if over is None else op.Where(over, rest, y), dtype)


@rule("aten::bitwise_left_shift.Tensor", "aten::bitwise_left_shift.Tensor_Scalar", "aten::__lshift__.Scalar",
      "aten::__lshift__.Tensor", "aten::bitwise_left_shift.Scalar_Tensor")  # fmt: skip
def shift_left(op, self, other):
    return _shifted(op, *together(op, self, other), right=False)


@rule("aten::bitwise_right_shift.Tensor", "aten::bitwise_right_shift.Tensor_Scalar", "aten::__rshift__.Scalar",
      "aten::__rshift__.Tensor", "aten::bitwise_right_shift.Scalar_Tensor")  # fmt: skip
def shift_right(op, self, other):
    return _shifted(op, *together(op, self, other), right=True)
