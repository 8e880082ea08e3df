"""Convolutions and fully connected layers."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.frontends.mxnet.ops.types import as_tuple
from onnxbridge.hub.ir.values import dtype_name, rank, static_shape

CHANNELS_FIRST = (None, "NCW", "NCHW", "NCDHW")


def channels_first(layout):
    if layout not in CHANNELS_FIRST:
        raise Unsupported(f"layout={layout!r} is not supported", hint="MXNet supports it on GPUs only; use NCHW")


def same_dtype(data, weight):
    """Refuse a layer whose data and weight differ in dtype, as MXNet does."""
    if data.dtype != weight.dtype:
        raise Unsupported(
            f"its data is {dtype_name(data.dtype)} and its weight {dtype_name(weight.dtype)}",
            hint=f"describe the model's inputs as {dtype_name(weight.dtype)} (--inputs data:{dtype_name(weight.dtype)}[...])",
        )


@rule("Convolution", "Convolution_v1", "_npx_convolution")
def convolution(
    op, data, weight, bias=None, *, kernel, stride=(), dilate=(), pad=(), num_filter, num_group=1, no_bias=False, layout=None
):  # fmt: skip
    same_dtype(data, weight)
    channels_first(layout)
    count = len(as_tuple(kernel))
    return op.Conv(
        data, weight, None if no_bias else bias, kernel_shape=as_tuple(kernel), strides=as_tuple(stride) or (1,) * count,
        dilations=as_tuple(dilate) or (1,) * count, pads=(as_tuple(pad) or (0,) * count) * 2, group=num_group,
    )  # fmt: skip


@rule("Deconvolution", "_npx_deconvolution")
def deconvolution(
    op, data, weight, bias=None, *, kernel, stride=(), dilate=(), pad=(), adj=(), target_shape=(), num_filter, num_group=1,
    no_bias=True, layout=None,
):  # fmt: skip
    """A target shape overrides padding and adjustment."""
    same_dtype(data, weight)
    channels_first(layout)
    kernel, count = as_tuple(kernel), len(as_tuple(kernel))
    stride, dilate = as_tuple(stride) or (1,) * count, as_tuple(dilate) or (1,) * count
    pad, adj, target = as_tuple(pad) or (0,) * count, as_tuple(adj) or (0,) * count, as_tuple(target_shape)
    if any(target):
        sizes = static_shape(data, range(2, 2 + count))
        full_sizes = [s * (n - 1) + d * (k - 1) + 1 for s, n, d, k in zip(stride, sizes, dilate, kernel, strict=True)]
        spare = [m - t for m, t in zip(full_sizes, target, strict=True)]
        pad, adj = tuple((s + 1) // 2 for s in spare), tuple(s % 2 for s in spare)
    return op.ConvTranspose(
        data, weight, None if no_bias else bias, kernel_shape=kernel, strides=stride, dilations=dilate, pads=pad * 2,
        output_padding=adj, group=num_group,
    )  # fmt: skip


@rule("FullyConnected", "_npx_fully_connected")
def fully_connected(op, data, weight, bias=None, *, num_hidden, no_bias=False, flatten=True):
    same_dtype(data, weight)
    bias = None if no_bias else bias
    if flatten or rank(data) == 2:
        return op.Gemm(data if rank(data) == 2 else op.Flatten(data, axis=1), weight, bias, transB=1)
    product = op.MatMul(data, op.Transpose(weight, perm=[1, 0]))
    return product if bias is None else op.Add(product, bias)


@rule("_contrib_ModulatedDeformableConvolution")
def modulated_deformable_convolution(
    op, data, offset, mask, weight, bias=None, *, kernel, stride=(), dilate=(), pad=(), num_filter, num_group=1,
    num_deformable_group=1, no_bias=False, im2col_step=64, layout=None,
):  # fmt: skip
    channels_first(layout)
    return op.DeformConv(
        data, weight, offset, None if no_bias else bias, mask, kernel_shape=as_tuple(kernel),
        strides=as_tuple(stride) or (1, 1), dilations=as_tuple(dilate) or (1, 1), pads=(as_tuple(pad) or (0, 0)) * 2,
        group=num_group, offset_group=num_deformable_group,
    )  # fmt: skip


@rule("_contrib_DeformableConvolution")
def deformable_convolution(
    op, data, offset, weight, bias=None, *, kernel, stride=(), dilate=(), pad=(), num_filter, num_group=1,
    num_deformable_group=1, no_bias=False, layout=None,
):  # fmt: skip
    """Points outside the image count as 0, and those between its last pixel and its edge as the last pixel."""
    steps, taps, pads = as_tuple(stride) or (1, 1), as_tuple(dilate) or (1, 1), as_tuple(pad) or (0, 0)
    offset = _within(op, data, offset, as_tuple(kernel), steps, taps, pads)
    return modulated_deformable_convolution(
        op, data, offset, None, weight, bias, kernel=kernel, stride=stride, dilate=dilate, pad=pad, num_filter=num_filter,
        num_group=num_group, num_deformable_group=num_deformable_group, no_bias=no_bias, layout=layout,
    )  # fmt: skip


def _within(op, data, offset, kernel, stride, dilate, pad):
    """Offsets that take points outside the image where ONNX counts 0 too, and those beyond the last pixel onto it."""
    sizes, counts = static_shape(data, [2, 3]), static_shape(offset, [2, 3])
    dtype = data.dtype.numpy()
    steps = [np.arange(n) * s - p for n, s, p in zip(counts, stride, pad, strict=True)]
    taps = [np.arange(k) * d for k, d in zip(kernel, dilate, strict=True)]
    y = np.broadcast_to((taps[0][:, None] + steps[0])[:, None, :, None], (*kernel, *counts))
    x = np.broadcast_to((taps[1][:, None] + steps[1])[None, :, None, :], (*kernel, *counts))
    base = np.stack([y, x], 2).reshape(-1, 2, *counts).astype(dtype)  # for each tap, rows and columns
    size = np.array(sizes, dtype).reshape(2, 1, 1)
    offset = op.Reshape(offset, [0, -1, *base.shape])
    point = op.Add(offset, base)
    outside = op.Or(op.Less(point, np.zeros((), dtype)), op.GreaterOrEqual(point, size))
    offset = op.Where(op.Greater(point, size - 1), size - 1 - base, offset)
    return op.Reshape(op.Where(outside, -2 - base, offset), [0, -1, *counts])
