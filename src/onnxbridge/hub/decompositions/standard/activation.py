"""Activations in arithmetic and simpler activations."""

from __future__ import annotations

import math

from onnxbridge.hub.decompositions.standard import decompose


@decompose("Gelu")
def gelu(op, X, *, approximate="none"):
    if approximate == "tanh":
        inner = op.Mul(op.Add(X, op.Mul(op.Mul(op.Mul(X, X), X), 0.044715)), math.sqrt(2 / math.pi))
        return op.Mul(op.Mul(X, 0.5), op.Add(op.Tanh(inner), 1.0))
    return op.Mul(op.Mul(X, 0.5), op.Add(op.Erf(op.Mul(X, math.sqrt(0.5))), 1.0))


@decompose("HardSwish")
def hard_swish(op, X):
    return op.Mul(X, op.HardSigmoid(X, alpha=1 / 6, beta=0.5))


@decompose("Swish")
def swish(op, X, *, alpha=1.0):
    return op.Mul(X, op.Sigmoid(op.Mul(X, alpha) if alpha != 1.0 else X))


@decompose("Mish")
def mish(op, X):
    return op.Mul(X, op.Tanh(op.Softplus(X)))


@decompose("HardSigmoid")
def hard_sigmoid(op, X, *, alpha=0.20000000298023224, beta=0.5):
    return op.Clip(op.Add(op.Mul(X, alpha), beta), 0.0, 1.0)


@decompose("LogSoftmax")
def log_softmax(op, input, *, axis=-1):
    shifted = op.Sub(input, op.ReduceMax(input, [axis], keepdims=1))
    return op.Sub(shifted, op.Log(op.ReduceSum(op.Exp(shifted), [axis], keepdims=1)))


@decompose("Celu")
def celu(op, X, *, alpha=1.0):
    return op.Mul(op.Elu(op.Div(X, alpha)), alpha)


@decompose("ThresholdedRelu")
def thresholded_relu(op, X, *, alpha=1.0):
    return op.Where(op.Greater(X, alpha), X, 0.0)


@decompose("Shrink")
def shrink(op, input, *, bias=0.0, lambd=0.5):
    zero = op.CastLike(0.0, input)
    above = op.Where(op.Greater(input, lambd), op.Sub(input, bias), zero)
    return op.Where(op.Less(input, -lambd), op.Add(input, bias), above)
