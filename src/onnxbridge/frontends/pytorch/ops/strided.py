"""Strided views, which ONNX does not have: by flat indices, if the memory layout is known."""

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.pytorch.fx.promotion import cast
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.frontends.pytorch.ops.shape import sizes


def flat_indices(x, size, stride, storage_offset):
    """The index in the flattened x of each element of the strided view.

    Raises:
        Unsupported: if x's memory layout is not contiguous, or the view exceeds x.
    """
    numbers = [*size, *stride, storage_offset or 0, *x.shape]
    if x.meta.get("strided") or not all(isinstance(n, int) for n in numbers):
        raise Unsupported("as_strided of a tensor with unknown memory layout", "call contiguous() before")
    index = np.full(tuple(size), storage_offset or 0, np.int64)
    for axis, step in enumerate(stride):
        index += (np.arange(size[axis]) * step).reshape([-1] + [1] * (len(size) - 1 - axis))
    if index.size and (index.max() >= int(np.prod(x.shape)) or index.min() < 0):
        raise Unsupported("as_strided beyond the tensor's elements")
    return index


@rule("aten::as_strided", "aten::as_strided_copy")
def as_strided(op, self, size, stride, storage_offset=None):
    return op.Gather(op.reshape(self, [-1]), flat_indices(self, size, stride, storage_offset))


@rule("aten::as_strided_scatter")
def as_strided_scatter(op, self, src, size, stride, storage_offset=None):
    index = flat_indices(self, size, stride, storage_offset).reshape(-1)
    if len(np.unique(index)) < index.size:
        raise Unsupported("as_strided_scatter with overlapping elements")
    updates = op.reshape(cast(op, src, self.dtype), [-1])
    return op.reshape(op.ScatterElements(op.reshape(self, [-1]), index, updates, axis=0), sizes(op, self))
