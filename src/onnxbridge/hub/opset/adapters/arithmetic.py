"""Arithmetic: before opset 7 operands broadcast only with `broadcast=1`, from a given axis on."""

from __future__ import annotations

import functools

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.standard.cumulative import running
from onnxbridge.hub.decompositions.standard.dynamic_axis import along
from onnxbridge.hub.ir.values import dtype_name
from onnxbridge.hub.opset.adapters import down, up
from onnxbridge.hub.opset.adapters.flattened import map_range
from onnxbridge.hub.opset.adapters.shape import expand, tiled
from onnxbridge.hub.opset.known_values import dtype_of, known, rank_of

_ARITHMETIC = ("Add", "Div", "Mul", "Sub")
_OTHERS = ("And", "Equal", "Greater", "Less", "Or", "Pow", "Xor")


def _broadcast(name):
    def binary(op, *operands, axis=None, broadcast=0):
        A, B = operands
        if broadcast and axis is not None:
            trailing = rank_of(A) - (axis % rank_of(A)) - rank_of(B)
            if trailing > 0:
                B = op.Unsqueeze(B, axes=[rank_of(B) + i for i in range(trailing)])
        return op.call(name, A, B)

    return binary


for _name in _ARITHMETIC + _OTHERS:
    up(_name, to=7)(_broadcast(_name))


@up("Gemm", to=7)
def gemm(op, A, B, C, *, alpha=1.0, beta=1.0, broadcast=0, transA=0, transB=0):
    return op.Gemm(A, B, C, alpha=alpha, beta=beta, transA=transA, transB=transB)


@down("Gemm", to=10)
def gemm_bias(op, A, B, C=None, *, alpha=1.0, beta=1.0, transA=0, transB=0):
    if C is None:
        C = op.constant([0.0], dtype=dtype_of(A))
    return op.Gemm(A, B, C, alpha=alpha, beta=beta, transA=transA, transB=transB)


@up("Cast", to=6)
def cast(op, input, *, to):
    """`to` was the name of a dtype."""
    return op.Cast(input, to=ir.DataType[to.upper()])


@down("Range", to=26)
def range_(op, start, limit, delta, *, stash_type=1):
    dtype = dtype_of(start)
    if dtype.name not in ("FLOAT16", "BFLOAT16"):
        return op.Range(start, limit, delta)
    return op.Cast(op.Range(*(op.Cast(v, to=stash_type) for v in (start, limit, delta))), to=dtype)


_MAX_CONSTANT_SIZE = 1 << 16


@down("Range", to=10)
def range_in_a_loop(op, start, limit, delta):
    ends = [known(v) for v in (start, limit, delta)]
    if all(e is not None for e in ends):
        first, last, step = (e.reshape(()) for e in ends)
        count = max(int(np.ceil((last.astype(np.float64) - first) / step)), 0)
        if count <= _MAX_CONSTANT_SIZE:
            return op.Identity(op.constant((first + np.arange(count).astype(first.dtype) * step).astype(first.dtype)))
    distance = op.Sub(limit, start)
    if dtype_of(start).is_integer():
        towards = op.Div(delta, op.Abs(delta))
        count = op.Div(op.Sub(op.Add(distance, delta), towards), delta)
    else:
        count = op.Ceil(op.Div(distance, delta))

    return map_range(op, op.Cast(count, to=7), lambda step: op.Add(op.Mul(op.Cast(step, to=dtype_of(start)), delta), start))


@down("CastLike", to=14)
def cast_like(op, input, target_type, **float8):
    return op.Cast(input, to=dtype_of(target_type))


@up("Erf", to=13)
def erf(op, input):
    """Integers are no longer supported: they were computed as float and rounded towards zero."""
    dtype = dtype_of(input)
    if dtype.name in ("FLOAT", "FLOAT16", "DOUBLE", "BFLOAT16"):
        return op.Erf(input)
    raise Unsupported(f"opset 13 dropped {dtype_name(dtype)}")


def _halves(op, value):
    """A 64-bit integer as two doubles (high, low), which are ordered lexicographically."""
    size = op.constant(1 << 32, dtype=dtype_of(value))
    high = op.Div(value, size)
    return tuple(op.Cast(v, to=ir.DataType.DOUBLE) for v in (high, op.Sub(value, op.Mul(high, size))))


def _floats_only(name):
    def compare(op, A, B):
        if dtype_of(A).name not in ("INT64", "UINT64"):
            return op.call(name, A, B)
        (a, low_a), (b, low_b) = _halves(op, A), _halves(op, B)
        tied = op.Not(op.Or(op.Less(a, b), op.Greater(a, b)))
        return op.Or(op.call(name, a, b), op.And(tied, op.call(name, low_a, low_b)))

    return compare


for _name in ("Greater", "Less"):
    down(_name, to=8)(_floats_only(_name))


_TABLE = np.uint64(1) << np.arange(64, dtype=np.uint64)


