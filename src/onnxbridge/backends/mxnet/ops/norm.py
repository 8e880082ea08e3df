"""Normalization."""

from __future__ import annotations

import numpy as np

from onnxbridge.backends.mxnet.ops import rule
from onnxbridge.backends.mxnet.ops.types import cast, fixed, rank, reshaped, within
from onnxbridge.errors import Unsupported


@rule("BatchNormalization")
def batch_normalization(
    sym, X, scale, B, input_mean, input_var, *, epsilon=9.999999747378752e-06, momentum=0.8999999761581421, training_mode=0
):
    """A layer with its statistics as auxiliary states, which training updates; the formula if they are not constant."""
    if training_mode:
        raise Unsupported("training_mode=1")
    inputs = (scale, B, input_mean, input_var)
    outermost = len(sym.graphs) == 1  # a subgraph has no auxiliary states of its own
    if outermost and all(v.array is not None for v in inputs) and {v.dtype for v in inputs} == {X.dtype} and rank(X) > 1:
        return sym.BatchNorm(X, *inputs, eps=epsilon, momentum=momentum, fix_gamma=False)
    wide = (-1, *[1] * (rank(X) - 2))
    scale, shift, mean, var = (cast(sym, reshaped(sym, v, wide), X.dtype) for v in inputs)
    factor = sym._npi_multiply(scale, sym.rsqrt(sym._plus_scalar(var, scalar=epsilon, is_int=False)))
    return sym._npi_add(sym._npi_multiply(sym._npi_subtract(X, mean), factor), shift)


@rule("InstanceNormalization")
def instance_normalization(sym, input, scale, B, *, epsilon=9.999999747378752e-06):
    if input.dtype == np.float64:
        raise Unsupported("MXNet normalizes instances in float32 only")
    return within(sym, lambda x, *rest: sym.InstanceNorm(x, *rest, eps=epsilon), np.float32, input, scale, B)


def _centered(sym, x, axes):
    """`x` minus its mean, the mean, and the mean of its squares, over these axes."""
    mean = sym._npi_mean(x, axis=axes, keepdims=True)
    gap = sym._npi_subtract(x, mean)
    return gap, mean, sym._npi_mean(sym.square(gap), axis=axes, keepdims=True)


@rule("LayerNormalization")
def layer_normalization(sym, X, Scale, B=None, *, axis=-1, epsilon=9.999999747378752e-06, stash_type=1):
    axes = tuple(range(axis % rank(X), rank(X)))
    gap, mean, var = _centered(sym, X, axes)
    inverse = sym.rsqrt(sym._plus_scalar(var, scalar=epsilon, is_int=False))
    if len(axes) == 1 and B is not None and Scale.shape == B.shape and rank(Scale) == 1:
        return sym.LayerNorm(X, Scale, B, axis=-1, eps=epsilon), mean, inverse
    y = sym._npi_multiply(sym._npi_multiply(gap, inverse), Scale)
    return y if B is None else sym._npi_add(y, B), mean, inverse


@rule("GroupNormalization")
def group_normalization(sym, X, scale, bias, *, epsilon=9.999999747378752e-06, num_groups, stash_type=1):
    sizes = fixed(X)
    gap, _, var = _centered(sym, reshaped(sym, X, (sizes[0], num_groups, -1)), (2,))
    y = sym._npi_multiply(gap, sym.rsqrt(sym._plus_scalar(var, scalar=epsilon, is_int=False)))
    wide = (-1, *[1] * (rank(X) - 2))
    return sym._npi_add(sym._npi_multiply(reshaped(sym, y, sizes), reshaped(sym, scale, wide)), reshaped(sym, bias, wide))


@rule("RMSNormalization")
def rms_normalization(sym, X, scale, *, axis=-1, epsilon=9.999999747378752e-06, stash_type=1):
    square = sym._npi_mean(sym.square(X), axis=tuple(range(axis % rank(X), rank(X))), keepdims=True)
    return sym._npi_multiply(sym._npi_multiply(X, sym.rsqrt(sym._plus_scalar(square, scalar=epsilon, is_int=False))), scale)


@rule("LRN")
def lrn(sym, X, *, alpha=9.999999747378752e-05, beta=0.75, bias=1.0, size):
    if size % 2 == 0 or rank(X) != 4:
        raise Unsupported("an even size, or a rank other than 4")
    return sym.LRN(X, alpha=alpha, beta=beta, knorm=bias, nsize=size)


@rule("LpNormalization")
def lp_normalization(sym, input, *, axis=-1, p=2):
    """The result is 0 if the norm is 0."""
    axes = (axis % rank(input),)
    if p == 1:
        length = sym._np_sum(sym.abs(input), axis=axes, keepdims=True)
    else:
        length = sym.sqrt(sym._np_sum(sym.square(input), axis=axes, keepdims=True))
    return sym._npi_true_divide(input, sym._npi_where(length, length, np.ones((), input.dtype)))
