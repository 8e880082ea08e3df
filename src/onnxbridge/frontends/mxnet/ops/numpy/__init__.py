"""The operators of `mx.np` and `mx.npx`: NumPy semantics, with boolean results of comparisons."""

from onnxbridge.frontends.mxnet.ops.numpy import arithmetic, creation, indexing, linalg, random, reduction, shape, statistics

__all__ = ["arithmetic", "creation", "indexing", "linalg", "random", "reduction", "shape", "statistics"]
