"""Normalization operators."""

import numpy as np
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil.mil import types

from onnxbridge.backends.coreml.element_types import cast, like, numpy_type
from onnxbridge.backends.coreml.ops import rule
from onnxbridge.backends.coreml.sizes import fixed, reshaped, sizes
from onnxbridge.rules import Outputs


def _per_channel(v, rank):
    """Reshape a per-channel value to broadcast over (N, C, ...)."""
    return mb.reshape(x=v, shape=[1, -1] + [1] * (rank - 2))


@rule("BatchNormalization", limits="inference only")
def batch_normalization(
    X, scale, B, input_mean, input_var, *, epsilon=9.999999747378752e-06, momentum=0.8999999761581421, training_mode=0
):
    """MIL's batch_norm for constant parameters and 1 to 3 spatial axes; composed otherwise, and in training mode."""
    if training_mode:
        return _training_norm(X, scale, B, input_mean, input_var, epsilon, momentum)
    parameters = (input_mean, input_var, scale, B)
    if 3 <= X.rank <= 5 and all(v.val is not None for v in parameters):
        mean, variance, gamma, beta = (np.asarray(v.val, numpy_type(X)) for v in parameters)
        return mb.batch_norm(x=X, mean=mean, variance=variance, gamma=gamma, beta=beta, epsilon=like(X, epsilon))
    mean, variance, gamma, beta = (cast(v if X.rank == 1 else _per_channel(v, X.rank), X.dtype) for v in parameters)
    return _affine(X, mean, variance, gamma, beta, epsilon)


def _affine(x, mean, variance, gamma, beta, epsilon):
    deviation = mb.sqrt(x=mb.add(x=variance, y=like(x, epsilon)))
    scaled = mb.mul(x=mb.real_div(x=mb.sub(x=x, y=mean), y=deviation), y=gamma)
    return scaled if beta is None else mb.add(x=scaled, y=beta)


def _training_norm(X, scale, B, input_mean, input_var, epsilon, momentum):
    axes = [0, *range(2, X.rank)]
    mean = mb.reduce_mean(x=X, axes=axes, keep_dims=True)
    variance = mb.reduce_mean(x=mb.square(x=mb.sub(x=X, y=mean)), axes=axes, keep_dims=True)
    y = _affine(X, mean, variance, cast(_per_channel(scale, X.rank), X.dtype), cast(_per_channel(B, X.rank), X.dtype), epsilon)

    def running(old, new):
        new = cast(mb.squeeze(x=new, axes=axes), old.dtype)
        return mb.add(x=mb.mul(x=old, y=like(old, momentum)), y=mb.mul(x=new, y=like(old, 1 - momentum)))

    return y, running(input_mean, mean), running(input_var, variance)


@rule("InstanceNormalization")
def instance_normalization(input, scale, B, *, epsilon=9.999999747378752e-06):
    if scale.val is not None and B.val is not None and 3 <= input.rank <= 4:
        return mb.instance_norm(x=input, gamma=scale.val, beta=B.val, epsilon=like(input, epsilon))
    y = _standardized(input, list(range(2, input.rank)), epsilon)
    return mb.add(x=mb.mul(x=y, y=_per_channel(scale, input.rank)), y=_per_channel(B, input.rank))


def _standardized(x, axes, epsilon):
    centered = mb.sub(x=x, y=mb.reduce_mean(x=x, axes=axes, keep_dims=True))
    variance = mb.reduce_mean(x=mb.square(x=centered), axes=axes, keep_dims=True)
    return mb.real_div(x=centered, y=mb.sqrt(x=mb.add(x=variance, y=like(x, epsilon))))


