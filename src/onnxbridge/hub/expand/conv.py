"""Convolution's kin."""

from __future__ import annotations

import math

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.expand import expand
from onnxbridge.rules import Ints


@expand("Col2Im")
def col2im(op, input, image_shape: Ints, block_shape: Ints, *, dilations=None, pads=None, strides=None):
    """A transposed convolution, each of whose kernels puts one element of a block in its place."""
    space, taps = len(image_shape), math.prod(block_shape)
    if input.shape is None or not isinstance(input.shape[1], int) or not 1 <= space <= 3:
        raise Unsupported("a dynamic number of channels, or more than three axes")
    strides, dilations, pads = strides or (1,) * space, dilations or (1,) * space, pads or (0,) * (2 * space)
    sizes = [n + b + e for n, b, e in zip(image_shape, pads[:space], pads[space:], strict=True)]
    spans = [(k - 1) * d + 1 for k, d in zip(block_shape, dilations, strict=True)]
    counts = [(n - span) // s + 1 for n, span, s in zip(sizes, spans, strides, strict=True)]
    left = [n - ((c - 1) * s + span) for n, c, s, span in zip(sizes, counts, strides, spans, strict=True)]
    channels = input.shape[1] // taps
    blocks = op.Reshape(input, op.dims([-1, taps, *counts]))
    kernel = op.constant(np.eye(taps).reshape(taps, 1, *block_shape), dtype=input.dtype)
    y = op.ConvTranspose(blocks, kernel, strides=strides, dilations=dilations)
    # what no block reaches, behind, is zero; what was padding is cut off
    y = op.Pad(y, [0, 0, *(-b for b in pads[:space]), 0, 0, *(n - e for n, e in zip(left, pads[space:], strict=True))])
    return op.Reshape(y, op.dims([-1, channels, *image_shape]))
