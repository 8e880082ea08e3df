"""Quantization. The target quantizes results and dequantizes inputs, so `quantize` and `dequantize` return their input."""

import onnx_ir as ir

from onnxbridge.frontends.tensorflow.ops import quant as tf
from onnxbridge.frontends.tflite.ops import rule


@rule("QUANTIZE")
def quantize(op, input):
    return input


@rule("DEQUANTIZE")
def dequantize(op, input):
    return input if input.dtype == ir.DataType.FLOAT else op.Cast(input, to=ir.DataType.FLOAT)


@rule("FAKE_QUANT", limits=tf.HALVES)
def fake_quant(op, input, *, min=0.0, max=0.0, num_bits=0, narrow_range=False):
    return tf.fake_quant_with_min_max_args(op, input, min=min, max=max, num_bits=num_bits or 8, narrow_range=narrow_range)
