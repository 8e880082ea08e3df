"""Quantization, and decompression of weights (constexpr_...)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxbridge.formats.coreml.mil_constants import unpack
from onnxbridge.rules import Int, Ints, Str
from onnxbridge.runtime.mil.ops import rule
from onnxbridge.runtime.mil.ops.arithmetic import DTYPES


def _broadcast_along(parameter, rank, axis):
    """Reshape a vector to broadcast along an axis; a scalar is returned unchanged."""
    if parameter.ndim == 0:
        return parameter
    return parameter.reshape([-1 if a == axis % rank else 1 for a in range(rank)])


@rule("quantize")
def quantize(input, scale, output_dtype: Str, zero_point=None, axis: Int | None = None):
    kind = np.iinfo(DTYPES[output_dtype])
    quantized = np.rint(input / _broadcast_along(scale, input.ndim, axis))
    if zero_point is not None:
        quantized = quantized + _broadcast_along(zero_point.astype(np.float32), input.ndim, axis)
    return np.clip(quantized, kind.min, kind.max).astype(DTYPES[output_dtype])


@rule("dequantize")
def dequantize(input, scale, zero_point=None, axis: Int | None = None):
    shifted = input.astype(scale.dtype)
    if zero_point is not None:
        shifted = shifted - _broadcast_along(zero_point.astype(scale.dtype), input.ndim, axis)
    return shifted * _broadcast_along(scale, input.ndim, axis)


@rule("constexpr_affine_dequantize", kind="weights")
def constexpr_affine_dequantize(quantized_data, zero_point, scale, axis: Int):
    return dequantize(quantized_data, scale, zero_point, axis)


@rule("constexpr_cast", kind="weights")
def constexpr_cast(source_val, output_dtype: Str):
    return source_val.astype(DTYPES[output_dtype])


def repeat_blocks(blocks: Any, shape: Sequence[int]) -> Any:
    """Repeat per-block values over the elements of each block."""
    for axis, (n, size) in enumerate(zip(blocks.shape, shape, strict=False)):
        blocks = np.repeat(blocks, size // n, axis) if n != size else blocks
    return blocks


@rule("constexpr_blockwise_shift_scale", kind="weights")
def constexpr_blockwise_shift_scale(data, scale, offset=None):
    values = data.astype(scale.dtype)
    if offset is not None:
        values = values - repeat_blocks(offset.astype(scale.dtype), data.shape)
    return values * repeat_blocks(scale, data.shape)


def _look_up(indices, lut, vector_axis):
    """Replace each index by its entry in the lookup table of its block; vector entries are laid out along `vector_axis`."""
    rank = indices.ndim
    tables = repeat_blocks(lut, indices.shape)
    entries = np.take_along_axis(tables, indices.astype(np.intp)[..., None, None], rank)[..., 0, :]
    if lut.shape[-1] == 1:
        return entries[..., 0]
    axis = vector_axis % rank
    shape = [n * lut.shape[-1] if a == axis else n for a, n in enumerate(indices.shape)]
    return np.moveaxis(entries, -1, axis + 1).reshape(shape)


@rule("constexpr_lut_to_dense", kind="weights")
def constexpr_lut_to_dense(indices, lut, shape: Ints | None = None, vector_axis: Int | None = None):
    """Before iOS18 the indices are packed in bytes, and `shape` is that of the result."""
    if shape is None:
        return _look_up(indices, lut, vector_axis)
    bits = (lut.size - 1).bit_length()
    return lut[unpack(indices, bits, int(np.prod(shape)))].reshape(shape)


@rule("constexpr_sparse_to_dense", kind="weights")
def constexpr_sparse_to_dense(nonzero_data, mask, shape: Ints | None = None):
    """Before iOS18 the mask is packed in bytes, and `shape` is that of the result."""
    if shape is not None:
        mask = unpack(mask, 1, int(np.prod(shape))).reshape(shape)
    return _dense(nonzero_data, mask)


def _dense(nonzero_data, mask):
    dense = np.zeros(mask.shape, nonzero_data.dtype)
    dense[mask != 0] = nonzero_data
    return dense


@rule("constexpr_lut_to_sparse", kind="weights")
def constexpr_lut_to_sparse(indices_mask, indices_nonzero_data, lut, vector_axis: Int | None = None):
    mask = indices_mask
    if lut.shape[-1] > 1:
        mask = np.repeat(mask, lut.shape[-1], vector_axis)
    dense = _look_up(_dense(indices_nonzero_data, indices_mask), lut, vector_axis)
    return mask, dense[mask != 0]


@rule("constexpr_sparse_blockwise_shift_scale", kind="weights")
def constexpr_sparse_blockwise_shift_scale(data_mask, nonzero_data, scale, offset=None):
    dense = constexpr_blockwise_shift_scale(_dense(nonzero_data, data_mask), scale, offset)
    return data_mask, dense[data_mask != 0]