@down("BitShift", to=27)
def bit_shift(op, X, Y, *, direction):
    """Handles shifts by more than the width, and signed integers, whose 64 bits (of the complement if negative) are shifted."""
    dtype = dtype_of(X)
    bits = 8 * dtype.itemsize
    signed = dtype.name.startswith("INT")
    amount = op.Cast(Y, to=ir.DataType.INT64)
    most = np.array(bits - 1, np.int64)
    over = op.Greater(amount, most)
    if not signed:
        shifted = op.BitShift(X, op.Cast(op.Where(over, most, amount), to=dtype), direction=direction)
        return op.Where(over, op.constant(0, dtype=dtype), shifted)
    over = op.Or(over, op.Less(amount, np.array(0, np.int64)))
    x, zero = op.Cast(X, to=ir.DataType.INT64), np.array(0, np.int64)
    within = op.Cast(op.Where(over, most, amount), to=ir.DataType.UINT64)
    if direction == "LEFT":
        shifted = op.Cast(op.BitShift(op.Cast(x, to=ir.DataType.UINT64), within, direction=direction), to=ir.DataType.INT64)
        return op.Cast(op.Where(over, zero, shifted), to=dtype)
    below = op.Less(x, zero)
    size = op.Where(below, op.Sub(np.array(-1, np.int64), x), x)
    shifted = op.Cast(op.BitShift(op.Cast(size, to=ir.DataType.UINT64), within, direction=direction), to=ir.DataType.INT64)
    shifted = op.Where(over, zero, shifted)
    return op.Cast(op.Where(below, op.Sub(np.array(-1, np.int64), shifted), shifted), to=dtype)


@down("BitShift", to=10)
def bit_shift_by_powers(op, X, Y, *, direction):
    dtype = dtype_of(X)
    wide = dtype if dtype.itemsize >= 4 else ir.DataType.UINT32
    power = op.Gather(_TABLE.astype(wide.numpy()), op.Cast(Y, to=ir.DataType.INT64), axis=0)
    return op.Cast((op.Mul if direction == "LEFT" else op.Div)(op.Cast(X, to=wide), power), to=dtype)


_LARGEST = {
    "FLOAT": 3.4028234663852886e38, "DOUBLE": 1.7976931348623157e308, "FLOAT16": 65504.0, "BFLOAT16": 3.3895313892515355e38,
}  # fmt: skip


@down("IsInf", to=9)
def is_inf(op, X, *, detect_negative=1, detect_positive=1):
    if dtype_of(X).name not in _LARGEST:
        raise Unsupported(f"it is not written in older operators for {dtype_of(X).name.lower()}")
    above, below = op.Greater(X, _LARGEST[dtype_of(X).name]), op.Less(X, -_LARGEST[dtype_of(X).name])
    if detect_negative and detect_positive:
        return op.Or(above, below)
    return above if detect_positive else below if detect_negative else op.And(above, below)


@down("CumSum", to=10)
def cum_sum(op, x, axis, *, exclusive=0, reverse=0):
    return along(op, axis, rank_of(x), lambda a: running(op, op.Add, x, a, 0, exclusive, reverse))


@down("Equal", to=18)
def equal_strings(op, A, B):
    """Strings are equal if they have the same index among the unique strings."""
    if dtype_of(A) != ir.DataType.STRING:
        return op.Equal(A, B)
    a, b = (op.Reshape(v, [-1]) for v in (A, B))
    _, _, which, _ = op.Unique(op.Concat(a, b, axis=0), outputs=4)
    split = op.Shape(a)
    first = op.Slice(which, np.zeros(1, np.int64), split, [0])
    second = op.Slice(which, split, np.array([np.iinfo(np.int64).max]), [0])
    return op.Equal(op.Reshape(first, op.Shape(A)), op.Reshape(second, op.Shape(B)))


@down("Equal", to=10)
def equal(op, A, B):
    """Floats were added in opset 11: they are equal if neither is NaN and neither is less."""
    if dtype_of(A) == ir.DataType.UINT64:  # the cast to int64 keeps the bits
        A, B = (op.Cast(v, to=ir.DataType.INT64) for v in (A, B))
    if dtype_of(A).name not in ("FLOAT", "FLOAT16", "DOUBLE"):
        return op.Equal(A, B)

    def number(v):
        return op.Or(op.Less(v, 1.0), op.Greater(v, 0.0))

    neither = op.Not(op.Or(op.Less(A, B), op.Greater(A, B)))
    return op.And(neither, op.And(number(A), number(B)))


@down("Sum", to=7)
def sum_(op, *data_0):
    """Before opset 8 only binary operators broadcast."""
    return functools.reduce(op.Add, data_0)


@down("Mean", to=7)
def mean(op, *data_0):
    return op.Div(functools.reduce(op.Add, data_0), float(len(data_0)))


def _extreme_of_integers(name):
    def extreme(op, *data_0):
        if not dtype_of(data_0[0]).is_integer():
            return op.call(name, *data_0)
        better = op.Greater if name == "Max" else op.Less
        return functools.reduce(lambda a, b: op.Where(better(a, b), a, b), data_0)

    return extreme


def _without_broadcast(name):
    def extreme(op, *data_0):
        shapes = {tuple(v.shape) if v.shape is not None else None for v in data_0}
        if len(shapes) > 1 or None in shapes:
            if any(s is None or not all(isinstance(d, int) for d in s) for s in shapes):
                whole = op.Shape(functools.reduce(op.Add, data_0))
                data_0 = [expand(op, v, whole) for v in data_0]
            else:
                wanted = np.broadcast_shapes(*shapes)
                data_0 = [v if tuple(v.shape) == wanted else tiled(op, v, list(wanted)) for v in data_0]
        return op.call(name, *data_0)

    return extreme


for _name in ("Max", "Min"):
    down(_name, to=7)(_without_broadcast(_name))
    down(_name, to=11)(_extreme_of_integers(_name))
