"""Quantization: one scale for a tensor at first, then one for each channel, then one for each block."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.adapters import down

_SCALAR = np.zeros(0, np.int64)


def _one_scale(name):
    def quantize(op, *inputs, axis=1):
        x, *scales = inputs
        shape = scales[0].shape
        if shape is None or any(d != 1 for d in shape):
            raise Unsupported("opset 13 added scales for each channel")
        scalars = (v if v is None or len(shape) == 0 else op.Reshape(v, _SCALAR) for v in scales)
        return op.call(name, x, *scalars)

    return quantize


for _name in ("QuantizeLinear", "DequantizeLinear"):
    down(_name, to=12)(_one_scale(_name))


@down("QuantizeLinear", to=20)
def quantize_linear(op, x, y_scale, y_zero_point=None, *, axis=1, block_size=0, output_dtype=0, saturate=1):
    """Without a zero point of its dtype the result was uint8."""
    if block_size:
        raise Unsupported("opset 21 added block_size")
    if output_dtype and y_zero_point is None:
        raise Unsupported("opset 21 added output_dtype", "give a zero point of that dtype")
    return op.QuantizeLinear(x, y_scale, y_zero_point, axis=axis, saturate=saturate)
