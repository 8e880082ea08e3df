"""Layers that oneDNN fuses into one operator, with float32 or int8 weights.

Such a node holds the layers as a subgraph: a convolution with BatchNorm, activation and sum, a fully connected layer with an
activation, or a product of attention. In float32 it is converted layer by layer. Quantized, it rounds once, at the end.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.frontends.mxnet.ops.attention import selfatt_qk, selfatt_valatt
from onnxbridge.frontends.mxnet.ops.conv import convolution, fully_connected
from onnxbridge.frontends.mxnet.ops.quantization.ranges import (
    INT8,
    INT32,
    PRODUCT_STEPS,
    STEPS,
    UINT8,
    dequantized,
    float32,
    known,
    need_range,
    over,
    product_range,
    step,
    times,
    to_integers,
    to_real,
)
from onnxbridge.hub.ir.fold import constant_array
from onnxbridge.hub.ir.values import cast

FLOAT = ir.DataType.FLOAT
ACTIVATIONS = ("Activation", "LeakyReLU", "clip", "square", "sqrt", "exp", "abs")
NONNEGATIVE = ("relu", "sigmoid", "softrelu")
BIAS_LIMIT = 2**30
"""oneDNN keeps the integers of a bias below half of int32."""


def _array(value, what):
    array = constant_array(value)
    if array is None:
        raise Unsupported(f"{what} that are computed when the model runs are not supported in a quantized layer")
    return array


def _activated(op, x, layer):
    name, attrs = layer
    return rule[name].lower(op, x, **attrs)


def _keeps_scale(layer):
    """Whether an activation of scaled numbers is the scaled activation."""
    name, attrs = layer
    return (name, attrs.get("act_type", "leaky")) in (("Activation", "relu"), ("LeakyReLU", "leaky"))


def _is_relu(layer):
    return layer[0] == "Activation" and layer[1]["act_type"] == "relu"


def _rounded_weight(weight, scales):
    """float32 weights as int8: `scales` are those of the first axis, or one."""
    factors = scales.reshape(-1, *[1] * (weight.ndim - 1)) if scales.ndim else scales
    return np.clip(np.rint(weight * factors), -128, 127).astype(np.int8)


def _channel_scales(weight, bias, per_unit):
    """For each output channel, the integers for one unit of weight; fewer where its bias would not fit into int32.

    `per_unit` is the number of integers for one unit of the data.
    """
    largest = np.abs(weight.reshape(len(weight), -1)).max(axis=1)
    with np.errstate(divide="ignore"):
        scales = np.float32(STEPS[INT8]) / largest
        if bias is not None:
            limits = np.where(bias != 0, np.float32(BIAS_LIMIT) / np.abs(bias) / per_unit, np.inf)
            scales = np.minimum(scales, limits)
    return scales.astype(np.float32)


def _known_scale(op, data, low, high):
    """The scale of the data as an array.

    Raises:
        Unsupported: if it is known only when the model runs.
    """
    scale = step(op, data.dtype, low, high)
    if not known(scale):
        need_range(None, None, "a layer behind data")
    return scale


def _bias_of(op, values, factor, scale, rounded=np.rint):
    """A bias that was rounded to int32: `factor` is the number of integers for one unit of `values`, and `scale` their scale."""
    if known(values, factor, scale):
        scale = np.broadcast_to(scale, values.shape).astype(np.float32)
        return dequantized(op, rounded(values * factor).astype(np.int32), scale)
    return op.Mul(op.Round(op.Mul(values, factor)), scale)


# Convolutions


def _without_batch_norm(weight, bias, statistics, attrs):
    """The weight and bias of a convolution with the BatchNorm behind it."""
    gamma, beta, mean, variance = statistics
    gamma = np.ones_like(gamma) if attrs.get("fix_gamma", True) else gamma
    factor = (gamma / np.sqrt(variance + np.float32(attrs.get("eps", 1e-3)))).astype(np.float32)
    shift = beta + factor * ((0 if bias is None else bias) - mean)
    return weight * factor.reshape(-1, *[1] * (weight.ndim - 1)), shift.astype(np.float32)


def _written_as(op, integers, dtype):
    """oneDNN writes a sum over its summand, in the summand's dtype; the bits are then read as the declared dtype."""
    return cast(op, integers, dtype)


