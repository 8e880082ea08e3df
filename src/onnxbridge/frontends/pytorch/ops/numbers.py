"""Number-theoretic and bit-level operators: common divisors, signs, powers, exponents, neighboring floats, shifts."""

import math

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.pytorch.fx.promotion import cast, category, is_float, promote, promote_to_float
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.frontends.pytorch.ops.arithmetic import floor_divide
from onnxbridge.frontends.pytorch.ops.shape import rank
from onnxbridge.hub.ir import fold
from onnxbridge.hub.ir.values import UNSIGNED

D = ir.DataType


def _gcd(op, a, b):
    """Euclid's algorithm on all elements, until every remainder is 0."""

    def body(iteration, condition, x, y):
        done = op.Equal(y, 0)
        rest = op.Mod(x, op.Where(done, 1, y))
        x, y = op.Where(done, x, y), op.Where(done, 0, rest)
        return _any(op, y), x, y

    zero = op.Mul(op.Add(a, b), 0)
    x, y = op.Add(op.Abs(a), zero), op.Add(op.Abs(b), zero)
    return op.Loop(None, _any(op, y), x, y, body=body, outputs=2)[0]


def _any(op, y):
    flat = op.Cast(op.Not(op.Equal(op.reshape(y, [-1]), 0)), to=D.INT32)
    return op.Greater(op.ReduceSum(flat, [0], keepdims=0), 0)


@rule("aten::gcd")
def gcd(op, self, other):
    return _gcd(op, *promote(op, self, other))


@rule("aten::lcm")
def lcm(op, self, other):
    a, b = promote(op, self, other)
    divisor = op.Max(_gcd(op, a, b), 1)
    return op.Abs(op.Mul(floor_divide(op, a, divisor), b))


@rule("aten::copysign.Tensor", "aten::copysign.Scalar")
def copysign(op, self, other):
    a, b = promote_to_float(op, self, other)
    negative = op.Or(op.Less(b, 0.0), op.And(op.Equal(b, 0.0), op.Less(op.Reciprocal(b), 0.0)))
    size = op.Abs(a)
    return op.Where(negative, op.Neg(size), size)


@rule("aten::angle")
def angle(op, self):
    [x] = promote_to_float(op, self)
    return op.Where(op.IsNaN(x), x, op.Where(op.Less(x, 0.0), op.CastLike(np.float64(math.pi), x), op.CastLike(0.0, x)))


_BIT_DTYPES = {D.FLOAT: D.INT32, D.DOUBLE: D.INT64, D.FLOAT16: D.INT16, D.BFLOAT16: D.INT16}


@rule("aten::frexp.Tensor")
def frexp(op, self):
    x = cast(op, self, D.DOUBLE)
    small = op.Less(op.Abs(x), 2.0**-1000)
    bits = op.BitCast(op.Where(small, op.Mul(x, 2.0**60), x), to=D.UINT64)
    power = op.BitwiseAnd(op.BitShift(bits, np.uint64(52), direction="RIGHT"), np.uint64(0x7FF))
    exponent = op.Sub(op.Cast(power, to=D.INT32), op.Where(small, np.int32(1082), np.int32(1022)))
    half = op.BitwiseOr(op.BitwiseAnd(bits, np.uint64(0x800FFFFFFFFFFFFF)), np.uint64(0x3FE0000000000000))
    is_special = op.Or(op.Or(op.Equal(x, 0.0), op.IsNaN(x)), op.IsInf(x))
    mantissa = op.Where(is_special, x, op.BitCast(half, to=D.DOUBLE))
    return cast(op, mantissa, self.dtype), op.Where(is_special, 0, exponent)


@rule("aten::nextafter")
def nextafter(op, self, other):
    a, b = promote(op, self, other)
    int_dtype = _BIT_DTYPES[a.dtype]
    zero = op.Mul(op.Where(op.IsInf(b), 0.0, b), 0.0)
    a = op.Where(op.Equal(a, b), b, op.Add(a, zero))
    smallest = op.BitCast(op.constant(np.asarray(1, int_dtype.numpy())), to=a.dtype)
    step = op.Where(
        op.Equal(op.Less(a, b), op.Greater(a, 0.0)), np.asarray(1, int_dtype.numpy()), np.asarray(-1, int_dtype.numpy())
    )
    moved = op.BitCast(op.Add(op.BitCast(a, to=int_dtype), step), to=a.dtype)
    moved = op.Where(op.Equal(a, 0.0), op.Where(op.Less(b, 0.0), op.Neg(smallest), smallest), moved)
    moved = op.Where(op.Equal(a, b), b, moved)
    return op.Where(op.Or(op.IsNaN(a), op.IsNaN(b)), math.nan, moved)


