"""The operators of `mx.np` and `mx.npx`: NumPy semantics, with boolean results of comparisons."""

from onnxbridge.frontends.mxnet.ops.numpy import (
    arithmetic,
    creation,
    fallback,
    indexing,
    linalg,
    random,
    reduction,
    shape,
    statistics,
)  # fmt: skip

__all__ = ["arithmetic", "creation", "fallback", "indexing", "linalg", "random", "reduction", "shape", "statistics"]
