"""Global pooling as reductions, LpPool as average pooling, and MaxUnpool as ScatterElements."""

from __future__ import annotations

import math

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.standard import decompose
from onnxbridge.hub.decompositions.standard.dynamic_axis import product, scalar, sizes_of
from onnxbridge.hub.ir.values import rank
from onnxbridge.rules import Ints


@decompose("GlobalAveragePool")
def global_average_pool(op, X):
    return op.ReduceMean(X, list(range(2, rank(X))))


@decompose("GlobalMaxPool")
def global_max_pool(op, X):
    return op.ReduceMax(X, list(range(2, rank(X))))


@decompose("GlobalLpPool")
def global_lp_pool(op, X, *, p=2):
    return op.Pow(op.ReduceSum(op.Pow(op.Abs(X), float(p)), list(range(2, rank(X)))), 1 / p)


@decompose("LpPool")
def lp_pool(op, X, *, auto_pad="NOTSET", ceil_mode=0, dilations=None, kernel_shape, p=2, pads=None, strides=None):
    """The average of the powers, padding included, times the number of elements in the window."""
    if ceil_mode:
        raise Unsupported("LpPool with ceil_mode: its last windows may be smaller")
    mean = op.AveragePool(
        op.Pow(op.Abs(X), float(p)), auto_pad=auto_pad, count_include_pad=1, dilations=dilations, kernel_shape=kernel_shape,
        pads=pads, strides=strides,
    )  # fmt: skip
    return op.Pow(op.Mul(mean, float(math.prod(kernel_shape))), 1 / p)


@decompose("MaxUnpool")
def max_unpool(op, X, I, output_shape: Ints | None = None, *, kernel_shape, pads=None, strides=None):  # noqa: E741
    """Scatters elements by their indices into zeros of the inferred output shape, and pads to output_shape if that is given."""
    space = len(kernel_shape)
    strides, pads = strides or (1,) * space, pads or (0,) * (2 * space)
    leading, sizes = sizes_of(op, X)[:2], []
    for n, s, k, b, e in zip(sizes_of(op, X)[2:], strides, kernel_shape, pads[:space], pads[space:], strict=True):
        offset = k - b - e - s
        sizes.append(n * s + offset if isinstance(n, int) else op.Add(op.Mul(n, s), offset))
    inferred = [*leading, *sizes]
    zeros = op.Expand(op.constant(0, dtype=X.dtype), op.dims([product(op, inferred)]))
    y = op.reshape(op.ScatterElements(zeros, op.Reshape(I, [-1]), op.Reshape(X, [-1]), axis=0), inferred)
    if output_shape is None or list(output_shape) == inferred:
        return y
    end_pads = [op.Sub(scalar(op, w), scalar(op, n)) for w, n in zip(output_shape, inferred, strict=True)]
    return op.Pad(y, op.dims([0] * len(inferred) + end_pads))
