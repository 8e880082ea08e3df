"""Activation functions and softmax variants."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.frontends.mxnet.ops.arithmetic import floating
from onnxbridge.frontends.mxnet.ops.types import named, scalar_shape
from onnxbridge.hub.ir.values import rank

SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805


@rule("relu", "_npx_relu")
def relu(op, data):
    return op.Relu(data)


@rule("sigmoid", "_npx_sigmoid")
@floating
def sigmoid(op, data):
    return op.Sigmoid(data)


@rule("softsign")
def softsign(op, data):
    return op.Softsign(data)


@rule("hard_sigmoid")
def hard_sigmoid(op, data, *, alpha=0.2, beta=0.5):
    return op.HardSigmoid(data, alpha=alpha, beta=beta)


@rule("Activation", "_npx_activation")
def activation(op, data, *, act_type):
    kinds = {"relu": op.Relu, "sigmoid": op.Sigmoid, "tanh": op.Tanh, "softrelu": op.Softplus, "softsign": op.Softsign}
    if act_type not in kinds:
        raise Unsupported(f"act_type={act_type!r} is not supported")
    return kinds[act_type](data)


@rule("LeakyReLU", "_npx_leaky_relu")
def leaky_relu(op, data, gamma=None, *, act_type="leaky", slope=0.25, lower_bound=0.125, upper_bound=0.334):
    if act_type == "leaky":
        return op.LeakyRelu(data, alpha=slope)
    if act_type == "rrelu":  # in inference the slope is the middle of its range, and the mask of slopes is 0
        zero = op.constant(np.zeros((), data.dtype.numpy()))
        return op.LeakyRelu(data, alpha=(lower_bound + upper_bound) / 2), op.Expand(zero, op.Shape(data))
    if act_type == "elu":
        return op.Elu(data, alpha=slope)
    if act_type == "selu":
        return op.Selu(data, alpha=SELU_ALPHA, gamma=SELU_SCALE)
    if act_type == "gelu":
        return op.Gelu(data)
    if act_type == "prelu":
        if rank(gamma) == 1:  # of the channels
            return op.PRelu(data, op.Reshape(gamma, [-1] + [1] * max(0, rank(data) - 2)))
        missing = list(range(rank(gamma), rank(data)))
        return op.PRelu(data, op.Unsqueeze(gamma, missing) if missing else gamma)
    raise Unsupported(f"act_type={act_type!r} is not supported")


@rule("softmax", "_npx_softmax")
def softmax(op, data, length=None, *, axis=-1, temperature=None, dtype=None, use_length=False):
    return _softmax(op, op.Softmax, data, length, axis, temperature, dtype, use_length)


@rule("softmin")
def softmin(op, data, *, axis=-1, temperature=None, dtype=None, use_length=False):
    return _softmax(op, op.Softmax, op.Neg(data), None, axis, temperature, dtype, use_length)


@rule("log_softmax", "_npx_log_softmax")
def log_softmax(op, data, *, axis=-1, temperature=None, dtype=None, use_length=False):
    return _softmax(op, op.LogSoftmax, data, None, axis, temperature, dtype, use_length)


def _softmax(op, function, data, length, axis, temperature, dtype, use_length):
    if dtype is not None:
        data = op.Cast(data, to=named(dtype))
    if temperature is not None:
        data = op.Div(data, temperature)
    if not use_length:
        return function(data, axis=axis)
    # elements beyond an entry's length are masked and become 0
    axis %= rank(data)
    positions = op.Range(0, op.Squeeze(op.Shape(data, start=axis, end=axis + 1), [0]), 1)
    positions = op.Reshape(positions, [-1] + [1] * (rank(data) - 1 - axis))
    inside = op.Less(positions, op.Unsqueeze(op.Cast(length, to=positions.dtype), [axis]))
    return op.Where(inside, function(op.Where(inside, data, -np.inf), axis=axis), 0.0)


@rule("SoftmaxActivation")
def softmax_activation(op, data, *, mode="instance"):
    return op.Softmax(data, axis=1 if mode == "channel" else -1)


@rule("SoftmaxOutput", "Softmax")
def softmax_output(
    op, data, label=None, *, ignore_label=-1.0, multi_output=False, use_ignore=False, preserve_shape=False,
    normalization="null", out_grad=False, smooth_alpha=0.0,
):  # fmt: skip
    """Inference ignores the label and the gradient's attributes.

    MXNet's own kernel normalizes over all features, but oneDNN's, which computes float32 of four dimensions, over the last axis.
    """
    if multi_output:
        return op.Softmax(data, axis=1)
    if preserve_shape or (data.dtype == ir.DataType.FLOAT and rank(data) == 4):
        return op.Softmax(data, axis=-1)
    return _over_features(op, data)


def _over_features(op, data):
    """Softmax over all dimensions but the first, flattened."""
    if rank(data) <= 2:
        return op.Softmax(data, axis=-1)
    return op.Reshape(op.Softmax(op.Flatten(data, axis=1), axis=-1), op.Shape(data))


@rule("softmax_cross_entropy")
def softmax_cross_entropy(op, data, label, *, np_shape=False):
    picked = op.GatherElements(op.LogSoftmax(data, axis=-1), op.Unsqueeze(op.Cast(label, to=np.int64), [1]), axis=1)
    return scalar_shape(op, op.Neg(op.ReduceSum(picked, [0, 1], keepdims=0)), np_shape)


@rule("LogisticRegressionOutput")
def logistic_regression_output(op, data, label=None):
    return op.Sigmoid(data)


@rule("LinearRegressionOutput", "MAERegressionOutput")
def regression_output(op, data, label=None):
    return op.Identity(data)


@rule("SVMOutput")
def svm_output(op, data, label=None, *, margin=1.0, regularization_coefficient=1.0, use_linear=False):
    return op.Identity(data)
