"""Quantization. The target quantizes results and dequantizes inputs, so these rules hand their input on."""

import onnx_ir as ir

from onnxbridge.frontends.tflite.ops import rule


@rule("QUANTIZE")
def quantize(op, input):
    return input


@rule("DEQUANTIZE")
def dequantize(op, input):
    return input if input.dtype == ir.DataType.FLOAT else op.Cast(input, to=ir.DataType.FLOAT)


@rule("FAKE_QUANT")
def fake_quant(op, input, *, min=0.0, max=0.0, num_bits=0, narrow_range=False):
    return input
