"""Convolution operators."""

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.coreml.ops import rule
from onnxbridge.frontends.coreml.padding import split_pads, window
from onnxbridge.hub.ir.values import like, static_shape
from onnxbridge.rules import Array, Int, Ints, Str


def _match_dtypes(op, x, weight, bias):
    """Cast weight and bias to the dtype of `x`, from which they may differ from iOS17 on."""
    return like(op, weight, x), None if bias is None else like(op, bias, x)


@rule("conv")
def conv(
    op, x, weight, bias=None, strides: Ints | None = None, pad_type: Str = "valid", pad: Ints | None = None,
    dilations: Ints | None = None, groups: Int = 1,
):  # fmt: skip
    kernel = static_shape(weight)[2:]
    weight, bias = _match_dtypes(op, x, weight, bias)
    return op.Conv(x, weight, bias, kernel_shape=kernel, group=groups, **window(x, kernel, strides, dilations, pad_type, pad))


@rule("conv_quantized", limits="8-bit linear quantization")
def conv_quantized(
    op, x, weight: Array, quantization_type: Str, quant_scale: Array, quant_bias: Array, nbits: Int = 8, bias=None,
    strides: Ints | None = None, pad_type: Str = "valid", pad: Ints | None = None, dilations: Ints | None = None, groups: Int = 1,
):  # fmt: skip
    if quantization_type != "linear" or nbits != 8:
        raise Unsupported(f"{quantization_type} quantization with {nbits} bits")
    scale, shift = (v.reshape(-1, *(1 for _ in weight.shape[1:])) if v.ndim == 1 else v for v in (quant_scale, quant_bias))
    dequantized = op.constant((weight * scale + shift).astype(x.dtype.numpy()))
    return conv(op, x, dequantized, bias, strides, pad_type, pad, dilations, groups)


@rule("conv_transpose")
def conv_transpose(
    op, x, weight, bias=None, pad: Ints | None = None, output_shape: Ints | None = None, pad_type: Str = "valid",
    strides: Ints | None = None, dilations: Ints | None = None, groups: Int = 1,
):  # fmt: skip
    """`same` and `output_shape` crop the full result: half of the surplus before, the rest after."""
    if pad_type not in ("same", "valid", "custom"):
        raise Unsupported(f"pad_type {pad_type}")
    kernel = static_shape(weight)[2:]
    ones = (1,) * len(kernel)
    strides, dilations = strides or ones, dilations or ones
    before, after = split_pads(pad if pad_type == "custom" else None, len(kernel))
    if pad_type == "same" or output_shape:
        sizes = static_shape(x)[2:]
        full = [(n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(sizes, strides, kernel, dilations, strict=True)]
        target_sizes = output_shape[2:] if output_shape else np.multiply(sizes, strides).tolist()
        if pad_type == "same":
            before = [max(0, f - w) // 2 for f, w in zip(full, target_sizes, strict=True)]
        after = [f - w - b for f, w, b in zip(full, target_sizes, before, strict=True)]
    weight, bias = _match_dtypes(op, x, weight, bias)
    attributes = {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "group": groups}
    output_padding = [max(0, -a) for a in after]
    if any(g >= max(s, d) for g, s, d in zip(output_padding, strides, dilations, strict=True)):
        raise Unsupported("an output_shape that exceeds the full result")
    return op.ConvTranspose(
        x,
        weight,
        bias,
        pads=before + [max(0, a) for a in after],
        output_padding=output_padding if any(output_padding) else None,
        **attributes,
    )
