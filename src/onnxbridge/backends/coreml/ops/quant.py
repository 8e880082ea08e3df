"""Quantization in arithmetic, and products of quantized tensors."""

from itertools import pairwise

import numpy as np
import onnx_ir as ir
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil._deployment_compatibility import AvailableTarget
from coremltools.converters.mil.mil import types
from coremltools.converters.mil.mil.block import curr_opset_version
from coremltools.converters.mil.mil.types.type_mapping import np_int4_dtype, np_uint4_dtype

from onnxbridge.backends.coreml.element_types import NARROW, cast, declared, is_float, like
from onnxbridge.backends.coreml.ops import rule
from onnxbridge.backends.coreml.ops.conv import conv
from onnxbridge.backends.coreml.sizes import numbers
from onnxbridge.errors import Unsupported


def _spread(v, x, axis, block_size):
    """A scale or zero point so that it broadcasts to `x`: one number, one for each index of an axis, or one a block."""
    if v is None or v.rank == 0:
        return v
    if block_size:
        return mb.gather(x=v, indices=(np.arange(numbers(x)[axis]) // block_size).astype(np.int32), axis=axis)
    if v.rank == 1:
        return mb.reshape(
            x=v, shape=[-1 if a == axis % x.rank else 1 for a in range(x.rank)] if v.shape[0] != 1 else [1] * x.rank
        )
    return v


def _limits(dtype):
    if dtype not in NARROW:
        raise Unsupported(f"quantization to {dtype.name.lower()}")
    bits, signed = NARROW[dtype]
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)


def _saturated(y, dtype):
    """Whole numbers in floating point as the nearest that an integer type has."""
    low, high = _limits(dtype)
    return mb.cast(x=mb.minimum(x=mb.maximum(x=y, y=like(y, low)), y=like(y, high)), dtype="int32")


@rule("QuantizeLinear", limits="to integers of 2 to 16 bits")
def quantize_linear(x, y_scale, y_zero_point=None, *, axis=1, block_size=0, output_dtype=0, precision=0, saturate=1):
    to = ir.DataType(output_dtype) if output_dtype else ir.DataType.UINT8 if y_zero_point is None else declared(y_zero_point)
    _limits(to)
    within = cast(x, types.fp32) if not is_float(x) else x
    if precision and ir.DataType(precision) not in (ir.DataType.FLOAT, ir.DataType.FLOAT16):
        raise Unsupported(f"precision={ir.DataType(precision).name.lower()}")
    kind = y_scale.dtype if not precision else types.fp16 if ir.DataType(precision) == ir.DataType.FLOAT16 else types.fp32
    scale = _spread(cast(y_scale, kind), x, axis, block_size)
    ratio = cast(mb.real_div(x=cast(within, kind), y=scale), types.fp32)
    whole = mb.round(x=ratio)
    if y_zero_point is not None:
        whole = mb.add(x=whole, y=cast(_spread(y_zero_point, x, axis, block_size), types.fp32))
    return _saturated(whole, to)


@rule("DequantizeLinear")
def dequantize_linear(x, x_scale, x_zero_point=None, *, axis=1, block_size=0, output_dtype=0):
    """Weights stay in their few bits, in the file and in memory, where the system has an operator for it."""
    kind = types.fp16 if output_dtype and ir.DataType(output_dtype) == ir.DataType.FLOAT16 else x_scale.dtype
    stored = _stored(x, x_scale, x_zero_point, axis, block_size)
    if stored is not None:
        return cast(stored, kind)
    scale, zero = _spread(x_scale, x, axis, block_size), _spread(x_zero_point, x, axis, block_size)
    y = x if zero is None else mb.sub(x=x, y=zero)
    return cast(mb.mul(x=cast(y, types.fp32), y=cast(scale, types.fp32)), kind)


EXACT = 1 << 24
"""Up to here float32 holds every whole number."""
WEIGHTS = 2048
"""Elements; fewer are as well kept as floats, which every operator takes as its constants."""
FEW_BITS = {
    ir.DataType.INT8: np.int8, ir.DataType.UINT8: np.uint8, ir.DataType.INT4: np_int4_dtype, ir.DataType.UINT4: np_uint4_dtype,
}  # fmt: skip


def _stored(x, scale, zero, axis, block_size):
    """The constant as its integers and how to scale them; None where that cannot be said."""
    kind = FEW_BITS.get(declared(x))
    known = all(v is None or v.val is not None for v in (x, scale, zero))
    if kind is None or not known or x.rank < 2 or np.size(x.val) < WEIGHTS or not is_float(scale):
        return None
    data, scales = np.asarray(x.val).astype(kind), np.asarray(scale.val)
    zeros = np.zeros(scales.shape, kind) if zero is None else np.asarray(zero.val).astype(kind)
    return _stored_as(data, scales, zeros, axis % x.rank, block_size)


def _stored_as(data, scales, zeros, axis, block_size=0):
    kind = data.dtype
    if curr_opset_version() >= AvailableTarget.iOS18:
        if scales.ndim < 2:
            shape = [1] * data.ndim
            shape[axis] = scales.size
            scales, zeros = scales.reshape(shape), zeros.reshape(shape)
        if any(n % m for n, m in zip(data.shape, scales.shape, strict=True)):
            return None  # blocks that do not divide the axis
        return mb.constexpr_blockwise_shift_scale(data=data, scale=scales, offset=zeros if zeros.astype(np.int32).any() else None)
    if curr_opset_version() < AvailableTarget.iOS16 or kind not in (np.int8, np.uint8) or block_size or scales.ndim > 1:
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
    scale = mb.select(cond=mb.equal(x=scale, y=like(x, 0)), a=like(x, 1), b=scale)  # all zeros: any scale will do
    zero = mb.real_div(x=mb.mul(x=low, y=like(x, -1)), y=scale)
    zero = mb.round(x=mb.minimum(x=mb.maximum(x=zero, y=like(x, 0)), y=like(x, 255)))
    y = mb.add(x=mb.round(x=mb.real_div(x=x, y=scale)), y=zero)
    return _saturated(y, ir.DataType.UINT8), scale, mb.cast(x=zero, dtype="int32")


def _centred(x, zero):
    return cast(x if zero is None else mb.sub(x=x, y=zero), types.fp32)


def _by_row(v):
    """A value for each row of the left factor."""
    return mb.expand_dims(x=v, axes=[-1]) if v is not None and v.rank == 1 and v.shape[0] > 1 else v


def _exact_parts(weights):
    """Where to cut the products of a sum, weights (products, sums), so that float32 holds the sums of each part exactly, whatever
    differences of bytes are multiplied with them."""
    sizes = np.abs(weights).astype(np.int64) * 255
    ends, count = [0], len(weights)
    while ends[-1] < count:
        sums = np.cumsum(sizes[ends[-1] :], axis=0).max(axis=1)
        ends.append(ends[-1] + int(np.searchsorted(sums, EXACT)))
        if ends[-1] == ends[-2]:
            raise Unsupported("a sum that float32 does not hold exactly")
    return list(pairwise(ends))


def _difference(w, zero):
    """Constant weights less their zero points, None for others."""
    if w.val is None or (zero is not None and zero.val is None) or declared(w) not in FEW_BITS:
        return None
    return np.asarray(w.val).astype(np.int32) - (0 if zero is None else np.asarray(zero.val).astype(np.int32))


def _whole(weights, in_bytes=True):
    """Whole numbers as what float32 products take: in their bytes where the system has an operator for it."""
    if not in_bytes or weights.size < WEIGHTS or curr_opset_version() < AvailableTarget.iOS16 or np.abs(weights).max() > 127:
        return mb.const(val=weights.astype(np.float32))
    return _stored_as(weights.astype(np.int8), np.ones(1, np.float32), np.zeros(1, np.int8), 0)


def _summed(x, axis, length, parts, product):
    """The product with each part of an axis of `x`, added as whole numbers."""
    total = None
    for start, end in parts:
        part = x
        if end - start < length:
            begin, stop = ([n if a == axis % x.rank else 0 for a in range(x.rank)] for n in (start, end))
            whole = [a != axis % x.rank for a in range(x.rank)]
            part = mb.slice_by_index(x=x, begin=begin, end=stop, begin_mask=whole, end_mask=whole)
        found = mb.cast(x=product(part, slice(start, end)), dtype="int32")
        total = found if total is None else mb.add(x=total, y=found)
    return total


def _integer_product(a, a_zero, b, b_zero):
    """In float32 as far as that is exact: sums of 258 products of bytes at their largest, or of as many as the weights allow,
    which are added as whole numbers."""
    depth = a.shape[-1]
    weights = _difference(b, b_zero) if b.rank == 2 and declared(a) in FEW_BITS else None
    if weights is not None:
        x = _centred(a, _by_row(a_zero))
        return _summed(
            x, -1, len(weights), _exact_parts(weights), lambda part, at: mb.matmul(x=part, y=_whole(weights[at]))
        )  # fmt: skip
    x, y = mb.sub(x=a, y=_by_row(a_zero)) if a_zero is not None else a, mb.sub(x=b, y=b_zero) if b_zero is not None else b
    if isinstance(depth, (int, np.integer)) and depth * 255 * 255 < 1 << 24:
        return mb.cast(x=mb.matmul(x=cast(x, types.fp32), y=cast(y, types.fp32)), dtype="int32")
    return mb.matmul(x=x, y=y)


@rule("MatMulInteger")
def matmul_integer(A, B, a_zero_point=None, b_zero_point=None):
    return _integer_product(A, a_zero_point, B, b_zero_point)


@rule("QLinearMatMul")
def qlinear_matmul(a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point):
    total = cast(_integer_product(a, a_zero_point, b, b_zero_point), types.fp32)
    up = mb.mul(x=cast(_by_row(a_scale), types.fp32), y=cast(b_scale, types.fp32))
    return _requantized(
        total, mb.real_div(x=up, y=cast(_by_row(y_scale), types.fp32)), _by_row(y_zero_point), declared(y_zero_point)
    )


def _requantized(total, factor, zero, dtype):
    return _saturated(mb.add(x=mb.round(x=mb.mul(x=total, y=factor)), y=cast(zero, types.fp32)), dtype)


def _per_output(v, w):
    return mb.reshape(x=v, shape=[-1] + [1] * (w.rank - 1)) if v is not None and v.rank == 1 else v


@rule("ConvInteger", limits="sums of up to 258 products where the weights are computed or in groups")
def conv_integer(
    x, w, x_zero_point=None, w_zero_point=None, *, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, pads=None,
    strides=None,
):  # fmt: skip
    def product(part, weights):
        weight = _whole(weights, max(dilations or (1,)) == 1) if isinstance(weights, np.ndarray) else weights
        return conv(
            part, weight, auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape, pads=pads,
            strides=strides,
        )  # fmt: skip

    centred, zero = _centred(x, x_zero_point), None if w_zero_point is None else _per_output(w_zero_point, w)
    weights = _difference(w, zero)
    if weights is None:
        if np.prod(numbers(w)[1:], dtype=np.int64) * 255 * 255 >= EXACT:
            raise Unsupported("a sum that float32 does not hold exactly")
        return mb.cast(x=product(centred, cast(w if zero is None else mb.sub(x=w, y=zero), types.fp32)), dtype="int32")
    each = np.abs(weights).reshape(*weights.shape[:2], -1).sum(-1).T  # (channels, outputs)
    if group > 1:
        _exact_parts(each.sum(0, keepdims=True))
        return mb.cast(x=product(centred, weights), dtype="int32")
    return _summed(centred, 1, len(each), _exact_parts(each), lambda part, at: product(part, weights[:, at]))


@rule("QLinearConv", limits="sums of up to 258 products where the weights are computed or in groups")
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
    return _requantized(cast(total, types.fp32), factor, y_zero_point, declared(y_zero_point))
