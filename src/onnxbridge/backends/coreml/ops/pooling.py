"""Pooling operators."""

import math

import numpy as np
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil.mil import types

from onnxbridge.backends.coreml.element_types import cast, is_float, like, narrow
from onnxbridge.backends.coreml.ops import rule
from onnxbridge.backends.coreml.padding import extent, flat, is_same, pads_of
from onnxbridge.backends.coreml.sizes import along, fixed, numbers
from onnxbridge.errors import Unsupported
from onnxbridge.rules import Outputs


def _pooling_parameters(X, auto_pad, ceil_mode, dilations, kernel_shape, pads, strides):
    """Strides, dilations, the padding before and after, and the additional padding after that ceil_mode needs."""
    space = len(kernel_shape)
    if X.rank != space + 2 or not 1 <= space <= 3:
        raise Unsupported(f"{X.rank - 2} spatial axes; Core ML supports 1 to 3")
    strides, dilations = strides or (1,) * space, dilations or (1,) * space
    begins, ends = pads_of(auto_pad, pads, X, kernel_shape, strides, dilations)
    extra_ends = [0] * space
    if ceil_mode and max(strides) > 1:
        if not fixed(X, range(2, X.rank)):
            raise Unsupported("ceil_mode with a dynamic size", "give the input a fixed shape")
        for i, span in enumerate(extent(kernel_shape, dilations)):
            n, s = X.shape[2 + i] + begins[i] + ends[i], strides[i]
            count = -(-(n - span) // s) + 1
            if (count - 1) * s >= X.shape[2 + i] + begins[i]:  # windows that start in the padding after the input are ignored
                count -= 1
            extra_ends[i] = max(0, (count - 1) * s + span - n)
    return strides, dilations, begins, ends, extra_ends


def _windows(x, kernel, strides, dilations):
    """Yield one strided slice of `x` per kernel element, which together hold the elements of each window."""
    space = len(kernel)
    counts = [(n - e) // s + 1 for n, e, s in zip(x.shape[2:], extent(kernel, dilations), strides, strict=True)]
    for kernel_index in np.ndindex(*kernel):
        begin = [p * d for p, d in zip(kernel_index, dilations, strict=True)]
        end = [b + (c - 1) * s + 1 for b, c, s in zip(begin, counts, strides, strict=True)]
        yield mb.slice_by_index(
            x=x, begin=[0, 0, *begin], end=[0, 0, *end], stride=[1, 1, *strides],
            begin_mask=[True, True] + [False] * space, end_mask=[True, True] + [False] * space,
        )  # fmt: skip


def _padded(x, begins, ends, value):
    if not any((*begins, *ends)):
        return x
    return mb.pad(x=x, pad=[0, 0, 0, 0, *flat((begins, ends))], mode="constant", constant_val=like(x, value))


def _max_of_windows(x, kernel, strides, dilations):
    """The largest element of each window, and the index of its first occurrence in the kernel."""
    best, kernel_index = None, None
    for i, element in enumerate(_windows(x, kernel, strides, dilations)):
        if best is None:
            best, kernel_index = element, np.zeros(numbers(element), np.int32)
            continue
        larger = mb.greater(x=element, y=best)
        kernel_index = mb.select(cond=larger, a=np.int32(i), b=kernel_index)
        best = mb.maximum(x=best, y=element)
    return best, kernel_index


def _flat_indices(kernel_index, x, kernel, strides, dilations, begins, by_column):
    """Convert kernel indices to flat indices into the unpadded tensor."""
    shape = numbers(x)
    offset = np.zeros((), np.int64)
    total = None
    for axis, n in enumerate(shape):
        step = int(np.prod(shape[axis + 1 :], dtype=np.int64))
        if axis < 2:
            offset = offset + along(np.arange(n) * step, axis, len(shape))
            continue
        i = axis - 2
        step = math.prod(shape[2:axis]) if by_column else step
        first = np.arange(kernel_index.shape[axis]) * strides[i] - begins[i]
        offset = offset + along(first * step, axis, len(shape))
        inner = int(np.prod(kernel[i + 1 :], dtype=np.int64))
        offset_in_axis = mb.mod(x=mb.floor_div(x=kernel_index, y=np.int32(inner)), y=np.int32(kernel[i]))
        term = mb.mul(x=offset_in_axis, y=np.int32(dilations[i] * step))
        total = term if total is None else mb.add(x=total, y=term)
    return mb.add(x=total, y=narrow(offset))


@rule("MaxPool", limits="indices and dilation need fixed sizes")
def max_pool(
    X, *, auto_pad="NOTSET", ceil_mode=0, dilations=None, kernel_shape, pads=None, storage_order=0, strides=None, outputs: Outputs
):  # fmt: skip
    indices = len(outputs) > 1 and outputs[1]
    x = X if is_float(X) else cast(X, types.fp32)  # int8 and uint8 are exact in float32
    if not indices and is_same(auto_pad, X, strides, dilations):
        return cast(mb.max_pool(x=x, kernel_sizes=kernel_shape, strides=strides, pad_type="same"), X.dtype)
    strides, dilations, begins, ends, extra_ends = _pooling_parameters(
        X, auto_pad, ceil_mode, dilations, kernel_shape, pads, strides
    )
    ends = [e + m for e, m in zip(ends, extra_ends, strict=True)]
    if not indices and max(dilations) == 1:
        y = mb.max_pool(x=x, kernel_sizes=kernel_shape, strides=strides, pad_type="custom", pad=flat((begins, ends)))
        return cast(y, X.dtype)
    if not fixed(X, range(2, X.rank)):
        raise Unsupported("dilation or indices with a dynamic size", "give the input a fixed shape")
    y, kernel_index = _max_of_windows(_padded(x, begins, ends, -np.inf), kernel_shape, strides, dilations)
    y = cast(y, X.dtype)
    return (y, _flat_indices(kernel_index, X, kernel_shape, strides, dilations, begins, storage_order)) if indices else y


def _window_counts(X, kernel, strides, dilations, begins, ends, extra_ends, include):
    """The number of averaged elements per window, as an array that broadcasts."""
    counts = np.ones((), np.int64)
    for i, k in enumerate(kernel):
        n = X.shape[2 + i]
        low, high = (-begins[i], n + ends[i]) if include else (0, n)
        span = extent([k], [dilations[i]])[0]
        starts = np.arange((n + begins[i] + ends[i] + extra_ends[i] - span) // strides[i] + 1) * strides[i] - begins[i]
        positions = starts[:, None] + np.arange(k) * dilations[i]
        counts = counts * along(((positions >= low) & (positions < high)).sum(1), 2 + i, X.rank)
    return counts


@rule("AveragePool", limits="dilation, and ceil_mode that counts padding, need fixed sizes")
def average_pool(
    X, *, auto_pad="NOTSET", ceil_mode=0, count_include_pad=0, dilations=None, kernel_shape, pads=None, strides=None
):  # fmt: skip
    if is_same(auto_pad, X, strides, dilations):
        return mb.avg_pool(
            x=X, kernel_sizes=kernel_shape, strides=strides, pad_type="same",
            exclude_padding_from_average=not count_include_pad,
        )  # fmt: skip
    strides, dilations, begins, ends, extra_ends = _pooling_parameters(
        X, auto_pad, ceil_mode, dilations, kernel_shape, pads, strides
    )
    all_ends = [e + m for e, m in zip(ends, extra_ends, strict=True)]
    if max(dilations) == 1 and not (count_include_pad and any(extra_ends)):
        return mb.avg_pool(
            x=X, kernel_sizes=kernel_shape, strides=strides, pad_type="custom", pad=flat((begins, all_ends)),
            exclude_padding_from_average=not count_include_pad,
        )  # fmt: skip
    total = _window_sums(X, kernel_shape, strides, dilations, begins, all_ends)
    counts = _window_counts(X, kernel_shape, strides, dilations, begins, ends, extra_ends, count_include_pad)
    return mb.real_div(x=total, y=like(X, counts))


def _window_sums(x, kernel, strides, dilations, begins, ends):
    """The sum over each window, with zero padding."""
    if max(dilations) == 1:
        mean = mb.avg_pool(
            x=x,
            kernel_sizes=kernel,
            strides=strides,
            pad_type="custom",
            pad=flat((begins, ends)),
            exclude_padding_from_average=False,
        )
        return mb.mul(x=mean, y=like(x, np.prod(kernel)))
    if not fixed(x, range(2, x.rank)):
        raise Unsupported("dilation with a dynamic size", "give the input a fixed shape")
    total = None
    for element in _windows(_padded(x, begins, ends, 0), kernel, strides, dilations):
        total = element if total is None else mb.add(x=total, y=element)
    return total


@rule("LpPool", limits="dilation needs fixed sizes")
def lp_pool(X, *, auto_pad="NOTSET", ceil_mode=0, dilations=None, kernel_shape, p=2, pads=None, strides=None):
    strides, dilations, begins, ends, extra_ends = _pooling_parameters(
        X, auto_pad, ceil_mode, dilations, kernel_shape, pads, strides
    )
    all_ends = [e + m for e, m in zip(ends, extra_ends, strict=True)]
    powers = mb.pow(x=mb.abs(x=X), y=like(X, p))
    return mb.pow(x=_window_sums(powers, kernel_shape, strides, dilations, begins, all_ends), y=like(X, 1 / p))


@rule("GlobalAveragePool")
def global_average_pool(X):
    return mb.reduce_mean(x=X, axes=list(range(2, X.rank)), keep_dims=True)


@rule("GlobalMaxPool")
def global_max_pool(X):
    return mb.reduce_max(x=X, axes=list(range(2, X.rank)), keep_dims=True)


@rule("GlobalLpPool")
def global_lp_pool(X, *, p=2):
    total = mb.reduce_sum(x=mb.pow(x=mb.abs(x=X), y=like(X, p)), axes=list(range(2, X.rank)), keep_dims=True)
    return mb.pow(x=total, y=like(X, 1 / p))
