"""Undoing a pooling by scattering."""

from __future__ import annotations

import math

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.expand import expand
from onnxbridge.rules import Ints


@expand("MaxUnpool")
def max_unpool(op, X, I, output_shape: Ints | None = None, *, kernel_shape, pads=None, strides=None):  # noqa: E741
    """Each element goes where its index says, in the output that the pooling had without an output shape; the rest is zero."""
    if X.shape is None or not all(isinstance(n, int) for n in X.shape):
        raise Unsupported("a dynamic size")
    space = len(kernel_shape)
    strides, pads = strides or (1,) * space, pads or (0,) * (2 * space)
    sizes = [
        (n - 1) * s + k - b - e
        for n, s, k, b, e in zip(X.shape[2:], strides, kernel_shape, pads[:space], pads[space:], strict=True)
    ]
    inferred = [*X.shape[:2], *sizes]
    zeros = op.constant(np.zeros(math.prod(inferred)), dtype=X.dtype)
    y = op.Reshape(op.ScatterElements(zeros, op.Reshape(I, [-1]), op.Reshape(X, [-1]), axis=0), inferred)
    if output_shape is None or list(output_shape) == inferred:
        return y
    return op.Pad(y, [0] * len(inferred) + [w - n for w, n in zip(output_shape, inferred, strict=True)])
