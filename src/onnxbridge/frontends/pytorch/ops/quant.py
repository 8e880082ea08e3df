"""Quantization as PT2E and torchao represent it: QuantizeLinear and DequantizeLinear, and 4-bit weights."""

import ml_dtypes
import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.pytorch.fx.promotion import cast
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.hub.ir.fold import constant_array
from onnxbridge.rules import Int, Ints

D = ir.DataType
_RANGES = {D.INT8: (-128, 127), D.UINT8: (0, 255), D.INT16: (-32768, 32767), D.UINT16: (0, 65535)}
_FOUR_BITS = {(-8, 7): ml_dtypes.int4, (0, 15): ml_dtypes.uint4}


def quantize(op, input, scale, zero_point, quant_min, quant_max, dtype, **granularity):
    """Quantize to a range that may be narrower than the dtype's."""
    if dtype not in _RANGES:
        raise Unsupported(f"quantization to {dtype.name}")
    low, high = _RANGES[dtype]
    quant_min, quant_max = (low if quant_min is None else quant_min), (high if quant_max is None else quant_max)
    scale = cast(op, scale, D.FLOAT)
    zero_point = cast(op, zero_point if zero_point is not None else op.Sub(scale, scale), dtype)
    result = op.QuantizeLinear(cast(op, input, D.FLOAT), scale, zero_point, **granularity)
    if (quant_min, quant_max) == (low, high):
        return result
    return op.Clip(result, cast(op, quant_min, dtype), cast(op, quant_max, dtype))


def _replacement(op, value, array):
    """A constant that replaces a weight under the weight's name."""
    constant = op.constant(array, value.name)
    constant.name, value.name = value.name, constant.name
    return constant


def dequantize(op, input, scale, zero_point, quant_min, quant_max, out_dtype, **granularity):
    """Dequantize; constant weights in a 4-bit range are stored as 4-bit integers."""
    known, kind = constant_array(input), _FOUR_BITS.get((quant_min, quant_max))
    if known is not None and kind is not None and (zero_point is None or constant_array(zero_point) is not None):
        input = _replacement(op, input, known.astype(kind))
        zero_point = zero_point if zero_point is None else op.constant(constant_array(zero_point).astype(kind))
    elif zero_point is not None:
        zero_point = cast(op, zero_point, input.dtype)
    result = op.DequantizeLinear(input, cast(op, scale, D.FLOAT), zero_point, **granularity)
    return cast(op, result, out_dtype or D.FLOAT)


def _scalar(op, x):
    """A per-tensor quantization parameter as a scalar; it may come with dimensions."""
    return op.reshape(x, []) if isinstance(x, ir.Value) else x


@rule("quantized_decomposed::quantize_per_tensor", "quantized_decomposed::quantize_per_tensor.tensor")
def quantize_per_tensor(op, input, scale, zero_point, quant_min, quant_max, dtype):
    return quantize(op, input, _scalar(op, scale), _scalar(op, zero_point), quant_min, quant_max, dtype)


@rule("quantized_decomposed::quantize_per_tensor.tensor2")
def quantize_per_tensor2(op, input, scale, zero_point, quant_min: Int, quant_max: Int, dtype):
    return quantize(op, input, _scalar(op, scale), _scalar(op, zero_point), quant_min, quant_max, dtype)


@rule("quantized_decomposed::dequantize_per_tensor", "quantized_decomposed::dequantize_per_tensor.tensor")
def dequantize_per_tensor(op, input, scale, zero_point, quant_min, quant_max, dtype, *, out_dtype=None):
    zero_point = _scalar(op, zero_point if isinstance(zero_point, ir.Value) else op.constant(np.int64(zero_point)))
    return dequantize(op, input, _scalar(op, scale), zero_point, quant_min, quant_max, out_dtype)


@rule("quantized_decomposed::dequantize_per_tensor.tensor2")
def dequantize_per_tensor2(op, input, scale, zero_point, quant_min: Int, quant_max: Int, dtype, *, out_dtype=None):
    return dequantize(op, input, _scalar(op, scale), _scalar(op, zero_point), quant_min, quant_max, out_dtype)


