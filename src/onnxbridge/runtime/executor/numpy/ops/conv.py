"""Convolution."""

from __future__ import annotations

import math

import numpy as np

from onnxbridge.hub.io.resource_limits import claim
from onnxbridge.rules import Ints
from onnxbridge.runtime.executor.numpy.dtypes import widened
from onnxbridge.runtime.executor.numpy.kernels import conv as kernels
from onnxbridge.runtime.executor.numpy.kernels.windows import extent, shifts
from onnxbridge.runtime.executor.numpy.ops import rule
from onnxbridge.runtime.executor.numpy.padding import claim_output, pairs, spread, window


@rule("Conv")
@widened
def conv(X, W, B=None, *, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, pads=None, strides=None):
    w = window(X, kernel_shape or W.shape[2:], strides, pads, dilations, auto_pad)
    claim_output(X, W.shape[0], w)
    return kernels.conv(X, W, B, groups=group, **w.moves)


@rule("ConvTranspose")
@widened
def conv_transpose(
    X,
    W,
    B=None,
    *,
    auto_pad="NOTSET",
    dilations=None,
    group=1,
    kernel_shape=None,
    output_padding=None,
    output_shape=None,
    pads=None,
    strides=None,
):
    w, out = spread(X, W.shape[2:], strides, pads, dilations, auto_pad, output_padding, output_shape)
    maps = W.shape[1] * group
    full = [o + b + e for o, (b, e) in zip(out, w.pads, strict=True)]
    for sizes in (out, full, (*w.kernel, *X.shape[2:])):
        claim((X.shape[0], maps, *sizes), X.dtype)
    extra = output_padding or (0,) * len(out)
    return kernels.conv_transpose(X, W, B, groups=group, output_padding=extra, **w.moves)


@rule("DeformConv")
@widened
def deform_conv(
    X,
    W,
    offset,
    B=None,
    mask=None,
    *,
    dilations=None,
    group=1,
    kernel_shape=None,
    offset_group=1,
    pads=None,
    strides=None,
):
    """Each position of the kernel samples the input at its offset, interpolated, with zeros outside."""
    space = X.ndim - 2
    batch, channels = X.shape[:2]
    w = window(X, kernel_shape or W.shape[2:], strides, pads, dilations, "NOTSET")
    out, taps = offset.shape[2:], int(np.prod(w.kernel))
    claim((batch, channels, taps, *out), X.dtype)
    shift = offset.reshape(batch, offset_group, taps, space, *out)
    grids = []
    for d in range(space):
        start = np.arange(out[d]) * w.strides[d] - w.pads[d][0]
        tap = np.indices(w.kernel)[d].reshape(-1) * w.dilations[d]
        base = tap.reshape(-1, *(1,) * space) + start.reshape(-1, *(1,) * (space - 1 - d))
        grids.append(shift[:, :, :, d] + base.astype(X.dtype))
    x = X.reshape(batch, offset_group, channels // offset_group, *X.shape[2:])
    cols = _between(x, grids)
    if mask is not None:
        cols = cols * mask.reshape(batch, offset_group, 1, taps, *out)
    cols = cols.reshape(batch, group, channels // group * taps, -1)
    y = np.matmul(W.reshape(group, W.shape[0] // group, -1), cols).reshape(batch, W.shape[0], *out)
    return y if B is None else y + B.reshape(-1, *(1,) * space)


def _between(x, grids):
    """x (N, G, C, *D) at the points `grids`, one (N, G, *P) for each of D, in elements: (N, G, C, *P)."""
    space = len(grids)
    n, g = np.ogrid[: x.shape[0], : x.shape[1]]
    lead = [i.reshape(i.shape + (1,) * (grids[0].ndim - 2)) for i in (n, g)]
    moved = np.moveaxis(x, 2, -1)
    low = [np.floor(p) for p in grids]
    total = 0
    for corner in np.ndindex(*(2,) * space):
        weight, index = 1, []
        for p, base, c, size in zip(grids, low, corner, x.shape[3:], strict=True):
            at = base + c
            inside = (at >= 0) & (at < size)
            weight = weight * np.where(inside, 1 - np.abs(p - at), 0)
            index.append(np.clip(at, 0, size - 1).astype(np.intp))
        total = total + moved[(*lead, *index)] * weight[..., None]
    return np.moveaxis(total, -1, 2).astype(x.dtype)


@rule("Col2Im")
def col2im(input, image_shape: Ints, block_shape: Ints, *, dilations=None, pads=None, strides=None):
    space = len(image_shape)
    strides, dilations, cut = strides or (1,) * space, dilations or (1,) * space, pairs(pads, space)
    sizes = [n + b + e for n, (b, e) in zip(image_shape, cut, strict=True)]
    out = [(n - e) // s + 1 for n, e, s in zip(sizes, extent(block_shape, dilations), strides, strict=True)]
    batch, channels = input.shape[0], input.shape[1] // int(np.prod(block_shape))
    if input.shape[1:] != (channels * int(np.prod(block_shape)), math.prod(out)):
        blocks = f"{math.prod(out)} blocks of shape {list(block_shape)}"
        raise ValueError(f"Col2Im: an input of shape {list(input.shape)} does not have {blocks}")
    claim((batch, channels, *sizes), input.dtype)
    y = np.zeros((batch, channels, *sizes), input.dtype)
    cols = input.reshape(batch, channels, -1, *out)
    for i, (_, part) in enumerate(shifts(y, block_shape, out, strides, dilations)):
        part += cols[:, :, i]
    return y[(..., *(slice(b, b + n) for n, (b, _) in zip(image_shape, cut, strict=True)))]
