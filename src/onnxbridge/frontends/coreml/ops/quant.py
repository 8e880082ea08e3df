"""Quantization, and decompression of weights (constexpr_...)."""

import numpy as np

from onnxbridge.frontends.coreml.dtypes import onnx_dtype
from onnxbridge.frontends.coreml.ops import rule
from onnxbridge.hub.ir.fold import constant_array, evaluate
from onnxbridge.hub.ir.values import is_integer
from onnxbridge.rules import Array, Int, Ints, Str
from onnxbridge.runtime.mil.ops import quant as weights


def _expand_zero_point(op, zero_point, scale):
    """Expand the zero point to the shape of the scale; in MIL it may be a scalar."""
    return op.Expand(zero_point, op.Shape(scale)) if len(scale.shape) > len(zero_point.shape) else zero_point


def _positive_axis(x, axis):
    """Normalize a negative axis, which not every runtime supports here."""
    return None if axis is None else axis % len(x.shape)


@rule("quantize")
def quantize(op, input, scale, output_dtype: Str, zero_point=None, axis: Int | None = None):
    zero = op.constant(np.zeros((), onnx_dtype(output_dtype).numpy())) if zero_point is None else zero_point
    return op.QuantizeLinear(input, scale, _expand_zero_point(op, zero, scale), axis=_positive_axis(input, axis))


@rule("dequantize")
def dequantize(op, input, scale, zero_point=None, axis: Int | None = None):
    # an explicit zero point, since ONNX Runtime's fusion with a preceding QuantizeLinear fails without one
    zero = op.constant(np.zeros((), input.dtype.numpy())) if zero_point is None else zero_point
    zero = _expand_zero_point(op, zero, scale)
    return op.DequantizeLinear(input, scale, zero, axis=_positive_axis(input, axis))


@rule("constexpr_affine_dequantize")
def constexpr_affine_dequantize(op, quantized_data, zero_point: Array, scale: Array, axis: Int):
    zero_point, scale = (np.array(v) for v in np.broadcast_arrays(zero_point, scale))
    return op.DequantizeLinear(
        quantized_data, scale, zero_point, axis=_positive_axis(quantized_data, axis if scale.ndim else None)
    )


@rule("constexpr_cast")
def constexpr_cast(op, source_val, output_dtype: Str):
    return op.Cast(source_val, to=onnx_dtype(output_dtype))


@rule("constexpr_blockwise_shift_scale")
def constexpr_blockwise_shift_scale(op, data, scale: Array, offset: Array | None = None):
    """DequantizeLinear if there are blocks along one axis only and the offset has the data's dtype; else decompressed here."""
    shape = [int(n) for n in data.shape]
    nontrivial_axes = [a for a, n in enumerate(scale.shape) if n != 1]
    blocked_axes = [a for a in nontrivial_axes if scale.shape[a] != shape[a]]
    offset = None if offset is None else np.broadcast_to(offset, scale.shape)
    is_direct = is_integer(data) and (offset is None or offset.dtype == data.dtype.numpy())
    if len(blocked_axes) > 1 or not is_direct:
        return op.constant(weights.constexpr_blockwise_shift_scale(data.const_value.numpy(), scale, offset))
    if len(nontrivial_axes) <= 1 and not blocked_axes:
        axis = nontrivial_axes[0] if nontrivial_axes else None
        scale, offset = (v if v is None else v.reshape([-1] if nontrivial_axes else []) for v in (scale, offset))
        return op.DequantizeLinear(data, scale, offset, axis=axis)
    (axis,) = blocked_axes or nontrivial_axes[:1]
    size = shape[axis] // scale.shape[axis]
    full_shape = [n if a == axis else shape[a] for a, n in enumerate(scale.shape)]
    scale, offset = (v if v is None else np.ascontiguousarray(np.broadcast_to(v, full_shape)) for v in (scale, offset))
    return op.DequantizeLinear(data, scale, offset, axis=axis, block_size=size)


def _dequantized(value):
    """The value of an operand that may itself be quantized, and is then a DequantizeLinear node."""
    node = value.producer()
    if node is None or node.op_type != "DequantizeLinear":
        return constant_array(value)
    (result,) = evaluate(node, [constant_array(v) for v in node.inputs])
    return result


@rule("constexpr_lut_to_dense", limits="the weights are decompressed")
def constexpr_lut_to_dense(op, indices: Array, lut, shape: Ints | None = None, vector_axis: Int | None = None):
    return op.constant(weights.constexpr_lut_to_dense(indices, _dequantized(lut), shape, vector_axis))


@rule("constexpr_sparse_to_dense", limits="the weights are decompressed")
def constexpr_sparse_to_dense(op, nonzero_data, mask: Array, shape: Ints | None = None):
    return op.constant(weights.constexpr_sparse_to_dense(_dequantized(nonzero_data), mask, shape))


@rule("constexpr_lut_to_sparse", limits="the weights are decompressed")
def constexpr_lut_to_sparse(op, indices_mask: Array, indices_nonzero_data: Array, lut, vector_axis: Int | None = None):
    result = weights.constexpr_lut_to_sparse(indices_mask, indices_nonzero_data, _dequantized(lut), vector_axis)
    return tuple(op.constant(v) for v in result)


@rule("constexpr_sparse_blockwise_shift_scale", limits="the weights are decompressed")
def constexpr_sparse_blockwise_shift_scale(op, data_mask: Array, nonzero_data: Array, scale: Array, offset: Array | None = None):
    result = weights.constexpr_sparse_blockwise_shift_scale(data_mask, nonzero_data, scale, offset)
    return tuple(op.constant(v) for v in result)