@rule("quantized_decomposed::quantize_per_channel")
def quantize_per_channel(op, input, scales, zero_points, axis, quant_min, quant_max, dtype):
    return quantize(op, input, scales, zero_points, quant_min, quant_max, dtype, axis=axis)


@rule("quantized_decomposed::dequantize_per_channel")
def dequantize_per_channel(op, input, scales, zero_points, axis, quant_min, quant_max, dtype, *, out_dtype=None):
    return dequantize(op, input, scales, zero_points, quant_min, quant_max, out_dtype, axis=axis)


def _symmetric(op, low, high, quant_min, quant_max, eps):
    """The scale for values from `low` to `high` with a fixed zero point."""
    low, high = op.Min(low, 0.0), op.Max(high, 0.0)
    return op.Max(op.Div(op.Max(op.Neg(low), high), float(quant_max - quant_min) / 2), eps)


def _full_like(op, like, value, dtype):
    """A constant in the shape of another tensor."""
    sizes = list(like.shape)
    if all(isinstance(size, int) for size in sizes):
        return op.constant(np.full(sizes, value, dtype.numpy()))
    return op.Expand(cast(op, value, dtype), op.Shape(like))


def affine_parameters(op, low, high, quant_min, quant_max, eps):
    """Scale and zero point (floating point) for values from `low` to `high`."""
    low, high = op.Min(low, 0.0), op.Max(high, 0.0)
    scale = op.Max(op.Div(op.Sub(high, low), float(quant_max - quant_min)), eps)
    zero_point = op.Sub(float(quant_min), op.Round(op.Div(low, scale)))
    return scale, op.Clip(zero_point, float(quant_min), float(quant_max))


@rule("quantized_decomposed::choose_qparams.tensor")
def choose_qparams(op, input, quant_min, quant_max, eps, dtype):
    x = cast(op, input, D.FLOAT)
    low, high = op.ReduceMin(x, keepdims=0), op.ReduceMax(x, keepdims=0)
    scale, zero_point = affine_parameters(op, low, high, quant_min, quant_max, eps)
    return op.reshape(cast(op, scale, D.DOUBLE), [1]), op.reshape(cast(op, zero_point, D.INT64), [1])


@rule("quantized_decomposed::choose_qparams_symmetric.tensor")
def choose_qparams_symmetric(op, input, quant_min, quant_max, eps, dtype):
    x = cast(op, input, D.FLOAT)
    low, high = op.ReduceMin(x, keepdims=0), op.ReduceMax(x, keepdims=0)
    scale = _symmetric(op, low, high, quant_min, quant_max, eps)
    middle = 128 if (quant_min, quant_max) == (0, 255) else (quant_min + quant_max) // 2
    return op.reshape(cast(op, scale, D.DOUBLE), [1]), op.constant(np.array([middle if dtype == D.UINT8 else 0]))


