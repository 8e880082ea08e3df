"""Pooling layers."""

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.formats.coreml.neural_network.ops import rule
from onnxbridge.formats.coreml.neural_network.ops.conv import ints, padding, padding3d

POOLS = {"MAX": "max_pool", "AVERAGE": "avg_pool", "L2": "l2_pool"}
GLOBAL_POOLS = {"MAX": "reduce_max", "AVERAGE": "reduce_mean", "L2": "reduce_l2_norm"}


@rule("pooling")
def pooling(
    mil, x, *, type="MAX", kernelSize=(), stride=(), valid=None, same=None, includeLastPixel=None, avgPoolExcludePadding=False,
    globalPooling=False,
):  # fmt: skip
    if globalPooling:
        return mil.emit(GLOBAL_POOLS[type], x=x, axes=np.array([-2, -1]), keep_dims=True)
    parameters = padding(valid, same)
    if includeLastPixel is not None:  # all windows that start inside, with equal padding on both sides
        amounts = [int(n) for n in includeLastPixel.paddingAmounts] or [0, 0]
        parameters = {"pad_type": "custom", "pad": np.repeat(amounts, 2), "ceil_mode": True}
    if type == "AVERAGE":
        parameters["exclude_padding_from_average"] = bool(avgPoolExcludePadding)
    return mil.emit(POOLS[type], x=x, kernel_sizes=ints(kernelSize, 2, 3), strides=ints(stride, 2), **parameters)


@rule("pooling3d")
def pooling3d(
    mil, x, *, type="MAX", kernelDepth=1, kernelHeight=1, kernelWidth=1, strideDepth=1, strideHeight=1, strideWidth=1,
    paddingType="CUSTOM", customPaddingFront=0, customPaddingBack=0, customPaddingTop=0, customPaddingBottom=0,
    customPaddingLeft=0, customPaddingRight=0, countExcludePadding=False,
):  # fmt: skip
    pads = (customPaddingFront, customPaddingBack, customPaddingTop, customPaddingBottom, customPaddingLeft, customPaddingRight)
    parameters = padding3d(paddingType, pads)
    if type == "AVERAGE":
        parameters["exclude_padding_from_average"] = bool(countExcludePadding)
    kernel, strides = (kernelDepth, kernelHeight, kernelWidth), (strideDepth, strideHeight, strideWidth)
    return mil.emit(POOLS[type], x=x, kernel_sizes=np.array(kernel), strides=np.array(strides), **parameters)


@rule("globalPooling3d")
def global_pooling3d(mil, x, *, type="MAX"):
    if type not in GLOBAL_POOLS:
        raise Unsupported(f"type {type}")
    return mil.emit(GLOBAL_POOLS[type], x=x, axes=np.array([-3, -2, -1]), keep_dims=True)
