"""Arrays that are filled with a number or a range."""

from __future__ import annotations

import math

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.frontends.mxnet.ops.shape import product, sizes
from onnxbridge.frontends.mxnet.ops.types import as_tuple, named
from onnxbridge.hub.ir.values import like


def _filled(op, value, shape, dtype, np_shape):
    """MXNet infers a size of 0 from other operands; a size of 1 broadcasts to the same."""
    kind = named("float32" if dtype is None else dtype).numpy()
    sizes = [d if np_shape else d or 1 for d in as_tuple(shape)]
    return op.Expand(op.constant(np.asarray(value).astype(kind)), sizes)


@rule("_zeros")
def zeros(op, *, shape=(), dtype="float32", np_shape=False):
    return _filled(op, 0, shape, dtype, np_shape)


@rule("_ones")
def ones(op, *, shape=(), dtype="float32", np_shape=False):
    return _filled(op, 1, shape, dtype, np_shape)


@rule("_full")
def full(op, *, shape=(), dtype="float32", value, np_shape=False):
    return _filled(op, value, shape, dtype, np_shape)


@rule("zeros_like")
def zeros_like(op, data, *, dtype=None):
    """The operator has no dtype; MXNet ignores one in the file."""
    return op.Expand(op.constant(np.zeros((), data.dtype.numpy())), op.Shape(data))


@rule("ones_like")
def ones_like(op, data, *, dtype=None):
    """The operator has no dtype; MXNet ignores one in the file."""
    return op.Expand(op.constant(np.ones((), data.dtype.numpy())), op.Shape(data))


@rule("_eye")
def eye(op, *, N, M=0, k=0, dtype="float32"):
    return op.constant(np.eye(N, M or None, k, dtype=named(dtype).numpy()))


@rule("_arange")
def arange(op, *, start, stop=None, step=1.0, repeat=1, infer_range=False, dtype="float32"):
    if infer_range:
        raise Unsupported("a range with an inferred end is not supported")
    start, stop = (0, start) if stop is None else (start, stop)
    steps = np.arange(max(0, math.ceil((stop - start) / step)))
    return op.constant(np.repeat(start + steps * step, repeat).astype(named(dtype).numpy()))


@rule("_linspace")
def linspace(op, *, start, stop=None, step=1.0, repeat=1, infer_range=False, dtype="float32", num=None, endpoint=True):
    if num is None:
        raise Unsupported("the number of steps is missing")
    return op.constant(np.linspace(start, stop, num, endpoint=endpoint).astype(named(dtype).numpy()))


@rule("_contrib_arange_like")
def arange_like(op, data, *, start=0.0, step=1.0, repeat=1, axis=None):
    """A range over the elements of the input, in its shape, or over the indices of one axis."""
    counts = sizes(op, data) if axis is None else [op.size(data, axis)]
    total = product(op, counts)
    if isinstance(total, int):
        numbers = start + np.repeat(np.arange(-(-total // repeat)), repeat)[:total] * step
        return op.constant(numbers.reshape(counts).astype(data.dtype.numpy()))
    numbers = op.Range(0, total, 1)
    numbers = like(op, op.Div(numbers, repeat) if repeat != 1 else numbers, data)
    numbers = op.Mul(numbers, step) if step != 1 else numbers
    numbers = op.Add(numbers, start) if start != 0 else numbers
    return numbers if axis is not None else op.Reshape(numbers, op.Shape(data))
