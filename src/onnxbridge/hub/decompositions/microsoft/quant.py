"""Quantized operators as DequantizeLinear, the operator, and QuantizeLinear.

Required parameters that follow optional ones also have the default None.
"""

from __future__ import annotations

from onnxbridge.hub.decompositions.microsoft import MICROSOFT, contrib, rank_of
from onnxbridge.hub.decompositions.microsoft.channels_last import to_first, to_last


def _dequantize(op, x, scale, zero_point):
    return op.DequantizeLinear(x, scale, zero_point)


def _quantize(op, y, scale, zero_point, like):
    """Quantizes to the dtype of the zero point, or of `like` if there is none."""
    if zero_point is None:
        return op.QuantizeLinear(y, scale, output_dtype=like.dtype)
    return op.QuantizeLinear(y, scale, zero_point)


@contrib(MICROSOFT + "QLinearAdd")
def qlinear_add(
    op, A, A_scale, A_zero_point=None, B=None, B_scale=None, B_zero_point=None, C_scale=None, C_zero_point=None
):  # fmt: skip
    return _quantize(
        op, op.Add(_dequantize(op, A, A_scale, A_zero_point), _dequantize(op, B, B_scale, B_zero_point)), C_scale, C_zero_point, A
    )


@contrib(MICROSOFT + "QLinearMul")
def qlinear_mul(
    op, A, A_scale, A_zero_point=None, B=None, B_scale=None, B_zero_point=None, C_scale=None, C_zero_point=None
):  # fmt: skip
    return _quantize(
        op, op.Mul(_dequantize(op, A, A_scale, A_zero_point), _dequantize(op, B, B_scale, B_zero_point)), C_scale, C_zero_point, A
    )


@contrib(MICROSOFT + "QLinearSigmoid")
def qlinear_sigmoid(op, X, X_scale, X_zero_point=None, Y_scale=None, Y_zero_point=None):
    return _quantize(op, op.Sigmoid(_dequantize(op, X, X_scale, X_zero_point)), Y_scale, Y_zero_point, X)


@contrib(MICROSOFT + "QLinearLeakyRelu")
def qlinear_leaky_relu(op, X, X_scale, X_zero_point=None, Y_scale=None, Y_zero_point=None, *, alpha=0.01):
    return _quantize(op, op.LeakyRelu(_dequantize(op, X, X_scale, X_zero_point), alpha=alpha), Y_scale, Y_zero_point, X)


@contrib(MICROSOFT + "QLinearSoftmax")
def qlinear_softmax(op, X, X_scale, x_zero_point=None, y_scale=None, y_zero_point=None, *, axis=-1, opset):
    """Below opset 13 Softmax flattens all axes from `axis` on."""
    rank = rank_of(X)
    x = _dequantize(op, X, X_scale, x_zero_point)
    if opset < 13 and axis % rank != rank - 1:
        y = op.Reshape(op.Softmax(op.Flatten(x, axis=axis % rank), axis=-1), op.Shape(x), allowzero=1)
    else:
        y = op.Softmax(x, axis=axis)
    return _quantize(op, y, y_scale, y_zero_point, X)


@contrib(MICROSOFT + "QLinearConcat")
def qlinear_concat(op, Y_scale, Y_zero_point, *inputs, axis):
    """The inputs are triples of values, scale and zero point."""
    dequantized = [_dequantize(op, *inputs[i : i + 3]) for i in range(0, len(inputs), 3)]
    return _quantize(op, op.Concat(*dequantized, axis=axis), Y_scale, Y_zero_point, inputs[0])


@contrib(MICROSOFT + "QLinearWhere")
def qlinear_where(op, condition, X, x_scale, x_zero_point, Y, y_scale, y_zero_point, z_scale, z_zero_point):
    chosen = op.Where(condition, _dequantize(op, X, x_scale, x_zero_point), _dequantize(op, Y, y_scale, y_zero_point))
    return _quantize(op, chosen, z_scale, z_zero_point, X)


@contrib(MICROSOFT + "QLinearReduceMean")
def qlinear_reduce_mean(
    op, data, data_scale, data_zero_point=None, reduced_scale=None, reduced_zero_point=None, *, axes, keepdims
):  # fmt: skip
    mean = op.ReduceMean(_dequantize(op, data, data_scale, data_zero_point), [int(a) for a in axes], keepdims=keepdims)
    return _quantize(op, mean, reduced_scale, reduced_zero_point, data)


@contrib(MICROSOFT + "ReduceSumInteger")
def reduce_sum_integer(op, data, *, axes, keepdims):
    wide = op.Cast(data, to=12 if data.dtype.name.startswith("UINT") else 6)
    return op.ReduceSum(wide, [int(a) for a in axes], keepdims=keepdims)


