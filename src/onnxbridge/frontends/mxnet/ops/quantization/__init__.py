"""Rules of MXNet's quantized operators and of the layers that oneDNN fuses.

A quantized value is three: the integers, and the range of real numbers that they stand for. Rules compute on real numbers
between DequantizeLinear and QuantizeLinear, with the scales that MXNet's oneDNN kernels use, so that the integers are those of
MXNet's own run up to the rounding of ties. Where MXNet's kernels deviate from the float32 network, so do the rules: a converted
model computes what the original computes. Source: src/operator/quantization and src/operator/subgraph/mkldnn of MXNet 1.9.1.
"""

from onnxbridge.frontends.mxnet.ops.quantization import fused, operators

__all__ = ["fused", "operators"]
