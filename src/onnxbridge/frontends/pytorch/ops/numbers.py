"""What numbers are made of: common divisors, signs, exponents, neighbours, bits."""

import math

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.frontends.pytorch.ops.arithmetic import floor_divide
from onnxbridge.frontends.pytorch.promotion import cast, floating, together

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
