"""Tensors read by strides, which ONNX's tensors do not have: by index, where their order in memory is known."""

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.pytorch.fx.promotion import cast
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.frontends.pytorch.ops.shape import sizes


def places(x, size, stride, storage_offset):
    """Where in x, flat, each element of the strided view lies.

    Raises:
        Unsupported: if x's order in memory is not its own, or the view goes beyond x.
    """
    numbers = [*size, *stride, storage_offset or 0, *x.shape]
    if x.meta.get("strided") or not all(isinstance(n, int) for n in numbers):
        raise Unsupported("strides of a tensor whose order in memory is not known", "call contiguous() before")
    index = np.full(tuple(size), storage_offset or 0, np.int64)
    for axis, step in enumerate(stride):
        index += (np.arange(size[axis]) * step).reshape([-1] + [1] * (len(size) - 1 - axis))
    if index.size and (index.max() >= int(np.prod(x.shape)) or index.min() < 0):
        raise Unsupported("strides that lead out of the tensor")
    return index


@rule("aten::as_strided", "aten::as_strided_copy")
def as_strided(op, self, size, stride, storage_offset=None):
    return op.Gather(op.reshape(self, [-1]), places(self, size, stride, storage_offset))


@rule("aten::as_strided_scatter")
def as_strided_scatter(op, self, src, size, stride, storage_offset=None):
    index = places(self, size, stride, storage_offset).reshape(-1)
    if len(np.unique(index)) < index.size:
        raise Unsupported("writing twice to one place")
    updates = op.reshape(cast(op, src, self.dtype), [-1])
    return op.reshape(op.ScatterElements(op.reshape(self, [-1]), index, updates, axis=0), sizes(op, self))
