"""Convolution's kin."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.standard import expand
from onnxbridge.hub.decompositions.standard.dynamic_axis import element, places, scalar


@expand("Col2Im")
def col2im(op, input, image_shape, block_shape, *, dilations=None, pads=None, strides=None):
    """A transposed convolution, each of whose kernels puts one element of a block in its place."""
    space = image_shape.shape[0] if image_shape.shape is not None else None
    if not isinstance(space, int) or not 1 <= space <= 3:
        raise Unsupported("more than three axes, or a number of axes that is not known")
    strides, dilations, pads = strides or (1,) * space, dilations or (1,) * space, pads or (0,) * (2 * space)
    images = [element(op, image_shape, i) for i in range(space)]
    blocks = [element(op, block_shape, i) for i in range(space)]
    counts, left = [], []
    for n, k, s, d, b, e in zip(images, blocks, strides, dilations, pads[:space], pads[space:], strict=True):
        span = op.Add(op.Mul(op.Sub(k, np.int64(1)), np.int64(d)), np.int64(1))
        room = op.Sub(op.Add(n, np.int64(b + e)), span)
        counts.append(op.Add(op.Div(room, np.int64(s)), np.int64(1)))
        left.append(op.Sub(op.Mod(room, np.int64(s)), np.int64(e)))
    taps = op.ReduceProd(block_shape, keepdims=0)
    index = places(op, taps)
    one = op.Cast(op.Equal(op.Unsqueeze(index, [1]), op.Unsqueeze(index, [0])), to=input.dtype)
    kernel = op.Reshape(one, op.Concat(op.Reshape(taps, [1]), op.constant(np.ones(1, np.int64)), block_shape, axis=0))
    separate = op.Reshape(input, op.Concat(op.constant([-1]), op.dims([taps, *counts]), axis=0))
    y = op.ConvTranspose(separate, kernel, strides=strides, dilations=dilations)
    if y.shape is None:  # as where the kernel's sizes are of the run
        y.shape = ir.Shape([None] * (space + 2))
    # what no block reaches, behind, is zero; what was padding is cut off
    y = op.Pad(y, op.dims([0, 0, *(-b for b in pads[:space]), 0, 0, *left]))
    channels = op.Div(scalar(op, op.size(input, 1)), taps)
    return op.Reshape(y, op.Concat(op.constant([-1]), op.dims([channels]), op.Cast(image_shape, to=ir.DataType.INT64), axis=0))