@rule("_sg_mkldnn_conv")
def fused_conv(
    op, *inputs, fn, layers, quantized=False, with_bn=False, with_act=False, with_sum=False, with_postsum_act=False,
    min_calib_range=None, max_calib_range=None,
):  # fmt: skip
    """Weights are rounded here, by channel if the result has a calibrated range, after BatchNorm is multiplied into them."""
    if not quantized:
        return fn(*inputs)
    kinds = dict(layers)
    attrs = kinds["Convolution"]
    activations = [layer for layer in layers if layer[0] in ACTIVATIONS]
    before = activations.pop(0) if with_act and activations else None
    after = activations.pop(0) if with_postsum_act and activations else None
    data, weight, *rest = inputs
    bias = None if attrs.get("no_bias", False) else _array(rest.pop(0), "biases")
    weight = _array(weight, "weights")
    if with_bn:
        statistics = [_array(rest.pop(0), "statistics") for _ in range(4)]
        weight, bias = _without_batch_norm(weight, bias, statistics, kinds["BatchNorm"])
    summand = rest.pop(0) if with_sum else None
    low, high, *sum_ends = rest
    calibrated = min_calib_range is not None and max_calib_range is not None
    clips = before is not None and before[0] == "clip"
    if clips:
        need_range(min_calib_range, max_calib_range, "a fused convolution with a clip")
    if calibrated:
        unit = _known_scale(op, data, low, high)
        scales = _channel_scales(weight, bias, 1 / unit)
        # a reorder of oneDNN takes the scales of the first channels for all channels of the groups
        groups = attrs.get("num_group", 1)
        used = scales if groups == 1 else np.repeat(scales[:groups], len(weight) // groups)
        x, w_scale, b_scale = to_real(op, data, unit), 1 / scales, unit / scales
    else:
        size = np.abs(weight).max()
        scales = used = np.float32(STEPS[INT8]) / size
        unit, x_scale = (step(op, data.dtype, low, high, s) for s in (STEPS, PRODUCT_STEPS))
        w_scale = np.float32(size / PRODUCT_STEPS[INT8])
        x, b_scale = to_real(op, data, x_scale), times(op, x_scale, w_scale)
    w = dequantized(op, _rounded_weight(weight, used), w_scale)
    b = None if bias is None else _bias_of(op, bias, over(op, scales, unit), b_scale)
    y = convolution(op, x, w, b, **attrs | {"no_bias": bias is None})
    if not calibrated:
        if before is not None:
            if not _keeps_scale(before):
                need_range(None, None, f"a fused convolution with {before[0]}")
            y = _activated(op, y, before)
        if with_sum:  # the sum is scaled with the steps of integers, not of products
            ratio = STEPS[data.dtype] * STEPS[INT8] / PRODUCT_STEPS[data.dtype] / PRODUCT_STEPS[INT8]
            y = op.Add(y, op.Mul(to_real(op, summand, step(op, summand.dtype, *sum_ends)), np.float32(ratio)))
            y = y if after is None else _activated(op, y, after)
        return to_integers(op, y, b_scale, INT32), *product_range(op, b_scale)
    deciding = after if with_sum else before
    nonnegative = deciding is not None and (deciding[0] == "clip" or deciding[1].get("act_type") in NONNEGATIVE)
    dtype = UINT8 if nonnegative else INT8
    ends = float(min_calib_range), float(max_calib_range)
    scale = step(op, dtype, *ends)
    if before is not None and not clips:
        y = _activated(op, y, before) if _keeps_scale(before) else op.Mul(_activated(op, op.Div(y, scale), before), scale)
    if with_sum:
        y = op.Add(y, to_real(op, summand, step(op, summand.dtype, *sum_ends)))
        y = y if after is None else _activated(op, y, after)
        return _written_as(op, to_integers(op, y, scale, summand.dtype), dtype), *float32(op, *ends)
    return to_integers(op, y, scale, dtype), *float32(op, *ends)


# Fully connected layers


def _integer_layer(op, weight, bias, unit, ends):
    """int8 weights with one scale, and the factor from int8 bias to int32: weight, its scale, the factor.

    Where the bias would not fit into half of int32, MXNet makes the weights smaller.
    """
    w_scale = step(op, INT8, *ends[:2])
    if bias is None:
        return weight, w_scale, None
    b_scale = step(op, INT8, *ends[2:4])
    if known(b_scale) and b_scale == 0:  # a bias of zeros, whose integers are 0 / 0
        return weight, w_scale, np.float32(0)
    factor = over(op, b_scale, times(op, unit, w_scale))
    if known(factor) and factor > (limit := np.float32(BIAS_LIMIT - 1) / np.float32(STEPS[INT8])):
        smaller = np.float32(limit / factor)
        weight = _half_away(_array(weight, "weights") * smaller).astype(np.int8)
        return weight, np.float32(w_scale / smaller), limit
    return weight, w_scale, factor


def _half_away(x):
    return np.trunc(x + np.copysign(0.5, x))


@rule("_sg_mkldnn_fully_connected")
def fused_fully_connected(
    op, *inputs, fn, layers, quantized=False, with_eltwise=False, enable_float_output=False, channel_wise_quantize=None,
    min_calib_range=None, max_calib_range=None,
):  # fmt: skip
    """Weights come as int8, or are rounded here by channel."""
    if not quantized:
        return fn(*inputs)
    attrs = dict(layers)["FullyConnected"]
    activation = next((layer for layer in layers if layer[0] in ACTIVATIONS), None) if with_eltwise else None
    data, weight, *rest = inputs
    bias = None if attrs.get("no_bias", False) else rest.pop(0)
    low, high, *ends = rest
    calibrated = min_calib_range is not None and max_calib_range is not None
    in_float = calibrated or enable_float_output
    if channel_wise_quantize:
        if not in_float:
            need_range(None, None, "channel-wise quantization")
        weight = _array(weight, "weights")
        bias = None if bias is None else _array(bias, "biases")
        unit = _known_scale(op, data, low, high)
        scales = _channel_scales(weight, bias, 1 / unit)
        w = dequantized(op, _rounded_weight(weight, scales), 1 / scales)
        b = None if bias is None else _bias_of(op, bias, scales / unit, unit / scales)
    else:
        unit = step(op, data.dtype, low, high)
        weight, w_scale, factor = _integer_layer(op, weight, bias, unit, ends)
        if not in_float:
            unit, w_scale = step(op, data.dtype, low, high, PRODUCT_STEPS), step(op, INT8, *ends[:2], PRODUCT_STEPS)
        scale = times(op, unit, w_scale)
        w = dequantized(op, weight, w_scale)
        b = None if bias is None else _bias_of(op, _array(bias, "biases").astype(np.float32), factor, scale, _half_away)
    x = to_real(op, data, unit)
    y = fully_connected(op, x, w, b, **attrs | {"no_bias": bias is None})
    if not in_float:
        if activation is not None:
            if not _keeps_scale(activation):
                need_range(None, None, f"a fused layer with {activation[0]}")
            y = _activated(op, y, activation)
        return to_integers(op, y, scale, INT32), *product_range(op, scale)
    y = y if activation is None else _activated(op, y, activation)
    if not calibrated:
        return y
    dtype = UINT8 if activation is not None and _written_unsigned(activation) else INT8
    ends = float(min_calib_range), float(max_calib_range)
    return to_integers(op, y, step(op, dtype, *ends), dtype), *float32(op, *ends)


def _written_unsigned(layer):
    """Whether MXNet writes what an activation gives as uint8; it does for LeakyReLU too."""
    name, attrs = layer
    if name == "Activation":
        return attrs["act_type"] in NONNEGATIVE
    return name != "LeakyReLU" or attrs.get("act_type", "leaky") == "leaky"


# Attention


def _attention_result(op, y, enable_float_output, min_calib_range, max_calib_range):
    if min_calib_range is not None and max_calib_range is not None:
        ends = float(min_calib_range), float(max_calib_range)
        return to_integers(op, y, step(op, INT8, *ends), INT8), *float32(op, *ends)
    if not enable_float_output:
        need_range(None, None, "attention")
    return y


@rule("_sg_mkldnn_selfatt_qk")
def fused_selfatt_qk(
    op, queries_keys_values, min_qkv=None, max_qkv=None, *, fn, layers, heads, quantized=False, enable_float_output=False,
    min_calib_range=None, max_calib_range=None,
):  # fmt: skip
    if not quantized:
        return fn(queries_keys_values)
    qkv = to_real(op, queries_keys_values, step(op, queries_keys_values.dtype, min_qkv, max_qkv))
    y = selfatt_qk(op, qkv, heads=heads)
    return _attention_result(op, y, enable_float_output, min_calib_range, max_calib_range)


@rule("_sg_mkldnn_selfatt_valatt")
def fused_selfatt_valatt(
    op, queries_keys_values, attention, min_qkv=None, max_qkv=None, min_attention=None, max_attention=None, *, fn, layers, heads,
    quantized=False, enable_float_output=False, min_calib_range=None, max_calib_range=None,
):  # fmt: skip
    if not quantized:
        return fn(queries_keys_values, attention)
    qkv = to_real(op, queries_keys_values, step(op, queries_keys_values.dtype, min_qkv, max_qkv))
    weights = to_real(op, attention, step(op, attention.dtype, min_attention, max_attention))
    y = selfatt_valatt(op, qkv, weights, heads=heads)
    return _attention_result(op, y, enable_float_output, min_calib_range, max_calib_range)