@contrib(MICROSOFT + "MulInteger")
def mul_integer(op, A, A_zero_point=None, B=None, B_zero_point=None):
    def subtract_zero_point(v, zero_point):
        wide = op.Cast(v, to=6)
        return wide if zero_point is None else op.Sub(wide, op.Cast(zero_point, to=6))

    return op.Mul(subtract_zero_point(A, A_zero_point), subtract_zero_point(B, B_zero_point))


@contrib(MICROSOFT + "QLinearAveragePool")
def qlinear_average_pool(
    op, X, x_scale, x_zero_point=None, y_scale=None, y_zero_point=None, *, auto_pad="NOTSET", ceil_mode=0, channels_last=0,
    count_include_pad=0, kernel_shape, pads=None, strides=None,
):  # fmt: skip
    x = _dequantize(op, X, x_scale, x_zero_point)
    x = to_first(op, x) if channels_last else x
    attributes = {"auto_pad": auto_pad, "ceil_mode": ceil_mode, "count_include_pad": count_include_pad, "pads": pads}
    y = op.AveragePool(x, kernel_shape=kernel_shape, strides=strides, **attributes)
    return _quantize(op, to_last(op, y) if channels_last else y, y_scale, y_zero_point, X)


@contrib(MICROSOFT + "QLinearGlobalAveragePool")
def qlinear_global_average_pool(op, X, x_scale, x_zero_point, y_scale, y_zero_point, *, channels_last=0):
    x = _dequantize(op, X, x_scale, x_zero_point)
    y = op.GlobalAveragePool(to_first(op, x) if channels_last else x)
    return _quantize(op, to_last(op, y) if channels_last else y, y_scale, y_zero_point, X)


@contrib(MICROSOFT + "NhwcMaxPool")
def nhwc_max_pool(op, x, *, auto_pad="NOTSET", ceil_mode=0, dilations=None, kernel_shape, pads=None, strides=None):
    attributes = {"auto_pad": auto_pad, "ceil_mode": ceil_mode, "dilations": dilations, "pads": pads, "strides": strides}
    return to_last(op, op.MaxPool(to_first(op, x), kernel_shape=kernel_shape, **attributes))


@contrib(MICROSOFT + "QLinearConv")
def qlinear_conv(
    op, x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, B=None, *, auto_pad="NOTSET", channels_last=0,
    dilations=None, group=1, kernel_shape=None, pads=None, strides=None,
):  # fmt: skip
    attributes = {"auto_pad": auto_pad, "dilations": dilations, "group": group, "kernel_shape": kernel_shape, "pads": pads}
    x = to_first(op, x) if channels_last else x
    y = op.QLinearConv(
        x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, B, strides=strides, **attributes
    )
    return to_last(op, y) if channels_last else y


@contrib(MICROSOFT + "QuantizeLinear")
def quantize_linear(op, x, y_scale, y_zero_point=None, *, axis=1):
    return op.QuantizeLinear(x, y_scale, y_zero_point, axis=axis)


@contrib(MICROSOFT + "DequantizeLinear")
def dequantize_linear(op, x, x_scale, x_zero_point=None, *, axis=1):
    return op.DequantizeLinear(x, x_scale, x_zero_point, axis=axis)


@contrib(MICROSOFT + "QGemm")
def qgemm(
    op, A, a_scale, a_zero_point, B, b_scale, b_zero_point, C=None, y_scale=None, y_zero_point=None, *, alpha=1.0, transA=0,
    transB=0,
):  # fmt: skip
    """The bias is quantized with the scale of the product with alpha. Without y_scale the result is float.

    Scales of B are per column of the result, whether B is transposed or not.
    """
    a, b = (op.Transpose(v, perm=[1, 0]) if transposed else v for v, transposed in ((A, transA), (B, transB)))
    total = op.MatMulInteger(a, b, a_zero_point, b_zero_point)
    total = total if C is None else op.Add(total, C)
    y = op.Mul(op.Cast(total, to=1), op.Mul(op.Mul(a_scale, b_scale), alpha))
    return y if y_scale is None else _quantize(op, y, y_scale, y_zero_point, A)


@contrib(MICROSOFT + "MatMulIntegerToFloat")
def mat_mul_integer_to_float(op, A, B, a_scale, b_scale, a_zero_point=None, b_zero_point=None, bias=None):
    product = op.CastLike(op.MatMulInteger(A, B, a_zero_point, b_zero_point), a_scale)
    y = op.Mul(product, op.Mul(a_scale, b_scale))
    return y if bias is None else op.Add(y, bias)


@contrib(MICROSOFT + "DynamicQuantizeMatMul")
def dynamic_quantize_mat_mul(op, A, B, b_scale, b_zero_point=None, bias=None):
    quantized, scale, zero = op.DynamicQuantizeLinear(A, outputs=3)
    return mat_mul_integer_to_float(op, quantized, B, scale, b_scale, zero, b_zero_point, bias)


@contrib(MICROSOFT + "MatMulInteger16")
def mat_mul_integer16(op, A, B):
    return op.MatMul(op.Cast(A, to=6), op.Cast(B, to=6))
