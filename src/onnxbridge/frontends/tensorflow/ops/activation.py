"""Activations."""

import numpy as np
import onnx_ir as ir

from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.frontends.tensorflow.ops.arithmetic import maximum, minimum


@rule("Relu")
def relu(op, features):
    if features.dtype.is_integer():  # runtimes have Relu for floating point only
        return features if features.dtype.name.startswith("U") else maximum(op, features, np.array(0, features.dtype.numpy()))
    return op.Relu(features)


@rule("Relu6")
def relu6(op, features):
    if features.dtype.is_integer():
        return minimum(op, relu(op, features), np.array(6, features.dtype.numpy()))
    return op.Clip(features, 0.0, 6.0)


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
