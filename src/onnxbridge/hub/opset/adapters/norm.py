"""Normalization: BatchNormalization, MeanVarianceNormalization, Dropout, GroupNormalization."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.opset.adapters import down, up
from onnxbridge.hub.opset.known_values import dtype_of, known, rank_of
from onnxbridge.rules import Outputs

_TRAINING = "export the model for inference"


def _inference_only(used, is_test=1):
    if any(used[1:]) or not is_test:
        raise Unsupported("it is in training mode", _TRAINING)


@up("BatchNormalization", to=7)
def batch_normalization_test(op, X, scale, B, mean, var, *, epsilon=1e-5, is_test=0, momentum=0.9, spatial=1, outputs: Outputs):
    _inference_only(outputs, is_test)
    return op.BatchNormalization(X, scale, B, mean, var, epsilon=epsilon, momentum=momentum, spatial=spatial)


@up("BatchNormalization", to=9)
def batch_normalization_spatial(op, X, scale, B, mean, var, *, epsilon=1e-5, momentum=0.9, spatial=1, outputs: Outputs):
    if spatial:
        count = _count(outputs)
        return op.BatchNormalization(X, scale, B, mean, var, epsilon=epsilon, momentum=momentum, outputs=count)
    _inference_only(outputs)
    deviation = op.Sqrt(op.Add(var, epsilon))
    return op.Add(op.Mul(op.Div(op.Sub(X, mean), deviation), scale), B)


@up("BatchNormalization", to=14)
def batch_normalization_mode(op, X, scale, B, mean, var, *, epsilon=1e-5, momentum=0.9, outputs: Outputs):
    """More than one output meant training mode; saved_mean and saved_var were removed."""
    if any(outputs[3:]):
        raise Unsupported("opset 14 dropped the outputs saved_mean and saved_var", _TRAINING)
    count = _count(outputs)
    training = 1 if count > 1 else None
    return op.BatchNormalization(
        X, scale, B, mean, var, epsilon=epsilon, momentum=momentum, training_mode=training, outputs=count
    )


@down("BatchNormalization", to=13)
def batch_normalization_training(
    op, X, scale, B, input_mean, input_var, *, epsilon=1e-5, momentum=0.9, training_mode=0, outputs: Outputs
):
    """In training mode the data's mean and variance are used, and the running ones are updated."""
    if not training_mode:
        _inference_only(outputs)
        return op.BatchNormalization(X, scale, B, input_mean, input_var, epsilon=epsilon)
    rank = rank_of(X)
    axes, by_channel = [i for i in range(rank) if i != 1], [-1] + [1] * (rank - 2)
    mean = op.ReduceMean(X, axes=axes, keepdims=1)
    centered = op.Sub(X, mean)
    var = op.ReduceMean(op.Mul(centered, centered), axes=axes, keepdims=1)
    normal = op.Div(centered, op.Sqrt(op.Add(var, epsilon)))
    y = op.Add(
        op.Mul(normal, op.Reshape(op.Cast(scale, to=dtype_of(X)), by_channel)),
        op.Reshape(op.Cast(B, to=dtype_of(X)), by_channel),
    )

    def updated(running, now):
        now = op.Cast(op.Reshape(now, [-1]), to=dtype_of(running))
        return op.Add(op.Mul(running, momentum), op.Mul(now, 1.0 - momentum))

    return y, updated(input_mean, mean), updated(input_var, var)


@up("MeanVarianceNormalization", to=13)
def mean_variance_normalization(op, X, *, axes=(0, 2, 3)):
    """The default of `axes` is written explicitly, since checkers do not apply it."""
    return op.MeanVarianceNormalization(X, axes=list(axes))


@up("Dropout", to=7)
def dropout_test(op, data, *, is_test=0, ratio=0.5, outputs: Outputs):
    """Without its `mask`, Dropout is the identity at inference."""
    return op.Dropout(data, ratio=ratio, outputs=_count(outputs))


@up("Dropout", to=10)
def dropout_mask(op, data, *, ratio=0.5, outputs: Outputs):
    """The mask became boolean."""
    if not (outputs[1:] and outputs[1]):
        return op.Dropout(data, ratio=ratio)
    y, mask = op.Dropout(data, ratio=ratio, outputs=2)
    return y, op.Cast(mask, to=dtype_of(data))


@up("Dropout", to=12)
def dropout(op, data, *, ratio=0.5, outputs: Outputs):
    return op.Dropout(data, np.array(ratio, np.float32), outputs=_count(outputs))


@down("Dropout", to=11)
def dropout_ratio(op, data, ratio=None, training_mode=None, *, seed=None, outputs: Outputs):
    """The ratio has no effect at inference; a dynamic one is replaced by the default."""
    number = None if ratio is None else known(ratio)
    mode = False if training_mode is None else known(training_mode)
    if (mode is None or mode) and (number is None or number.item()):
        raise Unsupported("training_mode was added in opset 12", _TRAINING)
    y = op.Dropout(data, ratio=None if number is None else float(number.item()))
    return (y, _all_true(op, data)) if outputs[1:] and outputs[1] else y


def _all_true(op, data):
    """A mask that drops nothing: older versions do not define the mask at inference."""
    some = op.Cast(data, to=ir.DataType.BOOL)
    return op.Or(some, op.Not(some))


def _count(outputs):
    return max((i + 1 for i, used in enumerate(outputs) if used), default=1)


@up("GroupNormalization", to=21)
def group_normalization(op, X, scale, bias, *, epsilon=1e-5, num_groups):
    """Scale and bias had one element per group, now one per channel."""
    channels = X.shape[1] if X.shape is not None else None
    if not isinstance(channels, int):
        raise Unsupported("the number of channels must be known")
    by_channel = np.array([1, channels // num_groups], np.int64)

    def per_channel(v):
        return op.Reshape(op.Expand(op.Unsqueeze(v, [1]), by_channel), [-1])

    return op.GroupNormalization(X, per_channel(scale), per_channel(bias), epsilon=epsilon, num_groups=num_groups)
