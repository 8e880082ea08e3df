"""Gradients of activations and of elementwise functions, which also stand in inference functions."""

import numpy as np

from onnxbridge.frontends.tensorflow.channels_last import channels_last
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.frontends.tensorflow.sizes import length
from onnxbridge.hub.ir.values import rank


def _like(x, number):
    return np.array(number, x.dtype.numpy())


def _where(op, condition, gradients):
    return op.Where(condition, gradients, _like(gradients, 0))


@rule("ReluGrad")
def relu_grad(op, gradients, features):
    return _where(op, op.Greater(features, _like(features, 0)), gradients)


@rule("Relu6Grad")
def relu6_grad(op, gradients, features):
    inside = op.And(op.Greater(features, _like(features, 0)), op.Less(features, _like(features, 6)))
    return _where(op, inside, gradients)


@rule("LeakyReluGrad")
def leaky_relu_grad(op, gradients, features, *, alpha=0.2):
    return op.Where(op.Greater(features, _like(features, 0)), gradients, op.Mul(gradients, _like(features, alpha)))


@rule("EluGrad")
def elu_grad(op, gradients, outputs):
    return op.Where(op.Less(outputs, _like(outputs, 0)), op.Mul(op.Add(outputs, _like(outputs, 1)), gradients), gradients)


@rule("SeluGrad")
def selu_grad(op, gradients, outputs):
    scale, scaled_alpha = 1.0507009873554805, 1.7580993408473768
    below = op.Mul(gradients, op.Add(outputs, _like(outputs, scaled_alpha)))
    return op.Where(op.Less(outputs, _like(outputs, 0)), below, op.Mul(gradients, _like(gradients, scale)))


@rule("SoftplusGrad")
def softplus_grad(op, gradients, features):
    return op.Div(gradients, op.Add(op.Exp(op.Neg(features)), _like(features, 1)))


@rule("SoftsignGrad")
def softsign_grad(op, gradients, features):
    size = op.Add(op.Abs(features), _like(features, 1))
    return op.Div(gradients, op.Mul(size, size))


@rule("SigmoidGrad")
def sigmoid_grad(op, y, dy):
    return op.Mul(op.Mul(dy, y), op.Sub(_like(y, 1), y))


@rule("TanhGrad")
def tanh_grad(op, y, dy):
    return op.Mul(dy, op.Sub(_like(y, 1), op.Mul(y, y)))


@rule("ReciprocalGrad", "InvGrad")
def reciprocal_grad(op, y, dy):
    return op.Mul(op.Neg(dy), op.Mul(y, y))


@rule("SqrtGrad")
def sqrt_grad(op, y, dy):
    return op.Div(op.Mul(dy, _like(y, 0.5)), y)


@rule("RsqrtGrad")
def rsqrt_grad(op, y, dy):
    return op.Mul(op.Mul(dy, _like(y, -0.5)), op.Mul(y, op.Mul(y, y)))


@rule("BiasAddGrad")
def bias_add_grad(op, out_backprop, *, data_format="NHWC"):
    n = rank(out_backprop)
    channel = n - 1 if channels_last(data_format) else 1
    return op.ReduceSum(out_backprop, [i for i in range(n) if i != channel], keepdims=0)


@rule("BroadcastGradientArgs")
def broadcast_gradient_args(op, s0, s1):
    """The axes along which each of two shapes is broadcast to the other."""
    n = max(length(s0, "a shape"), length(s1, "a shape"))
    a, b = (op.Concat(np.ones(n - length(s, "a shape"), s.dtype.numpy()), s, axis=0) for s in (s0, s1))
    one = np.array(1, s0.dtype.numpy())
    equal = op.Equal(a, b)
    both = op.And(equal, op.Equal(a, one))
    return tuple(
        op.Cast(op.Reshape(op.NonZero(op.Or(both, op.And(op.Equal(x, one), op.Not(equal)))), [-1]), to=s0.dtype)
        for x in (a, b)
    )
