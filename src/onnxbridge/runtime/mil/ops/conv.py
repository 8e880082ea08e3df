"""Convolution operators."""

import contextlib

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.rules import Int, Ints, Str
from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.kernels.compile.compile_policy import Account, TooEarly
from onnxbridge.runtime.executor.kernels.convolution import Epilogue, convolution
from onnxbridge.runtime.executor.numpy.kernels import conv as kernels
from onnxbridge.runtime.executor.numpy.kernels.windows import extent, same_pads
from onnxbridge.runtime.executor.numpy.padding import Window
from onnxbridge.runtime.executor.work import operations
from onnxbridge.runtime.mil.ops import rule


def pairs(pad, space):
    """MIL's flat padding (before, after, before, after, ...) as pairs; zeros if there is none."""
    pad = pad or (0,) * (2 * space)
    return [(pad[2 * i], pad[2 * i + 1]) for i in range(space)]


def padding(pad_type, pad, sizes, kernel, strides, dilations):
    """The padding as pairs. If that of `same` is odd, there is one more after, as in TensorFlow, where `same` comes from."""
    if pad_type in ("same", "same_lower"):
        return same_pads(sizes, kernel, strides, dilations, lower=pad_type == "same_lower")
    if pad_type not in ("valid", "custom"):
        raise Unsupported(f"pad_type {pad_type}")
    return pairs(pad if pad_type == "custom" else None, len(kernel))


_account = Account()


def _all_float32(*arrays):
    return all(a is None or (a.dtype == np.float32 and a.size) for a in arrays)


def _compiled_conv(x, weight, bias, strides, pads, dilations, groups):
    """Convolve with the executor's compiled kernel; a 1-D convolution becomes a 2-D one of height 1."""
    is_1d = weight.ndim == 3
    if is_1d:
        x, weight = x[:, :, None], weight[:, :, None]
        strides, pads, dilations = (1, *strides), [(0, 0), *pads], (1, *dilations)
    window = Window(weight.shape[2:], strides, dilations, tuple(pads))
    y = convolution(weight, bias, lambda x: window, groups, Epilogue(), Pool())(x)
    return y[:, :, 0] if is_1d else y


@rule("conv")
def conv(
    x,
    weight,
    bias=None,
    strides: Ints | None = None,
    pad_type: Str = "valid",
    pad: Ints | None = None,
    dilations: Ints | None = None,
    groups: Int = 1,
):
    kernel = weight.shape[2:]
    strides, dilations = strides or (1,) * len(kernel), dilations or (1,) * len(kernel)
    pads = padding(pad_type, pad, x.shape[2:], kernel, strides, dilations)
    if _all_float32(x, weight, bias) and len(kernel) in (1, 2) and min(map(min, pads)) >= 0 and _account.pays():
        with contextlib.suppress(TooEarly), _account.guarding():
            return _compiled_conv(x, weight, bias, strides, pads, dilations, groups)
    y = kernels.conv(x, weight, bias, strides=strides, pads=pads, dilations=dilations, groups=groups)
    _account.work += operations("Conv", (x, weight), (y,), {})
    return y


@rule("conv_quantized", limits="8-bit linear quantization")
def conv_quantized(
    x,
    weight,
    quantization_type: Str,
    quant_scale,
    quant_bias,
    nbits: Int = 8,
    bias=None,
    strides: Ints | None = None,
    pad_type: Str = "valid",
    pad: Ints | None = None,
    dilations: Ints | None = None,
    groups: Int = 1,
):
    if quantization_type != "linear" or nbits != 8:
        raise Unsupported(f"{quantization_type} quantization with {nbits} bits")
    scale, shift = (v.reshape(-1, *(1 for _ in weight.shape[1:])) if v.ndim == 1 else v for v in (quant_scale, quant_bias))
    return conv(x, (weight * scale + shift).astype(x.dtype), bias, strides, pad_type, pad, dilations, groups)


@rule("conv_transpose")
def conv_transpose(
    x,
    weight,
    bias=None,
    pad: Ints | None = None,
    output_shape: Ints | None = None,
    pad_type: Str = "valid",
    strides: Ints | None = None,
    dilations: Ints | None = None,
    groups: Int = 1,
):
    """`same` and `output_shape` crop the full result: half of the surplus before, the rest after."""
    kernel, sizes = weight.shape[2:], x.shape[2:]
    strides, dilations = strides or (1,) * len(kernel), dilations or (1,) * len(kernel)
    if pad_type not in ("same", "valid", "custom"):
        raise Unsupported(f"pad_type {pad_type}")
    pads = pairs(pad if pad_type == "custom" else None, len(kernel))
    full = [(n - 1) * s + span for n, s, span in zip(sizes, strides, extent(kernel, dilations), strict=True)]
    target_sizes = output_shape[2:] if output_shape else np.multiply(sizes, strides) if pad_type == "same" else None
    if pad_type == "same":
        pads = [(max(0, f - w) // 2, f - w - max(0, f - w) // 2) for f, w in zip(full, target_sizes, strict=True)]
    elif target_sizes is not None:
        pads = [(before, f - w - before) for (before, _), f, w in zip(pads, full, target_sizes, strict=True)]
    return kernels.conv_transpose(x, weight, bias, strides=strides, pads=pads, dilations=dilations, groups=groups)
