"""Activations: Softmax and its kin worked on a flattened matrix before opset 13."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.adapters import down, up
from onnxbridge.hub.adapters.shapes import dtype_of, rank_of
from onnxbridge.rules import Array

_FLATTENING = ("Softmax", "LogSoftmax", "Hardmax")


def _flattened(name):
    """Opset 12: everything from `axis` on is one row."""

    def softmax(op, input, *, axis=1):
        rank = input.shape and len(input.shape)
        if rank and axis in (-1, rank - 1):
            return op.call(name, input, axis=-1)
        return op.Reshape(op.call(name, op.Flatten(input, axis=axis), axis=-1), op.Shape(input))

    return softmax


def _along_axis(name):
    """Opset 13: along one axis, whatever lies behind it. The old form does that on the last axis."""

    def softmax(op, input, *, axis=-1):
        rank = rank_of(input)
        axis %= max(rank, 1)
        if axis == rank - 1:
            return op.call(name, input, axis=axis)
        order = [i for i in range(rank) if i != axis] + [axis]
        back = [order.index(i) for i in range(rank)]
        return op.Transpose(op.call(name, op.Transpose(input, perm=order), axis=rank - 1), perm=back)

    return softmax


for _name in _FLATTENING:
    up(_name, to=13)(_flattened(_name))
    down(_name, to=12)(_along_axis(_name))


@up("Clip", to=11)
def clip(op, input, *, min=-3.4028234663852886e38, max=3.4028234663852886e38):
    limits = np.finfo(np.float32)
    dtype = dtype_of(input).numpy()
    low = None if min <= limits.min else np.array(min, dtype)
    high = None if max >= limits.max else np.array(max, dtype)
    return op.Clip(input, low, high)


@down("Clip", to=10)
def clip_bounds(op, input, min: Array | None = None, max: Array | None = None):
    if dtype_of(input).name not in ("FLOAT", "FLOAT16", "DOUBLE"):
        raise Unsupported("opset 12 added integers")
    low = None if min is None else float(min.reshape(()))
    high = None if max is None else float(max.reshape(()))
    for bound in (low, high):
        if bound is not None and np.isfinite(bound) and float(np.float32(bound)) != bound:
            raise Unsupported(f"the bound {bound!r} is not a float32, as the attribute is")
    return op.Clip(input, min=low, max=high)


@up("Selu", to=6)
def selu(op, X, *, alpha=1.6732, gamma=1.0507):
    return op.Selu(X, alpha=alpha, gamma=gamma)


@up("PRelu", to=7)
def prelu(op, X, slope):
    """The slope held one number, or one a channel; from opset 7 on it broadcasts from the right like everything else."""
    if slope.shape is None or len(slope.shape) != 1 or slope.shape[0] == 1:
        return op.PRelu(X, slope)
    return op.PRelu(X, op.Reshape(slope, [-1] + [1] * (rank_of(X) - 2)))


@down("IsNaN", to=8)
def is_nan(op, X):
    """Only NaN differs from itself; Equal knew integers only, so it is neither at most nor above."""
    return op.Not(op.Or(op.Less(X, 1.0), op.Greater(X, 0.0)))


@down("Sinh", to=8)
def sinh(op, input):
    return op.Mul(op.Sub(op.Exp(input), op.Exp(op.Neg(input))), 0.5)


@down("Cosh", to=8)
def cosh(op, input):
    return op.Mul(op.Add(op.Exp(input), op.Exp(op.Neg(input))), 0.5)


@down("Atanh", to=8)
def atanh(op, input):
    return op.Mul(op.Log(op.Div(op.Add(input, 1.0), op.Sub(1.0, input))), 0.5)


@down("Asinh", to=8)
def asinh(op, input):
    """By the magnitude, since the formula cancels below zero."""
    size = op.Abs(input)
    grown = op.Log(op.Add(size, op.Sqrt(op.Add(op.Mul(size, size), 1.0))))
    return op.Mul(grown, op.Clip(op.Mul(input, 3.0e38), min=-1.0, max=1.0))


@down("Acosh", to=8)
def acosh(op, input):
    return op.Log(op.Add(input, op.Sqrt(op.Sub(op.Mul(input, input), 1.0))))


@down("Sign", to=8)
def sign(op, input):
    if dtype_of(input).name not in ("FLOAT", "FLOAT16", "DOUBLE"):
        raise Unsupported("it came with opset 9, and it is written in older operators for floats only")
    dtype = dtype_of(input)
    return op.Sub(op.Cast(op.Greater(input, 0.0), to=dtype), op.Cast(op.Less(input, 0.0), to=dtype))