@rule("aten::hash_tensor")
def hash_tensor(op, self, dim=(), *, keepdim=False, mode=0):
    """Exclusive or of the bits of all elements, by repeated halving of each axis."""
    if mode != 0:
        raise Unsupported(f"hash_tensor of mode {mode}")
    widened = cast(op, self, D.DOUBLE if self.dtype in _BIT_DTYPES else D.INT64)
    bits = op.BitCast(widened, to=D.UINT64)
    rank = len(self.shape)
    axes = sorted(d % rank for d in dim) if dim and rank else list(range(rank))
    for axis in axes:
        size = self.shape[axis]
        if not isinstance(size, int):
            raise Unsupported("a hash over a dynamic size", "fix that size")
        while size > 1:
            half = size // 2
            low, high = op.Slice(bits, [0], [half], [axis]), op.Slice(bits, [half], [2 * half], [axis])
            odd = [op.Slice(bits, [2 * half], [size], [axis])] if size % 2 else []
            bits = op.Concat(op.BitwiseXor(low, high), *odd, axis=axis) if odd else op.BitwiseXor(low, high)
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
    a, b = promote(op, self, exponent)
    if a.dtype == D.BOOL:
        return op.Or(a, op.Not(b))
    return op.Pow(a, b) if is_float(a) else _integer_power(op, a, b)


def _integer_power(op, a, b):
    """Integer powers by repeated squaring: exact and wrapping, where runtimes use floating point."""
    dtype, known = a.dtype, fold.constant_array(b)
    if dtype.bitwidth < 32:
        a, b = (op.Cast(v, to=D.INT32) for v in (a, b))
    if known is not None and rank(b) == 0 and int(known) >= 0:
        return cast(op, _constant_power(op, a, int(known)), dtype)
    one, zero = (op.constant(np.asarray(v, a.dtype.numpy())) for v in (1, 0))
    y, square, rest = one, a, op.Max(b, zero)
    for _ in range(int(known.max(initial=0)).bit_length() if known is not None else dtype.bitwidth):
        half = op.Div(rest, 2)
        y = op.Mul(y, op.Where(op.Equal(op.Mul(half, 2), rest), one, square))
        square, rest = op.Mul(square, square), half
    if a.dtype in UNSIGNED:
        return cast(op, y, dtype)
    # a negative power is a fraction, which rounds to 0 unless the base is 1 or -1
    sign = op.Where(op.Equal(op.Mod(b, 2), 0), one, -1)
    fraction = op.Where(op.Equal(op.Abs(a), 1), op.Where(op.Equal(a, 1), one, sign), zero)
    return cast(op, op.Where(op.Less(b, 0), fraction, y), dtype)


def _constant_power(op, a, exponent):
    y = None
    while exponent:
        if exponent & 1:
            y = a if y is None else op.Mul(y, a)
        exponent >>= 1
        a = op.Mul(a, a) if exponent else a
    return op.Add(op.Mul(a, 0), 1) if y is None else y


def _shift(op, a, b, right):
    """Shift a by b bits; all bits are shifted out if b is negative or not less than the width."""
    if category(a.dtype) != 1:
        raise Unsupported("shifts of floating point numbers")
    dtype, known, signed = a.dtype, fold.constant_array(b), a.dtype not in UNSIGNED
    max_shift = dtype.bitwidth - int(signed and right)
    b, is_out_of_range = op.Cast(b, to=D.INT64) if signed else b, None
    if known is None or known.size == 0 or known.min() < 0 or known.max() >= max_shift:
        is_out_of_range = op.GreaterOrEqual(b, max_shift)
        is_out_of_range = op.Or(is_out_of_range, op.Less(b, 0)) if signed else is_out_of_range
        b = op.Where(is_out_of_range, 0, b)
    if not signed:
        y, rest = op.BitShift(a, b, direction="RIGHT" if right else "LEFT"), 0
    else:
        wider = max(dtype, D.INT32, key=lambda d: d.bitwidth)  # runtimes have fewer kernels for narrower integers
        a, power = cast(op, a, wider), op.BitShift(np.uint64(1), op.Cast(b, to=D.UINT64), direction="LEFT")
        power = op.Cast(power, to=wider)
        y = floor_divide(op, a, power) if right else op.Mul(a, power)
        rest = op.Neg(op.Cast(op.Less(a, 0), to=wider)) if right else 0
    return cast(op, y if is_out_of_range is None else op.Where(is_out_of_range, rest, y), dtype)


@rule("aten::bitwise_left_shift.Tensor", "aten::bitwise_left_shift.Tensor_Scalar", "aten::__lshift__.Scalar",
      "aten::__lshift__.Tensor", "aten::bitwise_left_shift.Scalar_Tensor")  # fmt: skip
def shift_left(op, self, other):
    return _shift(op, *promote(op, self, other), right=False)


@rule("aten::bitwise_right_shift.Tensor", "aten::bitwise_right_shift.Tensor_Scalar", "aten::__rshift__.Scalar",
      "aten::__rshift__.Tensor", "aten::bitwise_right_shift.Scalar_Tensor")  # fmt: skip
def shift_right(op, self, other):
    return _shift(op, *promote(op, self, other), right=True)
