"""The scale of quantized integers, from the range of real numbers that they stand for."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.ir.fold import constant_array

INT8, UINT8, INT32 = ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT32
STEPS = {INT8: 127.5, UINT8: 255.5, INT32: float(2**31 - 1)}
"""The number of integers from 0 to the larger bound of the range; oneDNN's kernels count half a step beyond the last integer."""
PRODUCT_STEPS = {INT8: 127.0, UINT8: 255.0}
"""The same for the factors of a product with an int32 result, which MXNet counts without that half."""
_INT32_LIMITS = (np.float32(-(2**31)), np.float32(2**31 - 2**7))
"""The least and the greatest float32 that int32 holds."""
_REAL = "onnxbridge.real"
"""Key in the meta of int32 integers: the real numbers that they stand for, and their scale."""


def need_range(low, high, what):
    """Both ends of a calibrated range.

    Raises:
        Unsupported: if there is none.
    """
    if low is None or high is None:
        raise Unsupported(f"{what} without a calibrated range is not supported", hint="calibrate the model when you quantize it")
    return float(low), float(high)


def float32(op, *values):
    """Scalars of shape [1], as MXNet has the ends of ranges."""
    return tuple(op.constant(np.array([v], np.float32)) for v in values)


def span(op, low, high):
    """The larger absolute value of the two ends, as a scalar: an array if it is known when converting."""
    ends = [np.float32(v) if isinstance(v, float) else constant_array(v) for v in (low, high)]
    if known(*ends):
        return np.max(np.abs(ends)).astype(np.float32)
    return op.Reshape(op.Max(op.Abs(low), op.Abs(high)), np.zeros(0, np.int64))


def step(op, dtype, low, high, steps=STEPS):
    """The real number that one integer stands for."""
    return over(op, span(op, low, high), np.float32(steps[dtype]))


def known(*values):
    """Whether all are arrays, and none is a value of the hub."""
    return all(isinstance(v, (np.ndarray, np.generic)) for v in values)


def times(op, a, b):
    """The product of arrays, or values of the hub."""
    return np.multiply(a, b, dtype=np.float32) if known(a, b) else op.Mul(a, b)


def over(op, a, b):
    """The quotient of arrays, or values of the hub."""
    return np.divide(a, b, dtype=np.float32) if known(a, b) else op.Div(a, b)


def to_real(op, integers, scale):
    """The real numbers that integers stand for."""
    value, its_scale = integers.meta.get(_REAL, (None, None))
    if known(scale, its_scale) and abs(scale - its_scale) <= 2**-21 * its_scale:
        return value  # int32 is a detour of MXNet's between one layer and the rounding to int8
    return dequantized(op, integers, scale)


def dequantized(op, integers, scale):
    """DequantizeLinear, with scales of the first axis or one.

    ONNX Runtime 1.31 adds quantizations to graphs whose zero points are omitted, and takes uint8 for all of them.
    """
    dtype = op.constant(integers).dtype
    if dtype == INT32:
        return op.DequantizeLinear(integers, scale, axis=0)
    return op.DequantizeLinear(integers, scale, np.zeros(scale.shape, dtype.numpy()), axis=0)


def to_integers(op, value, scale, dtype):
    """Real numbers as integers: halves go to the even neighbour, and what is outside is cut off."""
    if dtype != INT32:
        return op.QuantizeLinear(value, scale, np.zeros((), dtype.numpy()))
    integers = op.Cast(op.Clip(op.Round(op.Div(value, scale)), *_INT32_LIMITS), to=INT32)
    integers.meta[_REAL] = (value, scale)
    return integers


def product_range(op, scale):
    """The ends of the range of int32 integers with the given scale."""
    return symmetric(op, times(op, scale, np.float32(STEPS[INT32])))


def symmetric(op, size):
    """The ends of a range around 0."""
    if known(size):
        return float32(op, -size, size)
    size = op.Reshape(size, [1])
    return op.Neg(size), size
