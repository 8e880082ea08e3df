"""Random numbers, and operators that are random in training only."""

from __future__ import annotations

from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.frontends.mxnet.ops.types import as_tuple, named


@rule("Dropout", "_npx_dropout")
def dropout(op, data, *, p=0.5, mode="training", axes=()):
    if mode != "always" or not p:
        return op.Identity(data)
    # one sample for all elements along `axes`; ONNX Runtime would remove a Dropout node
    like = op.ReduceMax(data, list(as_tuple(axes)), keepdims=1) if axes else data
    return op.Where(op.GreaterOrEqual(op.RandomUniformLike(like), p), op.Div(data, 1 - p), 0.0)


def _dtype(dtype):
    return named("float32" if dtype in (None, "None") else dtype)


@rule("_random_uniform", "random_uniform", "uniform")
def random_uniform(op, *, low=0.0, high=1.0, shape=(), dtype=None):
    return op.RandomUniform(low=low, high=high, shape=as_tuple(shape) or (1,), dtype=_dtype(dtype))


@rule("_random_normal", "random_normal", "normal")
def random_normal(op, *, loc=0.0, scale=1.0, shape=(), dtype=None):
    return op.RandomNormal(mean=loc, scale=scale, shape=as_tuple(shape) or (1,), dtype=_dtype(dtype))


@rule("_random_uniform_like")
def random_uniform_like(op, data, *, low=0.0, high=1.0):
    return op.RandomUniformLike(data, low=low, high=high)


@rule("_random_normal_like")
def random_normal_like(op, data, *, loc=0.0, scale=1.0):
    return op.RandomNormalLike(data, mean=loc, scale=scale)
