"""Quantization, and the weights that are stored compressed (constexpr_...)."""

import numpy as np

from onnxbridge.frontends.coreml.dtypes import named
from onnxbridge.frontends.coreml.ops import rule
from onnxbridge.hub.ir.fold import evaluate, static
from onnxbridge.hub.ir.values import is_integer
from onnxbridge.rules import Array, Int, Ints, Str
from onnxbridge.runtime.mil.ops import quant as weights


def _spread(op, zero_point, scale):
    """A zero point for each scale; MIL lets one stand for all."""
    return op.Expand(zero_point, op.Shape(scale)) if len(scale.shape) > len(zero_point.shape) else zero_point


def _axis(x, axis):
    """The axis from the front: not every runtime takes a negative one here."""
    return None if axis is None else axis % len(x.shape)


@rule("quantize")
def quantize(op, input, scale, output_dtype: Str, zero_point=None, axis: Int | None = None):
    zero = op.constant(np.zeros((), named(output_dtype).numpy())) if zero_point is None else zero_point
    return op.QuantizeLinear(input, scale, _spread(op, zero, scale), axis=_axis(input, axis))


@rule("dequantize")
def dequantize(op, input, scale, zero_point=None, axis: Int | None = None):
    # written out, since ONNX Runtime's optimizer joins it with a quantization before, and misses one that is left out
    zero = op.constant(np.zeros((), input.dtype.numpy())) if zero_point is None else zero_point
    zero = _spread(op, zero, scale)
    return op.DequantizeLinear(input, scale, zero, axis=_axis(input, axis))


@rule("constexpr_affine_dequantize")
def constexpr_affine_dequantize(op, quantized_data, zero_point: Array, scale: Array, axis: Int):
    zero_point, scale = (np.array(v) for v in np.broadcast_arrays(zero_point, scale))
    return op.DequantizeLinear(quantized_data, scale, zero_point, axis=_axis(quantized_data, axis if scale.ndim else None))


@rule("constexpr_cast")
def constexpr_cast(op, source_val, output_dtype: Str):
    return op.Cast(source_val, to=named(output_dtype))


@rule("constexpr_blockwise_shift_scale")
def constexpr_blockwise_shift_scale(op, data, scale: Array, offset: Array | None = None):
    """As DequantizeLinear where the blocks run along one axis and the offset is of the data's type; otherwise unpacked here."""
    shape = [int(n) for n in data.shape]
    several = [a for a, n in enumerate(scale.shape) if n != 1]
    blocked = [a for a in several if scale.shape[a] != shape[a]]
    offset = None if offset is None else np.broadcast_to(offset, scale.shape)
    whole = is_integer(data) and (offset is None or offset.dtype == data.dtype.numpy())
    if len(blocked) > 1 or not whole:
        return op.constant(weights.constexpr_blockwise_shift_scale(data.const_value.numpy(), scale, offset))
    if len(several) <= 1 and not blocked:
        axis = several[0] if several else None
        scale, offset = (v if v is None else v.reshape([-1] if several else []) for v in (scale, offset))
        return op.DequantizeLinear(data, scale, offset, axis=axis)
    (axis,) = blocked or several[:1]
    size = shape[axis] // scale.shape[axis]
    full = [n if a == axis else shape[a] for a, n in enumerate(scale.shape)]
    scale, offset = (v if v is None else np.ascontiguousarray(np.broadcast_to(v, full)) for v in (scale, offset))
    return op.DequantizeLinear(data, scale, offset, axis=axis, block_size=size)


def _unpacked(value):
    """The numbers of a weight that may itself be stored in few bits, which stay a node."""
    node = value.producer()
    if node is None or node.op_type != "DequantizeLinear":
        return static(value)
    (found,) = evaluate(node, [static(v) for v in node.inputs])
    return found


@rule("constexpr_lut_to_dense", limits="the weights are unpacked")
def constexpr_lut_to_dense(op, indices: Array, lut, shape: Ints | None = None, vector_axis: Int | None = None):
    return op.constant(weights.constexpr_lut_to_dense(indices, _unpacked(lut), shape, vector_axis))


@rule("constexpr_sparse_to_dense", limits="the weights are unpacked")
def constexpr_sparse_to_dense(op, nonzero_data, mask: Array, shape: Ints | None = None):
    return op.constant(weights.constexpr_sparse_to_dense(_unpacked(nonzero_data), mask, shape))


@rule("constexpr_lut_to_sparse", limits="the weights are unpacked")
def constexpr_lut_to_sparse(op, indices_mask: Array, indices_nonzero_data: Array, lut, vector_axis: Int | None = None):
    found = weights.constexpr_lut_to_sparse(indices_mask, indices_nonzero_data, _unpacked(lut), vector_axis)
    return tuple(op.constant(v) for v in found)


@rule("constexpr_sparse_blockwise_shift_scale", limits="the weights are unpacked")
def constexpr_sparse_blockwise_shift_scale(op, data_mask: Array, nonzero_data: Array, scale: Array, offset: Array | None = None):
    found = weights.constexpr_sparse_blockwise_shift_scale(data_mask, nonzero_data, scale, offset)
    return tuple(op.constant(v) for v in found)
