"""Col2Im as a transposed convolution."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.standard import decompose
from onnxbridge.hub.decompositions.standard.dynamic_axis import arange, element, scalar


@decompose("Col2Im")
def col2im(op, input, image_shape, block_shape, *, dilations=None, pads=None, strides=None):
    """A ConvTranspose with one-hot kernels, each of which copies one element of a block to its position."""
    space = image_shape.shape[0] if image_shape.shape is not None else None
    if not isinstance(space, int) or not 1 <= space <= 3:
        raise Unsupported("Col2Im with more than three spatial axes, or an unknown number")
    strides, dilations, pads = strides or (1,) * space, dilations or (1,) * space, pads or (0,) * (2 * space)
    images = [element(op, image_shape, i) for i in range(space)]
    blocks = [element(op, block_shape, i) for i in range(space)]
    counts, end_pads = [], []
    for n, k, s, d, b, e in zip(images, blocks, strides, dilations, pads[:space], pads[space:], strict=True):
        span = op.Add(op.Mul(op.Sub(k, np.int64(1)), np.int64(d)), np.int64(1))
        room = op.Sub(op.Add(n, np.int64(b + e)), span)
        counts.append(op.Add(op.Div(room, np.int64(s)), np.int64(1)))
        end_pads.append(op.Sub(op.Mod(room, np.int64(s)), np.int64(e)))
    taps = op.ReduceProd(block_shape, keepdims=0)
    index = arange(op, taps)
    one_hot = op.Cast(op.Equal(op.Unsqueeze(index, [1]), op.Unsqueeze(index, [0])), to=input.dtype)
    kernel = op.Reshape(one_hot, op.Concat(op.Reshape(taps, [1]), op.constant(np.ones(1, np.int64)), block_shape, axis=0))
    separate = op.Reshape(input, op.Concat(op.constant([-1]), op.dims([taps, *counts]), axis=0))
    y = op.ConvTranspose(separate, kernel, strides=strides, dilations=dilations)
    if y.shape is None:  # as shape inference cannot know it when the kernel sizes are dynamic
        y.shape = ir.Shape([None] * (space + 2))
    # pad with zeros what no block reaches at the end, and crop the padding
    y = op.Pad(y, op.dims([0, 0, *(-b for b in pads[:space]), 0, 0, *end_pads]))
    channels = op.Div(scalar(op, op.size(input, 1)), taps)
    return op.Reshape(y, op.Concat(op.constant([-1]), op.dims([channels]), op.Cast(image_shape, to=ir.DataType.INT64), axis=0))
