"""Pooling over windows and global pooling."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from onnxbridge.backends.pytorch.ops import rule
from onnxbridge.backends.pytorch.padding import f_pad_order, pads_of
from onnxbridge.backends.pytorch.trace.tracer import opaque_call, read_ints
from onnxbridge.errors import Unsupported
from onnxbridge.rules import Outputs

_MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_AVERAGE = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


@opaque_call
def end_padding(size, before, after, extent, stride):
    """With ceil_mode, the padding at the end so that the last window that starts inside the padded input fits exactly."""
    count = -(-(size + before + after - extent) // stride) + 1
    if (count - 1) * stride >= size + before:
        count -= 1
    return (count - 1) * stride + extent - size - before


def _setup(X, kernel_shape, auto_pad, ceil_mode, dilations, pads, strides):
    rank = len(kernel_shape)
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    before, after = pads_of(auto_pad, pads, X.shape[2:], kernel_shape, strides, dilations)
    extents = [(k - 1) * d + 1 for k, d in zip(kernel_shape, dilations, strict=True)]
    final = after
    if ceil_mode and not auto_pad.startswith("SAME"):
        final = [end_padding(n, b, a, e, s) for n, b, a, e, s in zip(X.shape[2:], before, after, extents, strides, strict=True)]
    return strides, dilations, list(before), list(after), list(final), extents


def _symmetric(before, after, kernel_shape):
    """Whether PyTorch's pools support the padding."""
    return all(
        isinstance(b, int) and isinstance(a, int) and b == a and 0 <= 2 * b <= k
        for b, a, k in zip(before, after, kernel_shape, strict=True)
    )


def windows(x, extents, strides, dilations):
    """`x` with a new last dimension for each spatial one, holding the elements of its windows."""
    for d, (e, s, step) in enumerate(zip(extents, strides, dilations, strict=True)):
        x = x.unfold(2 + d, e, s)
        x = x[..., ::step] if step > 1 else x
    return x


@rule("MaxPool", limits="1 to 3 spatial dimensions")
def max_pool(
    X, *, kernel_shape, auto_pad="NOTSET", ceil_mode=0, dilations=None, pads=None, storage_order=0, strides=None,
    outputs: Outputs,
):  # fmt: skip
    rank = len(kernel_shape)
    if rank not in _MAX:
        raise Unsupported(f"{rank} spatial dimensions")
    strides, dilations, before, after, final, _ = _setup(X, kernel_shape, auto_pad, ceil_mode, dilations, pads, strides)
    # int8 and uint8 are exact in float32; PyTorch has no integer pooling
    data = X if X.dtype.is_floating_point else X.to(torch.float32)
    padding = 0
    if _symmetric(before, final, kernel_shape):
        padding = tuple(before)
    elif any(isinstance(p, torch.fx.Proxy) or p for p in (*before, *final)):
        data = F.pad(data, f_pad_order(before, final), value=-math.inf)
    if not any(outputs[1:]) and rank > 1:  # max_pool1d without indices specializes a dynamic length
        return _MAX[rank](data, kernel_shape, strides, padding, dilations).to(X.dtype)
    values, indices = _MAX[rank](data, kernel_shape, strides, padding, dilations, False, return_indices=True)
    shifts = before if padding == 0 else [0] * rank
    return values.to(X.dtype), _indices(indices, X, data, shifts, storage_order)


def _indices(indices, X, data, shifts, storage_order):
    """Indices into a padded channel as indices into the whole input."""
    coordinates = []
    for size, shift in zip(reversed(data.shape[2:]), reversed(shifts), strict=True):
        coordinates.insert(0, torch.remainder(indices, size) - shift)
        indices = torch.div(indices, size, rounding_mode="floor")
    sizes = list(X.shape[2:])
    if storage_order:
        coordinates, sizes = coordinates[::-1], sizes[::-1]
    index = 0
    for c, n in zip(coordinates, sizes, strict=True):
        index = index * n + c
    channels = channel_numbers(X) * math.prod(sizes)
    return index + channels


