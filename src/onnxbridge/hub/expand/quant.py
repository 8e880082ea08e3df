"""Quantized operators as integer ones, whose sums are exact, and one rescaling."""

from __future__ import annotations

from onnxbridge.hub.expand import expand


@expand("QLinearConv")
def qlinear_conv(
    op, x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, B=None, *, auto_pad="NOTSET",
    dilations=None, group=1, kernel_shape=None, pads=None, strides=None,
):  # fmt: skip
    total = op.ConvInteger(
        x, w, x_zero_point, w_zero_point, auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape,
        pads=pads, strides=strides,
    )  # fmt: skip
    each = [1, -1] + [1] * (len(x.shape) - 2)
    if B is not None:
        total = op.Add(total, op.Reshape(B, each))
    scale = op.Mul(x_scale, w_scale)
    if w_scale.shape is None or len(w_scale.shape) == 1:
        scale = op.Reshape(scale, each)
    return op.QuantizeLinear(op.Mul(op.Cast(total, to=y_scale.dtype), scale), y_scale, y_zero_point)


@expand("QLinearMatMul")
def qlinear_mat_mul(op, a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point):
    product = op.MatMulInteger(a, b, a_zero_point, b_zero_point)

    def rows(scale):
        return op.Unsqueeze(scale, [-1]) if scale.shape is not None and len(scale.shape) == 1 else scale

    # rescaled in float32: the product of two half precision scales has no room there
    scale = op.Mul(op.Cast(rows(a_scale), to=1), op.Cast(b_scale, to=1))
    rescaled = op.Mul(op.Cast(product, to=1), scale)
    return op.QuantizeLinear(rescaled, op.Cast(y_scale, to=1), y_zero_point)
