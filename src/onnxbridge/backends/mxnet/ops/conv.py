"""Convolutions."""

from __future__ import annotations

import functools

import numpy as np

from onnxbridge.backends.mxnet.ops import rule
from onnxbridge.backends.mxnet.ops.shape import padded
from onnxbridge.backends.mxnet.ops.types import cast, fixed
from onnxbridge.errors import Unsupported
from onnxbridge.hub.builder.auto_pad import explicit_pads, split_padding


def window_pads(x, kernel, strides, dilations, pads, auto_pad):
    """Explicit padding before and after each axis, for auto_pad."""
    sizes = [n if isinstance(n, int) else None for n in x.shape[2:]]
    before, after = explicit_pads(auto_pad, pads, sizes, kernel, strides, dilations)
    return before + after


def symmetric(sym, x, pads, value=0.0):
    """The input and its symmetric padding; asymmetric padding is applied first."""
    count = len(pads) // 2
    if tuple(pads[:count]) == tuple(pads[count:]) and min(pads, default=0) >= 0:
        return x, tuple(pads[:count])
    return padded(sym, x, [0, 0, *pads[:count], 0, 0, *pads[count:]], value=value), (0,) * count


def in_float32(lower):
    """MXNet has no float16 products on a CPU: computed in float32, the result is rounded once."""

    @functools.wraps(lower)
    def wide(sym, X, W, B=None, **attrs):
        if X.dtype != np.float16:
            return lower(sym, X, W, B, **attrs)
        inputs = [None if v is None else cast(sym, v, np.float32) for v in (X, W, B)]
        y = lower(sym, *inputs, **attrs)
        y.dtype = np.dtype(np.float32)
        return cast(sym, y, np.float16)

    return wide


@rule("Conv")
@in_float32
def conv(sym, X, W, B=None, *, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, pads=None, strides=None):
    filters, _, *kernel = fixed(W)
    count = len(kernel)
    if not 1 <= count <= 3:
        raise Unsupported(f"MXNet does not support convolutions over {count} dimensions")
    strides, dilations = strides or (1,) * count, dilations or (1,) * count
    x, pad = symmetric(sym, X, window_pads(X, kernel, strides, dilations, pads, auto_pad))
    return sym.Convolution(
        x, W, B, kernel=tuple(kernel), stride=strides, dilate=dilations, pad=pad, num_filter=filters, num_group=group,
        no_bias=B is None,
    )  # fmt: skip


@rule("ConvTranspose")
@in_float32
def conv_transpose(
    sym, X, W, B=None, *, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, output_padding=None,
    output_shape=None, pads=None, strides=None,
):  # fmt: skip
    _, filters, *kernel = fixed(W)
    count = len(kernel)
    if not 1 <= count <= 3:
        raise Unsupported(f"MXNet does not support convolutions over {count} dimensions")
    strides, dilations = strides or (1,) * count, dilations or (1,) * count
    extra = output_padding or (0,) * count
    if count == 3 and set(dilations) != {1}:
        W, kernel, dilations = _with_gaps(sym, W, dilations)
    if output_shape is not None or auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        pads = _target_pads(X, kernel, strides, dilations, extra, output_shape, auto_pad)
    pads = list(pads or (0,) * (2 * count))
    even = pads[:count] == pads[count:] and min(pads) >= 0 and all(e < s for e, s in zip(extra, strides, strict=True))
    y = sym.Deconvolution(
        X, W, B, kernel=tuple(kernel), stride=strides, dilate=dilations, pad=tuple(pads[:count]) if even else (0,) * count,
        adj=tuple(extra) if even else (0,) * count, num_filter=filters * group, num_group=group, no_bias=B is None,
    )  # fmt: skip
    if even:
        return y
    after = [e - p for e, p in zip(extra, pads[count:], strict=True)]
    if B is not None and max(after) > 0:
        raise Unsupported("output padding beyond the windows with a bias")
    y.shape = (*X.shape[:1], filters * group, *[None] * count)
    return padded(sym, y, [0, 0, *[-p for p in pads[:count]], 0, 0, *after])


def _with_gaps(sym, weight, dilations):
    """A kernel with the gaps of its dilation as zeros, since MXNet dilates no transposed convolution of three dimensions. It is
    no parameter: training would fill the gaps.

    Raises:
        Unsupported: if the kernel is not a constant.
    """
    if weight.array is None:
        raise Unsupported("MXNet does not support dilated transposed convolutions over 3 dimensions")
    sizes = [(k - 1) * d + 1 for k, d in zip(weight.array.shape[2:], dilations, strict=True)]
    spread = np.zeros((*weight.array.shape[:2], *sizes), weight.array.dtype)
    spread[(..., *(slice(None, None, d) for d in dilations))] = weight.array
    return sym.constant(spread), sizes, (1,) * 3


def _target_pads(x, kernel, strides, dilations, extra, output_shape, auto_pad):
    """The padding for the target size."""
    sizes = fixed(x, range(2, 2 + len(kernel)))
    target = output_shape or [n * s for n, s in zip(sizes, strides, strict=True)]
    total = [
        s * (n - 1) + e + (k - 1) * d + 1 - t
        for n, k, s, d, e, t in zip(sizes, kernel, strides, dilations, extra, target[-len(kernel) :], strict=True)
    ]
    before, after = split_padding(total, auto_pad)
    return before + after
