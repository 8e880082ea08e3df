"""Normalization layers."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.pytorch.fx.promotion import cast, is_half
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.frontends.pytorch.ops.creation import fill

D = ir.DataType


@rule("aten::batch_norm")
def batch_norm(op, input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled=True):
    if running_mean is not None and running_var is not None:
        if training:
            raise Unsupported("batch normalization updates its statistics", "call eval() before exporting")
        return _normalize(op, input, weight, bias, running_mean, running_var, eps)
    axes = [i for i in range(len(input.shape)) if i != 1]
    return _scale_and_shift(op, _standardize(op, input, axes, eps), weight, bias)


@rule("aten::_native_batch_norm_legit_no_training")
def batch_norm_no_training(op, input, weight, bias, running_mean, running_var, momentum, eps):
    y = _normalize(op, input, weight, bias, running_mean, running_var, eps)
    empty = op.constant(np.zeros(0, input.dtype.numpy()))
    return y, empty, empty


@rule("aten::native_batch_norm")
def native_batch_norm(op, input, weight, bias, running_mean, running_var, training, momentum, eps):
    if training:
        raise Unsupported("batch normalization updates its statistics", "call eval() before exporting")
    return batch_norm_no_training(op, input, weight, bias, running_mean, running_var, momentum, eps)


@rule("aten::_native_batch_norm_legit_functional")
def batch_norm_functional(op, input, weight, bias, running_mean, running_var, training, momentum, eps):
    if not training:
        y, empty, _ = batch_norm_no_training(op, input, weight, bias, running_mean, running_var, momentum, eps)
        return y, empty, empty, running_mean, running_var
    dtype, axes = input.dtype, [i for i in range(len(input.shape)) if i != 1]
    if is_half(input):
        input, weight, bias = (None if v is None else cast(op, v, D.FLOAT) for v in (input, weight, bias))
    mean = op.ReduceMean(input, axes, keepdims=1)
    centered = op.Sub(input, mean)
    variance = op.ReduceMean(op.Mul(centered, centered), axes, keepdims=1)
    scale = op.Reciprocal(op.Sqrt(op.Add(variance, eps)))
    y = _scale_and_shift(op, op.Mul(centered, scale), weight, bias)
    mean, variance, scale = (op.Squeeze(v, axes) for v in (mean, variance, scale))
    count = op.Cast(op.Div(op.Size(input), op.size(input, 1)), to=variance.dtype)
    unbiased = op.Mul(variance, op.Div(count, op.Sub(count, 1.0)))
    new_statistics = [
        op.Add(op.Mul(cast(op, old, new.dtype), 1 - momentum), op.Mul(new, momentum))
        for old, new in ((running_mean, mean), (running_var, unbiased))
    ]
    return *(cast(op, v, dtype) for v in (y, mean, scale)), *new_statistics


@rule("aten::_batch_norm_with_update_functional")
def batch_norm_with_update(op, input, weight, bias, running_mean, running_var, momentum, eps):
    y, mean, scale, *new_statistics = batch_norm_functional(
        op, input, weight, bias, running_mean, running_var, True, momentum, eps
    )
    return y, mean, scale, op.constant(np.zeros(0, np.uint8)), *new_statistics


def _normalize(op, input, weight, bias, mean, var, eps):
    channels = op.size(mean, 0)
    weight = fill(op, [channels], 1, mean.dtype) if weight is None else weight
    bias = fill(op, [channels], 0, mean.dtype) if bias is None else bias
    return op.BatchNormalization(input, weight, bias, mean, var, epsilon=eps)


def _standardize(op, x, axes, eps):
    """Normalize x to mean 0 and variance 1 over the axes."""
    centered = op.Sub(x, op.ReduceMean(x, axes, keepdims=1))
    variance = op.ReduceMean(op.Mul(centered, centered), axes, keepdims=1)
    return op.Div(centered, op.Sqrt(op.Add(variance, eps)))


def _scale_and_shift(op, x, weight, bias):
    """x * weight + bias, per channel (axis 1)."""
    ones = [1] * (len(x.shape) - 2)
    for name, v in (("Mul", weight), ("Add", bias)):
        if v is not None:
            x = op.call(name, x, op.reshape(v, [-1, *ones]))
    return x


@rule("aten::layer_norm")
def layer_norm(op, input, normalized_shape, weight=None, bias=None, eps=1e-5, cudnn_enable=True):
    if weight is None:
        weight = fill(op, normalized_shape, 1, input.dtype)
    return op.LayerNormalization(input, weight, bias, axis=-len(normalized_shape), epsilon=eps)


@rule("aten::native_layer_norm")
def native_layer_norm(op, input, normalized_shape, weight, bias, eps):
    axes = list(range(-len(normalized_shape), 0))
    mean = op.ReduceMean(input, axes, keepdims=1)
    centered = op.Sub(input, mean)
    scale = op.Reciprocal(op.Sqrt(op.Add(op.ReduceMean(op.Mul(centered, centered), axes, keepdims=1), eps)))
    return layer_norm(op, input, normalized_shape, weight, bias, eps), mean, scale


@rule("aten::group_norm")
def group_norm(op, input, num_groups, weight=None, bias=None, eps=1e-5, cudnn_enabled=True):
    channels = op.size(input, 1)
    weight = fill(op, [channels], 1, input.dtype) if weight is None else weight
    bias = fill(op, [channels], 0, input.dtype) if bias is None else bias
    return op.GroupNormalization(input, weight, bias, num_groups=num_groups, epsilon=eps)


@rule("aten::instance_norm")
def instance_norm(op, input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, cudnn_enabled=True):
    if not use_input_stats:
        return _normalize(op, input, weight, bias, running_mean, running_var, eps)
    if running_mean is not None:
        raise Unsupported("instance normalization updates its statistics", "call eval() before exporting")
    channels = op.size(input, 1)
    weight = fill(op, [channels], 1, input.dtype) if weight is None else weight
    bias = fill(op, [channels], 0, input.dtype) if bias is None else bias
    return op.InstanceNormalization(input, weight, bias, epsilon=eps)


@rule("aten::rms_norm")
def rms_norm(op, input, normalized_shape, weight=None, eps=None):
    eps = float(np.finfo(np.float32).eps) if eps is None and input.dtype.bitwidth < 64 else 2.0**-52 if eps is None else eps
    axes = list(range(-len(normalized_shape), 0))
    mean = op.ReduceMean(op.Mul(input, input), axes, keepdims=1)
    y = op.Div(input, op.Sqrt(op.Add(mean, eps)))
    return y if weight is None else op.Mul(y, cast(op, weight, input.dtype))