@opaque_call
def channel_numbers(X):
    """The index of each sample and channel, with as many dimensions as `X`."""
    count = torch.arange(X.shape[0] * X.shape[1], device=X.device)
    return count.reshape([X.shape[0], X.shape[1]] + [1] * (X.ndim - 2))


@rule("AveragePool", limits="1 to 3 spatial dimensions")
def average_pool(
    X, *, kernel_shape, auto_pad="NOTSET", ceil_mode=0, count_include_pad=0, dilations=None, pads=None, strides=None
):
    rank = len(kernel_shape)
    strides, dilations, before, after, final, extents = _setup(X, kernel_shape, auto_pad, ceil_mode, dilations, pads, strides)
    if rank in _AVERAGE and set(dilations) == {1} and _symmetric(before, final, kernel_shape):
        kind = X.dtype
        # PyTorch's CPU has no average pool of half precision in three dimensions
        X = X.to(torch.float32) if rank == 3 and kind in (torch.float16, torch.bfloat16) else X
        return _AVERAGE[rank](X, kernel_shape, strides, tuple(before), False, bool(count_include_pad)).to(kind)
    dims = list(range(-rank, 0))
    counted = torch.ones_like(X[:1, :1])
    if count_include_pad:
        counted = F.pad(counted, f_pad_order(before, after), value=1.0)
        counted = F.pad(counted, f_pad_order([0] * rank, [f - a for f, a in zip(final, after, strict=True)]))
    else:
        counted = F.pad(counted, f_pad_order(before, final))
    total = windows(F.pad(X, f_pad_order(before, final)), extents, strides, dilations).sum(dims)
    return total / windows(counted, extents, strides, dilations).sum(dims)


@rule("LpPool")
def lp_pool(X, *, kernel_shape, auto_pad="NOTSET", ceil_mode=0, dilations=None, p=2, pads=None, strides=None):
    strides, dilations, before, _, final, extents = _setup(X, kernel_shape, auto_pad, ceil_mode, dilations, pads, strides)
    powers = torch.pow(torch.abs(F.pad(X, f_pad_order(before, final))), p)
    return torch.pow(windows(powers, extents, strides, dilations).sum(list(range(-len(kernel_shape), 0))), 1 / p)


def _spatial(X):
    return list(range(2, X.ndim))


@rule("GlobalAveragePool")
def global_average_pool(X):
    return torch.mean(X, _spatial(X), keepdim=True)


@rule("GlobalMaxPool")
def global_max_pool(X):
    return torch.amax(X, _spatial(X), keepdim=True)


@rule("GlobalLpPool")
def global_lp_pool(X, *, p=2):
    return torch.linalg.vector_norm(X, p, _spatial(X), keepdim=True)


@opaque_call
def unpooled(X, indices, output_shape, sizes):
    shape = [*X.shape[:2], *sizes]
    flat = torch.zeros(math.prod(shape), dtype=X.dtype, device=X.device).scatter(0, indices.reshape(-1), X.reshape(-1))
    found = flat.reshape(shape)
    if output_shape is None:
        return found
    return F.pad(found, f_pad_order([0] * found.ndim, [w - n for w, n in zip(read_ints(output_shape), shape, strict=True)]))


@rule("MaxUnpool")
def max_unpool(X, I, output_shape=None, *, kernel_shape, pads=None, strides=None):  # noqa: E741  (ONNX's name)
    rank = len(kernel_shape)
    strides, pads = strides or (1,) * rank, pads or (0,) * (2 * rank)
    sizes = [
        (n - 1) * s + k - b - a
        for n, s, k, b, a in zip(X.shape[2:], strides, kernel_shape, pads[:rank], pads[rank:], strict=True)
    ]
    return unpooled(X, I, output_shape, sizes)
