"""Convolutions."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from onnxbridge.backends.pytorch.ops import rule
from onnxbridge.backends.pytorch.padding import f_pad_order, pads_of
from onnxbridge.errors import Unsupported
from onnxbridge.hub.builder.auto_pad import split_padding

_CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


@rule("Conv", limits="1 to 3 spatial dimensions")
def conv(X, W, B=None, *, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, pads=None, strides=None):
    rank = W.ndim - 2
    if rank not in _CONV:
        raise Unsupported(f"{rank} spatial dimensions")
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    kernel = W.shape[2:]
    sizes = X.shape[2:] if auto_pad.startswith("SAME") else ()
    before, after = pads_of(auto_pad, pads, sizes, kernel, strides, dilations)
    symmetric = all(isinstance(p, int) for p in (*before, *after)) and list(before) == list(after)
    if not symmetric:
        X, before = F.pad(X, f_pad_order(before, after)), (0,) * rank
    return _CONV[rank](X, W, B, strides, tuple(before), dilations, group)


@rule("ConvInteger", limits="1 to 3 spatial dimensions")
def conv_integer(
    x, w, x_zero_point=None, w_zero_point=None, *, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, pads=None,
    strides=None,
):  # fmt: skip
    # sums of byte products are exact in float64; PyTorch has no int32 convolution
    x, w = x.to(torch.float64), w.to(torch.float64)
    x = x if x_zero_point is None else x - x_zero_point.to(torch.float64)
    if w_zero_point is not None:
        w = w - w_zero_point.to(torch.float64).reshape([-1] + [1] * (w.ndim - 1))
    return conv(
        x, w, auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape, pads=pads, strides=strides
    ).to(torch.int32)


@rule("ConvTranspose", limits="1 to 3 spatial dimensions")
def conv_transpose(
    X, W, B=None, *, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, output_padding=None, output_shape=None,
    pads=None, strides=None,
):  # fmt: skip
    rank = W.ndim - 2
    if rank not in _TRANSPOSED:
        raise Unsupported(f"{rank} spatial dimensions")
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    extra = output_padding or (0,) * rank
    full = [s * (n - 1) + (k - 1) * d + 1 for n, k, s, d in zip(X.shape[2:], W.shape[2:], strides, dilations, strict=True)]
    if output_shape or auto_pad.startswith("SAME"):
        target_sizes = output_shape[-rank:] if output_shape else [n * s for n, s in zip(X.shape[2:], strides, strict=True)]
        totals = [f + e - w for f, e, w in zip(full, extra, target_sizes, strict=True)]
        before, after = split_padding(totals, auto_pad)
    else:
        pads = pads if pads and auto_pad != "VALID" else (0,) * (2 * rank)
        before, after = pads[:rank], pads[rank:]
    if all(isinstance(p, int) for p in (*before, *after)) and min(before) >= 0:
        # PyTorch crops both ends equally, and output_padding restores the difference at the end
        end_padding = [b - a + e for b, a, e in zip(before, after, extra, strict=True)]
        if all(0 <= e < max(s, d) or e == 0 for e, s, d in zip(end_padding, strides, dilations, strict=True)):
            return _TRANSPOSED[rank](X, W, B, strides, tuple(before), tuple(end_padding), group, dilations)
    y = _TRANSPOSED[rank](X, W, None, strides, 0, 0, group, dilations)
    y = F.pad(y, f_pad_order([-b for b in before], [e - a for e, a in zip(extra, after, strict=True)]))
    return y if B is None else y + B.reshape([-1] + [1] * rank)
