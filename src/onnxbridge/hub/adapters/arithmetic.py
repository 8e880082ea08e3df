"""Arithmetic: before opset 7 operands did not broadcast unless told to, and then from a chosen axis on."""

from __future__ import annotations

import functools

import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.adapters import down, up
from onnxbridge.hub.adapters.shapes import dtype_of, rank_of

_ARITHMETIC = ("Add", "Div", "Mul", "Sub")
_OTHERS = ("And", "Equal", "Greater", "Less", "Or", "Pow", "Xor")


def _broadcast(name):
    def binary(op, *operands, axis=None, broadcast=0):
        A, B = operands
        if broadcast and axis is not None:
            behind = rank_of(A) - (axis % rank_of(A)) - rank_of(B)
            if behind > 0:
                B = op.Unsqueeze(B, axes=[rank_of(B) + i for i in range(behind)])
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
    if dtype_of(start).name in ("FLOAT16", "BFLOAT16"):
        raise Unsupported("opset 27 added half precision")
    return op.Range(start, limit, delta)


@down("CastLike", to=14)
def cast_like(op, input, target_type, **float8):
    return op.Cast(input, to=dtype_of(target_type))


@up("Erf", to=13)
def erf(op, input):
    """Integers went away: they were computed as float and rounded towards zero."""
    dtype = dtype_of(input)
    if dtype.name in ("FLOAT", "FLOAT16", "DOUBLE", "BFLOAT16"):
        return op.Erf(input)
    raise Unsupported(f"opset 13 dropped {dtype.name.lower()}")


@down("Mod", to=9)
def mod(op, A, B, *, fmod=0):
    """Division cuts off towards zero; where the rest has the wrong sign, the divisor is added once."""
    if fmod or not dtype_of(A).is_integer():
        raise Unsupported("it came with opset 10, and it is written in older operators for integers only")
    rest = op.Sub(A, op.Mul(op.Div(A, B), B))

    def negative(v):
        return op.Less(op.Cast(v, to=ir.DataType.FLOAT), 0.0)

    wrong = op.And(op.Not(op.Equal(rest, op.Sub(rest, rest))), op.Xor(negative(rest), negative(B)))
    return op.Add(rest, op.Mul(B, op.Cast(wrong, to=dtype_of(A))))


@down("Equal", to=10)
def equal(op, A, B):
    """Floats came with opset 11: they are equal where both are numbers and neither is less."""
    if dtype_of(A).name not in ("FLOAT", "FLOAT16", "DOUBLE"):
        return op.Equal(A, B)

    def number(v):
        return op.Or(op.Less(v, 1.0), op.Greater(v, 0.0))

    neither = op.Not(op.Or(op.Less(A, B), op.Greater(A, B)))
    return op.And(neither, op.And(number(A), number(B)))


@down("Sum", to=7)
def sum_(op, *data_0):
    """Before opset 8 only operators with two operands broadcast."""
    return functools.reduce(op.Add, data_0)


@down("Mean", to=7)
def mean(op, *data_0):
    return op.Div(functools.reduce(op.Add, data_0), float(len(data_0)))


def _without_broadcast(name):
    def extreme(op, *data_0):
        if len({tuple(v.shape) if v.shape is not None else None for v in data_0} | {None}) > 2 or data_0[0].shape is None:
            raise Unsupported("opset 8 added broadcasting")
        return op.call(name, *data_0)

    return extreme


for _name in ("Max", "Min"):
    down(_name, to=7)(_without_broadcast(_name))