def _granularity(op, input, block_size, scale, zero_point):
    """ONNX's granularity attributes for a torchao block, with scale and zero point in the matching shape."""
    sizes = [d if isinstance(d, int) else None for d in input.shape]
    multi_element = [i for i, b in enumerate(block_size) if b != 1]
    whole = [i for i, b in enumerate(block_size) if b in (-1, sizes[i])]
    single = [i for i, b in enumerate(block_size) if b == 1 and sizes[i] != 1]

    def reshaped(target):
        return (op.reshape(scale, target), None if zero_point is None else op.reshape(zero_point, target))

    if not single and len(whole) == len(block_size):
        return (*reshaped([]), {})
    if len(single) == 1 and len(whole) >= len(block_size) - 1:
        return (*reshaped([-1]), {"axis": single[0]})
    if len(multi_element) != 1:
        raise Unsupported(f"quantization in blocks of {list(block_size)}")
    [axis] = multi_element
    blocks = [op.size(input, i) if i != axis else sizes[i] // b for i, b in enumerate(block_size)]
    return (*reshaped(blocks), {"axis": axis, "block_size": block_size[axis]})


def _quantize_by_reciprocal(op, input, block_size, scale, zero_point, dtype, quant_min, quant_max):
    """Quantize with torchao's own arithmetic, which multiplies by the reciprocal of the scale.

    With a symmetric scale, the largest element lies halfway between two integers, where a division would round differently.
    """
    sizes = [op.size(input, i) if b == 1 else 1 for i, b in enumerate(block_size)]

    def broadcast(x):
        return x if len(x.shape) == len(sizes) else op.reshape(x, sizes)

    x = op.Round(op.Mul(input, broadcast(op.Reciprocal(scale))))  # not 1 / scale, which ONNX Runtime fuses into a division
    known = None if zero_point is None else constant_array(zero_point)
    if zero_point is not None and (known is None or known.any()):
        x = op.Add(x, broadcast(cast(op, zero_point, D.FLOAT)))
    low, high = _RANGES[dtype]
    low_limit, high_limit = (low if quant_min is None else quant_min), (high if quant_max is None else quant_max)
    return cast(op, op.Clip(x, float(low_limit), float(high_limit)), dtype)


@rule("torchao::quantize_affine")
def quantize_affine(op, input, block_size: Ints, scale, zero_point, output_dtype, quant_min=None, quant_max=None):
    is_per_axis = all(b in (1, -1, d) for b, d in zip(block_size, input.shape, strict=True))
    if is_per_axis and constant_array(scale) is None and {input.dtype, scale.dtype} == {D.FLOAT} and output_dtype in _RANGES:
        return _quantize_by_reciprocal(op, input, block_size, scale, zero_point, output_dtype, quant_min, quant_max)
    scale, zero_point, granularity = _granularity(op, input, block_size, scale, zero_point)
    return quantize(op, input, scale, zero_point, quant_min, quant_max, output_dtype, **granularity)


@rule("torchao::dequantize_affine")
def dequantize_affine(
    op, input, block_size: Ints, scale, zero_point, input_dtype, quant_min=None, quant_max=None, output_dtype=D.FLOAT
):
    scale, zero_point, granularity = _granularity(op, input, block_size, scale, zero_point)
    return dequantize(op, input, scale, zero_point, quant_min, quant_max, output_dtype, **granularity)


@rule("torchao::choose_qparams_affine")
def choose_qparams_affine(
    op, input, mapping_type, block_size: Ints, target_dtype, quant_min=None, quant_max=None, eps=None, scale_dtype=None,
    zero_point_dtype=None, keepdim=False,
):  # fmt: skip
    if mapping_type not in ("SYMMETRIC", "ASYMMETRIC"):
        raise Unsupported(f"mapping_type={mapping_type}")
    if any(b not in (1, -1, d) for b, d in zip(block_size, input.shape, strict=True)):
        raise Unsupported(f"quantization parameters of blocks of {list(block_size)}")
    low_limit, high_limit = _RANGES[target_dtype]
    quant_min, quant_max = (low_limit if quant_min is None else quant_min), (high_limit if quant_max is None else quant_max)
    axes = [i for i, b in enumerate(block_size) if b != 1]
    low, high = (op.call(name, input, axes, keepdims=int(keepdim)) for name in ("ReduceMin", "ReduceMax"))
    eps = float(np.finfo(input.dtype.numpy()).smallest_normal) if eps is None else eps
    if mapping_type == "SYMMETRIC":
        scale = _symmetric(op, low, high, quant_min, quant_max, eps)
        middle = int((quant_max + quant_min + 1) / 2)
        return cast(op, scale, scale_dtype or input.dtype), _full_like(op, scale, middle, zero_point_dtype or D.INT32)
    scale, zero_point = affine_parameters(op, low, high, quant_min, quant_max, eps)
    return cast(op, scale, scale_dtype or input.dtype), cast(op, zero_point, zero_point_dtype or D.INT32)


@rule("aten::_int_mm")
def int_mm(op, self, mat2):
    return op.MatMulInteger(self, mat2)
