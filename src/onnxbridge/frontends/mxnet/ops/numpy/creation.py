"""Arrays filled with constants and ranges."""

from __future__ import annotations

import math

import numpy as np

from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.frontends.mxnet.ops.types import as_tuple, named


def _filled(op, value, shape, dtype):
    """Large arrays are expanded when the model runs, and are not stored in it."""
    kind = named("float32" if dtype is None else dtype).numpy()
    return op.Expand(op.constant(np.asarray(value).astype(kind)), np.array(as_tuple(shape), np.int64))


@rule("_npi_zeros")
def zeros(op, *, shape=(), dtype="float32"):
    return _filled(op, 0, shape, dtype)


@rule("_npi_ones")
def ones(op, *, shape=(), dtype="float32"):
    return _filled(op, 1, shape, dtype)


@rule("_npi_full")
def full(op, *, shape=(), value, dtype="float32"):
    return _filled(op, value, shape, dtype)


@rule("_npi_full_like")
def full_like(op, a, *, fill_value, dtype=None):
    kind = (a.dtype if dtype is None else named(dtype)).numpy()
    return op.Expand(op.constant(np.asarray(fill_value).astype(kind)), op.Shape(a))


@rule("_npi_identity")
def identity(op, *, shape=(), dtype="float32"):
    return op.constant(np.eye(*as_tuple(shape), dtype=named(dtype).numpy()))


@rule("_npi_eye")
def eye(op, *, N, M=None, k=0, dtype="float32"):
    return op.constant(np.eye(N, M, k, dtype=named(dtype).numpy()))


@rule("_npi_arange")
def arange(op, *, start, stop=None, step=1.0, repeat=1, infer_range=False, dtype="float32"):
    start, stop = (0, start) if stop is None else (start, stop)
    numbers = start + np.arange(max(0, math.ceil((stop - start) / step))) * step
    return op.constant(np.repeat(numbers, repeat).astype(named(dtype).numpy()))


@rule("_npi_logspace")
def logspace(op, *, start, stop, num, endpoint=True, base=10.0, dtype="float32"):
    return op.constant(np.logspace(start, stop, num, endpoint=endpoint, base=base).astype(named(dtype).numpy()))


@rule("_npi_indices")
def indices(op, *, dimensions, dtype="int32"):
    return op.constant(np.indices(as_tuple(dimensions)).astype(named(dtype).numpy()))


def _window(function):
    def lower(op, *, M=None, dtype="float32"):
        return op.constant(function(M or 0).astype(named(dtype).numpy()))

    return lower


rule("_npi_hanning")(_window(np.hanning))
rule("_npi_hamming")(_window(np.hamming))
rule("_npi_blackman")(_window(np.blackman))
