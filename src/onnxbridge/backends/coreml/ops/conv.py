"""Convolution operators."""

from coremltools.converters.mil import Builder as mb

from onnxbridge.backends.coreml.element_types import like
from onnxbridge.backends.coreml.ops import rule
from onnxbridge.backends.coreml.padding import extent, flat, is_same, pads_of
from onnxbridge.backends.coreml.sizes import fixed, numbers
from onnxbridge.errors import Unsupported
from onnxbridge.hub.builder.auto_pad import split_padding


def _check_spatial_axes(X):
    if not 3 <= X.rank <= 5:
        raise Unsupported(f"{X.rank - 2} spatial axes; Core ML supports 1 to 3")


def _add_bias(y, B):
    return mb.add(x=y, y=mb.reshape(x=B, shape=[1, -1] + [1] * (y.rank - 2)))


@rule("Conv", limits="dilation needs constant weights; 1 to 3 spatial axes")
def conv(X, W, B=None, *, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, pads=None, strides=None):
    _check_spatial_axes(X)
    space = X.rank - 2
    dilations, strides = dilations or (1,) * space, strides or (1,) * space
    if W.val is None and max(dilations) > 1:
        raise Unsupported("dilation with weights that are not constant", "make the weights constant")
    if is_same(auto_pad, X, strides, dilations):
        padding = {"pad_type": "same"}
    else:
        pads = pads_of(auto_pad, pads, X, numbers(W, "the kernel")[2:], strides, dilations)
        padding = {"pad_type": "custom", "pad": flat(pads)}
    constant_bias = B is None or B.val is not None
    y = mb.conv(
        x=X,
        weight=W,
        bias=B if constant_bias else None,
        strides=strides,
        dilations=dilations,
        groups=group,
        **padding,
    )
    return y if constant_bias else _add_bias(y, B)


@rule("ConvTranspose", limits="1 to 3 spatial axes")
def conv_transpose(
    X, W, B=None, *, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None,
    output_padding=None, output_shape=None, pads=None, strides=None,
):  # fmt: skip
    """If the result is larger than MIL's conv_transpose can return, it is padded with zeros and the bias is added."""
    _check_spatial_axes(X)
    space = X.rank - 2
    dilations, strides, extra = dilations or (1,) * space, strides or (1,) * space, output_padding or (0,) * space
    span = extent(numbers(W, "the kernel")[2:], dilations)
    begins, ends = _cropping(X, span, auto_pad, extra, output_shape, pads, strides)
    inside, outside = ([max(0, s * p) for p in (*begins, *ends)] for s in (1, -1))
    bias = B if B is None or (B.val is not None and not any(outside)) else None
    y = mb.conv_transpose(
        x=X, weight=W, bias=bias, pad_type="custom", pad=flat((inside[:space], inside[space:])), strides=strides,
        dilations=dilations, groups=group,
    )  # fmt: skip
    if any(outside):
        y = mb.pad(x=y, pad=[0, 0, 0, 0, *flat((outside[:space], outside[space:]))], mode="constant", constant_val=like(X, 0))
    return y if B is bias else _add_bias(y, B)


def _cropping(X, span, auto_pad, extra, output_shape, pads, strides):
    """The elements to crop from the full result at the start and the end of each axis; negative numbers mean padding."""
    space = len(span)
    if output_shape is None and auto_pad in ("NOTSET", "", "VALID"):
        pads = (0,) * (2 * space) if auto_pad == "VALID" or pads is None else pads
        return list(pads[:space]), [p - e for p, e in zip(pads[space:], extra, strict=True)]
    if output_shape is None:  # input * stride
        surplus = [k - s for k, s in zip(span, strides, strict=True)]
    elif fixed(X, range(2, X.rank)):
        full = [s * (n - 1) + k for s, n, k in zip(strides, X.shape[2:], span, strict=True)]
        surplus = [f - w for f, w in zip(full, output_shape[-space:], strict=True)]
    else:
        raise Unsupported("output_shape with a dynamic input", "give the input a fixed shape")
    totals = [max(0, t + e) for t, e in zip(surplus, extra, strict=True)]
    begins, _ = split_padding(totals, auto_pad)
    return begins, [t - b for t, b in zip(surplus, begins, strict=True)]
