"""Quantization, and integer matrix products and convolutions."""

from itertools import pairwise

import numpy as np
import onnx_ir as ir
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil._deployment_compatibility import AvailableTarget
from coremltools.converters.mil.mil import types
from coremltools.converters.mil.mil.block import curr_opset_version
from coremltools.converters.mil.mil.types.type_mapping import np_int4_dtype, np_uint4_dtype

from onnxbridge.backends.coreml.element_types import NARROW, cast, hub_dtype, is_float, like
from onnxbridge.backends.coreml.ops import rule
from onnxbridge.backends.coreml.ops.conv import conv
from onnxbridge.backends.coreml.sizes import numbers
from onnxbridge.errors import Unsupported
from onnxbridge.hub.ir.values import dtype_name


def _broadcast_scale(v, x, axis, block_size):
    """Make a scale or zero point broadcast to `x`: per tensor, per axis or per block."""
    if v is None or v.rank == 0:
        return v
    if block_size:
        return mb.gather(x=v, indices=(np.arange(numbers(x)[axis]) // block_size).astype(np.int32), axis=axis)
    if v.rank == 1:
        return mb.reshape(
            x=v, shape=[-1 if a == axis % x.rank else 1 for a in range(x.rank)] if v.shape[0] != 1 else [1] * x.rank
        )
    return v


def _integer_range(dtype):
    if dtype not in NARROW:
        raise Unsupported(f"quantization to {dtype_name(dtype)}")
    bits, signed = NARROW[dtype]
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)


def _saturated(y, dtype):
    """Convert integral floats to an integer dtype with saturation."""
    low, high = _integer_range(dtype)
    return mb.cast(x=mb.minimum(x=mb.maximum(x=y, y=like(y, low)), y=like(y, high)), dtype="int32")


@rule("QuantizeLinear", limits="to integers of 2 to 16 bits")
def quantize_linear(x, y_scale, y_zero_point=None, *, axis=1, block_size=0, output_dtype=0, precision=0, saturate=1):
    to = ir.DataType(output_dtype) if output_dtype else ir.DataType.UINT8 if y_zero_point is None else hub_dtype(y_zero_point)
    _integer_range(to)
    data = cast(x, types.fp32) if not is_float(x) else x
    if precision and ir.DataType(precision) not in (ir.DataType.FLOAT, ir.DataType.FLOAT16):
        raise Unsupported(f"precision={ir.DataType(precision).name.lower()}")
    dtype = y_scale.dtype if not precision else types.fp16 if ir.DataType(precision) == ir.DataType.FLOAT16 else types.fp32
    scale = _broadcast_scale(cast(y_scale, dtype), x, axis, block_size)
    ratio = cast(mb.real_div(x=cast(data, dtype), y=scale), types.fp32)
    rounded = mb.round(x=ratio)
    if y_zero_point is not None:
        rounded = mb.add(x=rounded, y=cast(_broadcast_scale(y_zero_point, x, axis, block_size), types.fp32))
    return _saturated(rounded, to)


@rule("DequantizeLinear")
def dequantize_linear(x, x_scale, x_zero_point=None, *, axis=1, block_size=0, output_dtype=0):
    """Constant weights stay quantized, in the file and in memory, if the deployment target has an operator for it."""
    dtype = types.fp16 if output_dtype and ir.DataType(output_dtype) == ir.DataType.FLOAT16 else x_scale.dtype
    constexpr = _compressed_constant(x, x_scale, x_zero_point, axis, block_size)
    if constexpr is not None:
        return cast(constexpr, dtype)
    scale, zero = _broadcast_scale(x_scale, x, axis, block_size), _broadcast_scale(x_zero_point, x, axis, block_size)
    y = x if zero is None else mb.sub(x=x, y=zero)
    return cast(mb.mul(x=cast(y, types.fp32), y=cast(scale, types.fp32)), dtype)


EXACT_INTEGERS = 1 << 24
"""Float32 represents every integer up to this one."""
MIN_CONSTEXPR_ELEMENTS = 2048
"""Elements; smaller weights become float constants, which every operator accepts."""
CONSTEXPR_DTYPES = {
    ir.DataType.INT8: np.int8, ir.DataType.UINT8: np.uint8, ir.DataType.INT4: np_int4_dtype, ir.DataType.UINT4: np_uint4_dtype,
}  # fmt: skip


def _compressed_constant(x, scale, zero, axis, block_size):
    """A quantized constant as a constexpr operator; None if it is not a constant or there is no such operator."""
    dtype = CONSTEXPR_DTYPES.get(hub_dtype(x))
    known = all(v is None or v.val is not None for v in (x, scale, zero))
    if dtype is None or not known or x.rank < 2 or np.size(x.val) < MIN_CONSTEXPR_ELEMENTS or not is_float(scale):
        return None
    data, scales = np.asarray(x.val).astype(dtype), np.asarray(scale.val)
    zeros = np.zeros(scales.shape, dtype) if zero is None else np.asarray(zero.val).astype(dtype)
    return _constexpr(data, scales, zeros, axis % x.rank, block_size)


def _constexpr(data, scales, zeros, axis, block_size=0):
    dtype = data.dtype
    if curr_opset_version() >= AvailableTarget.iOS18:
        if scales.ndim < 2:
            shape = [1] * data.ndim
            shape[axis] = scales.size
            scales, zeros = scales.reshape(shape), zeros.reshape(shape)
        if any(n % m for n, m in zip(data.shape, scales.shape, strict=True)):
            return None  # blocks that do not divide the axis
        return mb.constexpr_blockwise_shift_scale(data=data, scale=scales, offset=zeros if zeros.astype(np.int32).any() else None)
    if curr_opset_version() < AvailableTarget.iOS16 or dtype not in (np.int8, np.uint8) or block_size or scales.ndim > 1:
        return None
    if scales.size == 1:
        scales, zeros = scales.reshape(())[()], zeros.reshape(())[()]
    return mb.constexpr_affine_dequantize(quantized_data=data, zero_point=zeros, scale=scales, axis=np.int32(axis))


@rule("DynamicQuantizeLinear")
def dynamic_quantize_linear(x):
    axes = list(range(x.rank))
    low = mb.minimum(x=mb.reduce_min(x=x, axes=axes, keep_dims=False), y=like(x, 0))
    high = mb.maximum(x=mb.reduce_max(x=x, axes=axes, keep_dims=False), y=like(x, 0))
    scale = mb.real_div(x=mb.sub(x=high, y=low), y=like(x, 255))
    scale = mb.select(cond=mb.equal(x=scale, y=like(x, 0)), a=like(x, 1), b=scale)  # all zeros: any scale is valid
    zero = mb.real_div(x=mb.mul(x=low, y=like(x, -1)), y=scale)
    zero = mb.round(x=mb.minimum(x=mb.maximum(x=zero, y=like(x, 0)), y=like(x, 255)))
    y = mb.add(x=mb.round(x=mb.real_div(x=x, y=scale)), y=zero)
    return _saturated(y, ir.DataType.UINT8), scale, mb.cast(x=zero, dtype="int32")


def _minus_zero_point(x, zero):
    return cast(x if zero is None else mb.sub(x=x, y=zero), types.fp32)


def _per_row(v):
    """Make a per-row value of the left operand broadcast."""
    return mb.expand_dims(x=v, axes=[-1]) if v is not None and v.rank == 1 and v.shape[0] > 1 else v


def _exact_ranges(weights):
    """Split the summed axis of the weights (depth, outputs) into ranges whose sums are exact in float32 for any 8-bit inputs."""
    sizes = np.abs(weights).astype(np.int64) * 255
    ends, count = [0], len(weights)
    while ends[-1] < count:
        sums = np.cumsum(sizes[ends[-1] :], axis=0).max(axis=1)
        ends.append(ends[-1] + int(np.searchsorted(sums, EXACT_INTEGERS)))
        if ends[-1] == ends[-2]:
            raise Unsupported("a sum that is not exact in float32")
    return list(pairwise(ends))


def _weight_differences(w, zero):
    """Constant 8 or 4-bit weights minus their zero points, None for others."""
    if w.val is None or (zero is not None and zero.val is None) or hub_dtype(w) not in CONSTEXPR_DTYPES:
        return None
    return np.asarray(w.val).astype(np.int32) - (0 if zero is None else np.asarray(zero.val).astype(np.int32))


def _integer_weights(weights, in_bytes=True):
    """Integer weights as float32 operands, stored in 8 bits if the deployment target has an operator for it."""
    if (
        not in_bytes
        or weights.size < MIN_CONSTEXPR_ELEMENTS
        or curr_opset_version() < AvailableTarget.iOS16
        or np.abs(weights).max() > 127
    ):
        return mb.const(val=weights.astype(np.float32))
    return _constexpr(weights.astype(np.int8), np.ones(1, np.float32), np.zeros(1, np.int8), 0)


def _sum_of_parts(x, axis, length, parts, product):
    """Apply `product` to each range of an axis of `x`, and add the results as int32."""
    total = None
    for start, end in parts:
        part = x
        if end - start < length:
            begin, stop = ([n if a == axis % x.rank else 0 for a in range(x.rank)] for n in (start, end))
            is_full = [a != axis % x.rank for a in range(x.rank)]
            part = mb.slice_by_index(x=x, begin=begin, end=stop, begin_mask=is_full, end_mask=is_full)
        product_part = mb.cast(x=product(part, slice(start, end)), dtype="int32")
        total = product_part if total is None else mb.add(x=total, y=product_part)
    return total


def _integer_product(a, a_zero, b, b_zero):
    """An integer matrix product, in float32 where that is exact: sums of up to 258 products of 8-bit integers, or of as many as
    constant weights allow; these partial sums are added as int32."""
    depth = a.shape[-1]
    weights = _weight_differences(b, b_zero) if b.rank == 2 and hub_dtype(a) in CONSTEXPR_DTYPES else None
    if weights is not None:
        x = _minus_zero_point(a, _per_row(a_zero))
        return _sum_of_parts(
            x, -1, len(weights), _exact_ranges(weights), lambda part, at: mb.matmul(x=part, y=_integer_weights(weights[at]))
        )  # fmt: skip
    x, y = mb.sub(x=a, y=_per_row(a_zero)) if a_zero is not None else a, mb.sub(x=b, y=b_zero) if b_zero is not None else b
    if isinstance(depth, (int, np.integer)) and depth * 255 * 255 < 1 << 24:
        return mb.cast(x=mb.matmul(x=cast(x, types.fp32), y=cast(y, types.fp32)), dtype="int32")
    return mb.matmul(x=x, y=y)


@rule("MatMulInteger")
def matmul_integer(A, B, a_zero_point=None, b_zero_point=None):
    return _integer_product(A, a_zero_point, B, b_zero_point)


@rule("QLinearMatMul")
def qlinear_matmul(a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point):
    total = cast(_integer_product(a, a_zero_point, b, b_zero_point), types.fp32)
    up = mb.mul(x=cast(_per_row(a_scale), types.fp32), y=cast(b_scale, types.fp32))
    return _requantized(
        total, mb.real_div(x=up, y=cast(_per_row(y_scale), types.fp32)), _per_row(y_zero_point), hub_dtype(y_zero_point)
    )


def _requantized(total, factor, zero, dtype):
    return _saturated(mb.add(x=mb.round(x=mb.mul(x=total, y=factor)), y=cast(zero, types.fp32)), dtype)


def _per_output(v, w):
    return mb.reshape(x=v, shape=[-1] + [1] * (w.rank - 1)) if v is not None and v.rank == 1 else v


@rule("ConvInteger", limits="sums of up to 258 products if the weights are dynamic or grouped")
def conv_integer(
    x, w, x_zero_point=None, w_zero_point=None, *, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, pads=None,
    strides=None,
):  # fmt: skip
    def product(part, weights):
        weight = _integer_weights(weights, max(dilations or (1,)) == 1) if isinstance(weights, np.ndarray) else weights
        return conv(
            part, weight, auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape, pads=pads,
            strides=strides,
        )  # fmt: skip

    centered, zero = _minus_zero_point(x, x_zero_point), None if w_zero_point is None else _per_output(w_zero_point, w)
    weights = _weight_differences(w, zero)
    if weights is None:
        if np.prod(numbers(w)[1:], dtype=np.int64) * 255 * 255 >= EXACT_INTEGERS:
            raise Unsupported("a sum that is not exact in float32")
        return mb.cast(x=product(centered, cast(w if zero is None else mb.sub(x=w, y=zero), types.fp32)), dtype="int32")
    per_output = np.abs(weights).reshape(*weights.shape[:2], -1).sum(-1).T  # (channels, outputs)
    if group > 1:
        _exact_ranges(per_output.sum(0, keepdims=True))
        return mb.cast(x=product(centered, weights), dtype="int32")
    return _sum_of_parts(centered, 1, len(per_output), _exact_ranges(per_output), lambda part, at: product(part, weights[:, at]))


@rule("QLinearConv", limits="sums of up to 258 products if the weights are dynamic or grouped")
def qlinear_conv(
    x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, B=None, *, auto_pad="NOTSET", dilations=None,
    group=1, kernel_shape=None, pads=None, strides=None,
):  # fmt: skip
    total = conv_integer(
        x, w, x_zero_point, w_zero_point, auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape,
        pads=pads, strides=strides,
    )  # fmt: skip
    if B is not None:
        total = mb.add(x=total, y=mb.reshape(x=B, shape=[1, -1] + [1] * (x.rank - 2)))
    by_channel = mb.reshape(x=w_scale, shape=[1, -1] + [1] * (x.rank - 2)) if w_scale.rank == 1 else w_scale
    factor = mb.real_div(x=mb.mul(x=by_channel, y=x_scale), y=y_scale)
    return _requantized(cast(total, types.fp32), factor, y_zero_point, hub_dtype(y_zero_point))
