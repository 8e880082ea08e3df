"""Activations."""

import onnx_ir as ir

from onnxbridge.frontends.tensorflow.ops import rule


@rule("Relu")
def relu(op, features):
    return op.Relu(features)


@rule("Relu6")
def relu6(op, features):
    return op.Clip(features, 0.0, 6.0) if not features.dtype.is_integer() else op.Clip(features, 0, 6)


@rule("LeakyRelu")
def leaky_relu(op, features, *, alpha=0.2):
    return op.LeakyRelu(features, alpha=alpha)


@rule("Elu")
def elu(op, features):
    return op.Elu(features)


@rule("Selu")
def selu(op, features):
    exact = {"alpha": 1.6732632423543772, "gamma": 1.0507009873554805} if features.dtype == ir.DataType.DOUBLE else {}
    return op.Selu(features, **exact)


@rule("Sigmoid")
def sigmoid(op, x):
    return op.Sigmoid(x)


@rule("Softplus")
def softplus(op, features):
    return op.Softplus(features)


@rule("Softsign")
def softsign(op, features):
    return op.Softsign(features)


@rule("Softmax")
def softmax(op, logits):
    return op.Softmax(logits, axis=-1)


@rule("LogSoftmax")
def log_softmax(op, logits):
    return op.LogSoftmax(logits, axis=-1)