@rule("LayerNormalization")
def layer_normalization(X, Scale, B=None, *, axis=-1, epsilon=9.999999747378752e-06, stash_type=1, outputs: Outputs):
    axes = list(range(axis % X.rank, X.rank))
    returns_statistics = len(outputs) > 1 and any(outputs[1:])
    parts = tuple(X.shape[a] for a in axes)
    if not returns_statistics and all(v is None or (v.val is not None and tuple(v.shape) == parts) for v in (Scale, B)):
        beta = None if B is None else B.val
        return mb.layer_norm(x=X, axes=axes, gamma=Scale.val, beta=beta, epsilon=like(X, epsilon))
    x = cast(X, types.fp32) if stash_type == 1 else X
    mean = mb.reduce_mean(x=x, axes=axes, keep_dims=True)
    centered = mb.sub(x=x, y=mean)
    variance = mb.reduce_mean(x=mb.square(x=centered), axes=axes, keep_dims=True)
    inverse = mb.real_div(x=like(x, 1), y=mb.sqrt(x=mb.add(x=variance, y=like(x, epsilon))))
    y = mb.mul(x=cast(mb.mul(x=centered, y=inverse), X.dtype), y=Scale)
    return y if B is None else mb.add(x=y, y=B), mean, inverse


@rule("RMSNormalization")
def rms_normalization(X, scale, *, axis=-1, epsilon=9.999999747378752e-06, stash_type=1):
    x = cast(X, types.fp32) if stash_type == 1 else X
    square = mb.reduce_mean(x=mb.square(x=x), axes=list(range(axis % X.rank, X.rank)), keep_dims=True)
    y = mb.real_div(x=x, y=mb.sqrt(x=mb.add(x=square, y=like(x, epsilon))))
    return mb.mul(x=cast(y, scale.dtype), y=scale)


@rule("GroupNormalization")
def group_normalization(X, scale, bias, *, epsilon=9.999999747378752e-06, num_groups, stash_type=1):
    """Each group of channels is reshaped to one row and standardized; then the per-channel scale and bias are applied."""
    dims = sizes(X)
    x = cast(X, types.fp32) if stash_type == 1 else X
    rows = reshaped(x, [dims[0], num_groups, -1])
    y = cast(reshaped(_standardized(rows, [2], epsilon), dims), X.dtype)
    return mb.add(x=mb.mul(x=y, y=_per_channel(scale, X.rank)), y=_per_channel(bias, X.rank))


@rule("LRN")
def lrn(X, *, alpha=9.999999747378752e-05, beta=0.75, bias=1.0, size):
    """MIL's local_response_norm supports only odd window sizes and ranks 3 and 4; composed otherwise."""
    if size % 2 and 3 <= X.rank <= 4:
        return mb.local_response_norm(x=X, size=size, alpha=like(X, alpha), beta=like(X, beta), k=like(X, bias))
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    if fixed(X, [1]):  # the window need not exceed the channels
        before, after = min(before, int(X.shape[1]) - 1), min(after, int(X.shape[1]) - 1)
    pads = [0, 0, before, after] + [0, 0] * (X.rank - 2)
    squares = mb.pad(x=mb.square(x=X), pad=pads, mode="constant", constant_val=like(X, 0))
    total = None
    for i in range(before + 1 + after):
        end = i - before - after
        part = mb.slice_by_index(
            x=squares, begin=[0, i, *[0] * (X.rank - 2)], end=[0, end, *[0] * (X.rank - 2)],
            begin_mask=[a != 1 for a in range(X.rank)], end_mask=[a != 1 or end == 0 for a in range(X.rank)],
        )  # fmt: skip
        total = part if total is None else mb.add(x=total, y=part)
    scaled = mb.add(x=mb.mul(x=total, y=like(X, alpha / size)), y=like(X, bias))
    return mb.real_div(x=X, y=mb.pow(x=scaled, y=like(X, beta)))


@rule("LpNormalization")
def lp_normalization(input, *, axis=-1, p=2):
    """0 if the norm is 0."""
    norm = (mb.reduce_l2_norm if p == 2 else mb.reduce_l1_norm)(x=input, axes=[axis], keep_dims=True)
    is_zero = mb.equal(x=norm, y=like(input, 0))
    return mb.real_div(x=input, y=mb.select(cond=is_zero, a=like(input, 1), b=norm))
