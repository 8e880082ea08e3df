"""Activations."""

import numpy as np

from onnxbridge.frontends.tflite.fused_activation import activated
from onnxbridge.frontends.tflite.ops import rule


@rule("RELU")
def relu(op, x):
    return op.Relu(x)


@rule("RELU6")
def relu6(op, x):
    return activated(op, x, "RELU6")


@rule("RELU_N1_TO_1")
def relu_n1_to_1(op, x):
    return activated(op, x, "RELU_N1_TO_1")


@rule("RELU_0_TO_1")
def relu_0_to_1(op, x):
    return op.Clip(x, 0.0, 1.0)


@rule("LEAKY_RELU")
def leaky_relu(op, input, *, alpha=0.0):
    return op.LeakyRelu(input, alpha=alpha)


@rule("PRELU")
def prelu(op, input, alpha):
    return op.PRelu(input, alpha)


@rule("ELU")
def elu(op, x):
    return op.Elu(x)


@rule("LOGISTIC")
def logistic(op, x):
    return op.Sigmoid(x)


@rule("TANH")
def tanh(op, x):
    return op.Tanh(x)


@rule("HARD_SWISH")
def hard_swish(op, input):
    return op.HardSwish(input)


@rule("GELU")
def gelu(op, input, *, approximate=False):
    return op.Gelu(input, approximate="tanh" if approximate else "none")


@rule("SOFTMAX")
def softmax(op, input, *, beta=0.0):
    return op.Softmax(input if beta == 1 else op.Mul(input, np.array(beta, input.dtype.numpy())), axis=-1)


@rule("LOG_SOFTMAX")
def log_softmax(op, input):
    return op.LogSoftmax(input, axis=-1)
