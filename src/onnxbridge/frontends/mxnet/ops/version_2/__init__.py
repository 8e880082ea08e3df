"""Operators that MXNet 2 added to those of MXNet 1; the binary ones of `mx.np` are with the others of their kind."""

from onnxbridge.frontends.mxnet.ops.version_2 import activation, attention, indexing, linalg, shape

__all__ = ["activation", "attention", "indexing", "linalg", "shape"]
