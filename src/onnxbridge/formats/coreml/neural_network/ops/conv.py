"""Convolution, fully connected and embedding layers."""

import numpy as np

from onnxbridge.formats.coreml.neural_network import weights as stored
from onnxbridge.formats.coreml.neural_network.ops import rule


def ints(values, count, default=1):
    """The numbers as an array; if there are none, `count` times the default."""
    return np.array([int(v) for v in values] or [default] * count)


def border_amounts(amounts):
    """MIL's flat padding from a BorderAmounts message."""
    return [int(n) for edge in amounts.borderAmounts for n in (edge.startEdgeSize, edge.endEdgeSize)]


def padding(valid, same):
    """MIL's pad_type and pad."""
    if same is not None:
        return {"pad_type": "same_lower" if same.asymmetryMode else "same"}
    amounts = border_amounts(valid.paddingAmounts) if valid is not None else []
    return {"pad_type": "custom", "pad": np.array(amounts)} if any(amounts) else {"pad_type": "valid"}


def _bias(mil, hasBias, bias, count):
    return mil.weight(stored.read(bias, (count,)), "bias") if hasBias else None


@rule("convolution")
def convolution(
    mil, x, weight=None, bias_blob=None, *, outputChannels, kernelChannels=0, nGroups=1, kernelSize=(), stride=(),
    dilationFactor=(), valid=None, same=None, isDeconvolution=False, hasBias=False, weights=None, bias=None, outputShape=(),
):  # fmt: skip
    count, groups = int(outputChannels), int(nGroups) or 1
    kernel = ints(kernelSize, 2, 3)
    shape = (int(kernelChannels), count // groups) if isDeconvolution else (count, int(kernelChannels))
    if weight is None:
        weight = mil.weight(stored.read(weights, (*shape, *kernel.tolist()), 1 if isDeconvolution else 0), "weight")
    given = {
        "x": x, "weight": weight, "bias": bias_blob or _bias(mil, hasBias, bias, count), "strides": ints(stride, 2),
        "dilations": ints(dilationFactor, 2), "groups": groups, **padding(valid, same),
    }  # fmt: skip
    if not isDeconvolution:
        return mil.conv(**given)
    output_size = np.array([0, 0, *(int(n) for n in outputShape)]) if len(outputShape) else None
    return mil.conv_transpose(output_shape=output_size, **given)


@rule("convolution3d")
def convolution3d(
    mil, x, *, outputChannels, inputChannels, nGroups=1, kernelDepth=1, kernelHeight=1, kernelWidth=1, strideDepth=1,
    strideHeight=1, strideWidth=1, dilationDepth=1, dilationHeight=1, dilationWidth=1, hasBias=False, weights=None, bias=None,
    paddingType="CUSTOM", customPaddingFront=0, customPaddingBack=0, customPaddingTop=0, customPaddingBottom=0,
    customPaddingLeft=0, customPaddingRight=0, isDeconvolution=False, outputShape=(),
):  # fmt: skip
    groups, kernel = nGroups or 1, (kernelDepth, kernelHeight, kernelWidth)
    pads = (customPaddingFront, customPaddingBack, customPaddingTop, customPaddingBottom, customPaddingLeft, customPaddingRight)
    shape = (inputChannels, outputChannels // groups) if isDeconvolution else (outputChannels, inputChannels // groups)
    given = {
        "x": x, "weight": mil.weight(stored.read(weights, (*shape, *kernel), 1 if isDeconvolution else 0), "weight"),
        "bias": _bias(mil, hasBias, bias, outputChannels), "strides": np.array([strideDepth, strideHeight, strideWidth]),
        "dilations": np.array([dilationDepth, dilationHeight, dilationWidth]), "groups": groups,
        **padding3d(paddingType, pads),
    }  # fmt: skip
    if not isDeconvolution:
        return mil.conv(**given)
    output_size = np.array([0, 0, *(int(n) for n in outputShape)]) if len(outputShape) else None
    return mil.conv_transpose(output_shape=output_size, **given)


def padding3d(paddingType, pads):
    """MIL's pad_type and pad of a 3-D layer."""
    if paddingType == "CUSTOM":
        return {"pad_type": "custom", "pad": np.array(pads)}
    return {"pad_type": paddingType.lower()}


def _apply_to_vectors(mil, x, function):
    """Apply a function along the last axis or, in older networks, along the channels of 1 x 1 images."""
    if mil.exact:
        return function(x)
    return mil.expand_dims(x=function(mil.squeeze(x=x, axes=np.array([2, 3]))), axes=np.array([2, 3]))


# Core ML quantizes the input of such a layer to int8 with an undocumented scale; here it is not quantized.
INT8_LIMITS = "with int8DynamicQuantize the input is not quantized to int8"


@rule("innerProduct", limits=INT8_LIMITS)
def inner_product(
    mil, x, *, inputChannels, outputChannels, hasBias=False, weights, bias=None, int8DynamicQuantize=False
):  # fmt: skip
    weight = mil.weight(stored.read(weights, (int(outputChannels), int(inputChannels))), "weight")
    bias = _bias(mil, hasBias, bias, int(outputChannels))
    return _apply_to_vectors(mil, x, lambda v: mil.linear(x=v, weight=weight, bias=bias))


@rule("batchedMatmul", limits=INT8_LIMITS)
def batched_matmul(
    mil, x, y=None, *, transposeA=False, transposeB=False, weightMatrixFirstDimension=0, weightMatrixSecondDimension=0,
    hasBias=False, weights=None, bias=None, int8DynamicQuantize=False,
):  # fmt: skip
    if y is not None:
        x, y = mil.at_least_rank(x=x, rank=2), mil.at_least_rank(x=y, rank=2, append=True)
        return mil.matmul(x=x, y=y, transpose_x=transposeA, transpose_y=transposeB)
    rows, columns = int(weightMatrixFirstDimension), int(weightMatrixSecondDimension)
    weight = mil.weight(stored.read(weights, (columns, rows)).T, "weight")
    product = mil.matmul(x=x, y=weight)
    return mil.add(x=product, y=_bias(mil, hasBias, bias, columns)) if hasBias else product


def _lookup(mil, x, weights, bias, hasBias, width, count):
    table = stored.read(weights, (width, count)).T
    if hasBias:
        table = table + stored.read(bias, (width,))
    return mil.gather(x=mil.weight(np.ascontiguousarray(table), "weight"), indices=mil.cast(x=x, dtype="int32"), axis=0)


@rule("embedding")
def embedding(mil, x, *, inputDim, outputChannels, hasBias=False, weights, bias=None):
    axes = np.array([-3, -2, -1])
    rows = _lookup(mil, mil.squeeze(x=x, axes=axes), weights, bias, hasBias, int(outputChannels), int(inputDim))
    return mil.expand_dims(x=rows, axes=np.array([-2, -1]))


@rule("embeddingND")
def embedding_nd(mil, x, *, vocabSize, embeddingSize, hasBias=False, weights, bias=None):
    indices = mil.squeeze(x=x, axes=np.array([-1]))
    return _lookup(mil, indices, weights, bias, hasBias, int(embeddingSize), int(vocabSize))
