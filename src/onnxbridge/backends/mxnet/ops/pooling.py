"""Pooling over windows and global pooling."""

from __future__ import annotations

import numpy as np

from onnxbridge.backends.mxnet.ops import rule
from onnxbridge.backends.mxnet.ops.conv import symmetric, window_pads
from onnxbridge.backends.mxnet.ops.shape import padded
from onnxbridge.backends.mxnet.ops.types import fixed, is_float, rank, within
from onnxbridge.errors import Unsupported
from onnxbridge.rules import Outputs


def _pads(x, kernel, strides, dilations, pads, auto_pad, ceil_mode):
    """The padding so that complete windows cover those of ONNX; `ceil_mode` adds padding at the end."""
    pads, count = window_pads(x, kernel, strides, dilations, pads, auto_pad), len(kernel)
    if not ceil_mode:
        return pads
    for i, (n, k, s, d) in enumerate(zip(fixed(x, range(2, 2 + count)), kernel, strides, dilations, strict=True)):
        span, padded_size = (k - 1) * d + 1, n + pads[i] + pads[count + i]
        windows = -(-(padded_size - span) // s) + 1
        if (windows - 1) * s >= n + pads[i]:  # the last one would start after the input
            windows -= 1
        pads[count + i] = max((windows - 1) * s + span - n - pads[i], 0)
    return pads


@rule("MaxPool")
def max_pool(
    sym, X, *, auto_pad="NOTSET", ceil_mode=0, dilations=None, kernel_shape, pads=None, storage_order=0, strides=None,
    used: Outputs = (),
):  # fmt: skip
    if len(used) > 1 and used[1]:
        raise Unsupported("MXNet's pooling does not support the output Indices")
    if not is_float(X):
        return within(sym, lambda x: max_pool(sym, x, auto_pad=auto_pad, ceil_mode=ceil_mode, dilations=dilations,
                                              kernel_shape=kernel_shape, pads=pads, strides=strides), np.float32, X)  # fmt: skip
    count = len(kernel_shape)
    strides, dilations = strides or (1,) * count, dilations or (1,) * count
    padding = _pads(X, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    least = float(np.finfo(X.dtype).min)
    if any(d > 1 for d in dilations):
        return _dilated(sym, X, kernel_shape, strides, dilations, padding, least, sym._npi_maximum)
    if all(p < k for p, k in zip(padding, tuple(kernel_shape) * 2, strict=True)):
        x, pad = symmetric(sym, X, padding, least)
    else:
        x, pad = padded(sym, X, [0, 0, *padding[:count], 0, 0, *padding[count:]], value=least), (0,) * count
    return sym.Pooling(x, kernel=kernel_shape, stride=strides, pad=pad, pool_type="max")


def _dilated(sym, x, kernel, strides, dilations, pads, outside, combine):
    """The shifted views of the input along each axis in turn, one for each offset in a window, combined."""
    count = len(kernel)
    sizes = [n + a + b for n, a, b in zip(fixed(x, range(2, 2 + count)), pads[:count], pads[count:], strict=True)]
    x = padded(sym, x, [0, 0, *pads[:count], 0, 0, *pads[count:]], value=outside)
    for axis, (n, k, s, d) in enumerate(zip(sizes, kernel, strides, dilations, strict=True)):
        windows = (n - (k - 1) * d - 1) // s + 1
        best = None
        for begin in range(0, k * d, d):
            bounds = [(begin, begin + (windows - 1) * s + 1, s) if i == axis else (None,) * 3 for i in range(count)]
            begins, ends, steps = ((None, None, *part) for part in zip(*bounds, strict=True))
            view = sym.slice(x, begin=begins, end=ends, step=steps)
            best = view if best is None else combine(best, view)
        x = best
    return x


@rule("AveragePool")
def average_pool(
    sym, X, *, auto_pad="NOTSET", ceil_mode=0, count_include_pad=0, dilations=None, kernel_shape, pads=None, strides=None
):  # fmt: skip
    if X.dtype == np.float16:
        return within(sym, lambda x: average_pool(
            sym, x, auto_pad=auto_pad, ceil_mode=ceil_mode, count_include_pad=count_include_pad, dilations=dilations,
            kernel_shape=kernel_shape, pads=pads, strides=strides), np.float32, X)  # fmt: skip
    count = len(kernel_shape)
    strides, dilations = strides or (1,) * count, dilations or (1,) * count
    model_pads = window_pads(X, kernel_shape, strides, dilations, pads, auto_pad)
    padding = _pads(X, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    if any(d > 1 for d in dilations):
        total = _dilated(sym, X, kernel_shape, strides, dilations, padding, 0.0, sym._npi_add)
        return sym._npi_true_divide(total, _counts(X, kernel_shape, strides, dilations, model_pads, padding, count_include_pad))
    even = model_pads[:count] == model_pads[count:] and all(
        p < k for p, k in zip(model_pads, tuple(kernel_shape) * 2, strict=True)
    )
    if padding == model_pads and even:
        return sym.Pooling(
            X, kernel=kernel_shape, stride=strides, pad=tuple(model_pads[:count]), pool_type="avg",
            count_include_pad=bool(count_include_pad),
        )  # fmt: skip
    x = padded(sym, X, [0, 0, *padding[:count], 0, 0, *padding[count:]])
    total = sym.Pooling(x, kernel=kernel_shape, stride=strides, pool_type="sum")
    return sym._npi_true_divide(total, _counts(X, kernel_shape, strides, dilations, model_pads, padding, count_include_pad))


def _counts(x, kernel, strides, dilations, model_pads, padding, count_include_pad):
    """The number of elements in each window; `count_include_pad` includes the model's own padding."""
    counts, count = np.ones((), x.dtype), len(kernel)
    for i, (n, k, s, d) in enumerate(zip(fixed(x, range(2, 2 + count)), kernel, strides, dilations, strict=True)):
        starts = np.arange((n + padding[i] + padding[count + i] - (k - 1) * d - 1) // s + 1) * s - padding[i]
        positions = starts[:, None] + np.arange(k) * d
        low, high = (-model_pads[i], n + model_pads[count + i]) if count_include_pad else (0, n)
        counts = counts[..., None] * ((positions >= low) & (positions < high)).sum(1).astype(x.dtype)
    return counts


@rule("LpPool")
def lp_pool(sym, X, *, auto_pad="NOTSET", ceil_mode=0, dilations=None, kernel_shape, p=2, pads=None, strides=None):
    count = len(kernel_shape)
    if any(d > 1 for d in dilations or ()):
        raise Unsupported("MXNet's pooling does not support dilations")
    strides = strides or (1,) * count
    padding = _pads(X, kernel_shape, strides, (1,) * count, pads, auto_pad, ceil_mode)
    powers = sym._power_scalar(sym.abs(X), scalar=float(p), is_int=False)
    powers.shape = X.shape
    powers = padded(sym, powers, [0, 0, *padding[:count], 0, 0, *padding[count:]])
    total = sym.Pooling(powers, kernel=kernel_shape, stride=strides, pool_type="sum")
    return sym._power_scalar(total, scalar=1 / p, is_int=False)


def _global(kind):
    def lower(sym, X):
        count = rank(X) - 2
        if 1 <= count <= 3:
            return sym.Pooling(X, kernel=(1,) * count, global_pool=True, pool_type=kind)
        return sym.call("_npi_mean" if kind == "avg" else "_np_max", X, axis=tuple(range(2, rank(X))), keepdims=True)

    return lower


rule("GlobalAveragePool")(_global("avg"))
rule("GlobalMaxPool")(_global("max"))


@rule("GlobalLpPool")
def global_lp_pool(sym, X, *, p=2):
    powers = sym._power_scalar(sym.abs(X), scalar=float(p), is_int=False)
    total = sym._np_sum(powers, axis=tuple(range(2, rank(X))), keepdims=True)
    return sym._power_scalar(total, scalar=1 / p, is_int=False)
