"""Normalization operators in reductions and elementwise arithmetic."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.decompositions.standard import decompose
from onnxbridge.hub.ir.values import cast, rank

FLOAT = ir.DataType.FLOAT
HALVES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


def _wide(op, X, axis, stash_type):
    """X in the dtype of the computation, and the axes to normalize over."""
    return X if X.dtype == stash_type else op.Cast(X, to=stash_type), list(range(axis % rank(X), rank(X)))


@decompose("LayerNormalization")
def layer_normalization(op, X, Scale, B=None, *, axis=-1, epsilon=9.999999747378752e-06, stash_type=1):
    x, axes = _wide(op, X, axis, stash_type)
    mean = op.ReduceMean(x, axes)
    centered = op.Sub(x, mean)
    inverse = op.Reciprocal(op.Sqrt(op.Add(op.ReduceMean(op.Mul(centered, centered), axes), epsilon)))
    y = op.Mul(centered, inverse)
    y = op.Mul(y if x is X else op.Cast(y, to=X.dtype), Scale)
    return y if B is None else op.Add(y, B), mean, inverse


@decompose("RMSNormalization")
def rms_normalization(op, X, scale, *, axis=-1, epsilon=9.999999747378752e-06, stash_type=1):
    x, axes = _wide(op, X, axis, stash_type)
    y = op.Div(x, op.Sqrt(op.Add(op.ReduceMean(op.Mul(x, x), axes), epsilon)))
    return op.Mul(y if x is X else op.Cast(y, to=X.dtype), scale)


@decompose("MeanVarianceNormalization")
def mean_variance_normalization(op, X, *, axes=(0, 2, 3)):
    """Supports every dtype and computes the variance from centered values.

    The standard's function body is for float32 only and computes E[x^2] - E[x]^2, which cancels.
    """
    x = op.Cast(X, to=FLOAT) if X.dtype in HALVES else X  # in which 1e-9 underflows
    centered = op.Sub(x, op.ReduceMean(x, list(axes)))
    deviation = op.Sqrt(op.ReduceMean(op.Mul(centered, centered), list(axes)))
    return cast(op, op.Div(centered, op.Add(deviation, 1e-9)), X.dtype)


def _by_channel(op, values, x):
    """Reshapes a value per channel so that it broadcasts over the other axes."""
    return op.Reshape(values, [1, -1] + [1] * (rank(x) - 2))


@decompose("InstanceNormalization")
def instance_normalization(op, input, scale, B, *, epsilon=9.999999747378752e-06):
    axes = list(range(2, rank(input)))
    centered = op.Sub(input, op.ReduceMean(input, axes))
    spread = op.Sqrt(op.Add(op.ReduceMean(op.Mul(centered, centered), axes), epsilon))
    return op.Add(op.Mul(op.Div(centered, spread), _by_channel(op, scale, input)), _by_channel(op, B, input))


@decompose("BatchNormalization")
def batch_normalization(
    op, X, scale, B, input_mean, input_var, *, epsilon=9.999999747378752e-06, momentum=0.8999999761581421, training_mode=0
):
    mean, variance = input_mean, input_var
    if training_mode:
        axes = [0, *range(2, rank(X))]
        batch_mean = op.ReduceMean(X, axes)
        centered_batch = op.Sub(X, batch_mean)
        mean, variance = (op.Reshape(v, [-1]) for v in (batch_mean, op.ReduceMean(op.Mul(centered_batch, centered_batch), axes)))
        mean, variance = cast(op, mean, input_mean.dtype), cast(op, variance, input_var.dtype)
    if len({v.dtype for v in (X, scale, B, mean, variance)}) == 1:
        factor = op.Div(scale, op.Sqrt(op.Add(variance, epsilon)))
        factor, offset, shift = (_by_channel(op, v, X) for v in (factor, B, mean))
        y = op.Add(op.Mul(op.Sub(X, shift), factor), offset)
    else:  # compute in the widest dtype
        widest = max((v.dtype for v in (X, scale, B, mean, variance, op.constant(np.float32(0)))), key=lambda t: t.bitwidth)
        x, scale, offset, shift, spread = (cast(op, v, widest) for v in (X, scale, B, mean, variance))
        factor = op.Div(scale, op.Sqrt(op.Add(spread, epsilon)))
        factor, offset, shift = (_by_channel(op, v, X) for v in (factor, offset, shift))
        y = cast(op, op.Add(op.Mul(op.Sub(x, shift), factor), offset), X.dtype)
    if not training_mode:
        return y
    running = [
        op.Add(op.Mul(old, momentum), op.Mul(new, 1 - momentum)) for old, new in ((input_mean, mean), (input_var, variance))
    ]
    return (y, *running)


@decompose("LRN")
def lrn(op, X, *, size, alpha=9.999999747378752e-05, beta=0.75, bias=1.0):
    """Sums the squares of neighboring channels as slices of a zero-padded value."""
    before = (size - 1) // 2
    rest = [0] * (rank(X) - 2)
    padded = op.Pad(op.Mul(X, X), [0, before, *rest, 0, size - 1 - before, *rest])
    ends = [i - size + 1 if i < size - 1 else np.iinfo(np.int64).max for i in range(size)]
    total = op.Sum(*(op.Slice(padded, [i], [end], [1]) for i, end in enumerate(ends)))
    return op.Div(X, op.Pow(op.Add(op.Mul(total, alpha / size), bias), beta))


@decompose("LpNormalization")
def lp_normalization(op, input, *, axis=-1, p=2):
    """Slices of norm zero stay zero."""
    size = (op.ReduceL1 if p == 1 else op.ReduceL2)(input, [axis])
    return op.Div(input, op.Where(op.Equal(size, 0.0), 1.0, size))
