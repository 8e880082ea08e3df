"""Functions of `mx.np` that MXNet runs with NumPy: it writes them as `Custom` operators (mxnet/numpy_op_fallback.py)."""

from __future__ import annotations

import math

import numpy as np

from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.frontends.mxnet.ops.indexing import unravel
from onnxbridge.frontends.mxnet.ops.random import SAMPLES, normals
from onnxbridge.frontends.mxnet.ops.types import as_tuple
from onnxbridge.hub.decompositions.linalg import factorizations
from onnxbridge.hub.ir.values import like


@rule("Custom:resize_fallback")
def resize(op, a, *, new_shape=()):
    """The flattened array, repeated or cut to fill the new shape."""
    flat = op.Reshape(a, [-1])
    size, wanted = op.size(flat, 0), as_tuple(new_shape)
    positions = np.arange(math.prod(wanted))
    positions = positions % size if isinstance(size, int) else op.Mod(op.constant(positions), size)
    return op.Reshape(op.Gather(flat, positions, axis=0), list(wanted))


@rule("Custom:unravel_index_fallback")
def unravel_index(op, indices, *, shape=()):
    return unravel(op, indices, as_tuple(shape))


@rule("Custom:mvn_fallback", limits=SAMPLES)
def multivariate_normal(op, mean, cov, *, size=None):
    """`mean + cholesky(cov) @ noise`, with the sizes of `size` in front of those of the parameters."""
    scale = factorizations.cholesky(op, cov)[0]
    located = op.Add(mean, op.Mul(op.ReduceSum(cov, [-1], keepdims=0), 0.0))
    if size is not None:
        shape = op.Concat(np.array(as_tuple(size), np.int64), op.Shape(located), axis=0)
        located = op.Expand(mean, shape)
    noise = like(op, normals(op, located), mean)
    return op.Add(mean, op.Squeeze(op.MatMul(scale, op.Unsqueeze(noise, [-1])), [-1]))
