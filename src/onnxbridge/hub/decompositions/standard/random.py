"""Random operators in terms of RandomUniformLike, and Dropout."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.decompositions.standard import decompose
from onnxbridge.hub.ir.values import cast
from onnxbridge.hub.opset.known_values import known
from onnxbridge.rules import Outputs

_FLOAT = ir.DataType.FLOAT


def _uniform(op, like, seed, index=0):
    """Uniform float32 samples in [0, 1); `index` distinguishes the seeds of several samples of one operator."""
    return op.RandomUniformLike(like, dtype=_FLOAT, seed=None if seed is None else seed + index)


def _normal(op, like, mean, scale, seed, dtype):
    """Normally distributed samples by the Box-Muller transform."""
    radius = op.Sqrt(op.Mul(op.Log(op.Sub(1.0, _uniform(op, like, seed))), -2.0))
    samples = op.Mul(radius, op.Cos(op.Mul(_uniform(op, like, seed, 1), 2 * np.pi)))
    return cast(op, op.Add(op.Mul(samples, scale), mean), ir.DataType(dtype))


def _zeros(op, shape):
    return op.Expand(op.constant(np.float32(0)), op.dims(shape))


@decompose("RandomNormalLike")
def random_normal_like(op, input, *, dtype=None, mean=0.0, scale=1.0, seed=None):
    return _normal(op, input, mean, scale, seed, dtype or input.dtype)


@decompose("RandomNormal")
def random_normal(op, *, dtype=1, mean=0.0, scale=1.0, seed=None, shape):
    return _normal(op, _zeros(op, shape), mean, scale, seed, dtype)


@decompose("RandomUniform")
def random_uniform(op, *, dtype=1, high=1.0, low=0.0, seed=None, shape):
    return op.RandomUniformLike(_zeros(op, shape), dtype=dtype, high=high, low=low, seed=seed)


@decompose("Bernoulli")
def bernoulli(op, input, *, dtype=None, seed=None):
    """The standard's function body draws 1 with the probability of 0."""
    return cast(op, op.Less(_uniform(op, input, seed), cast(op, input, _FLOAT)), ir.DataType(dtype or input.dtype))


@decompose("Multinomial")
def multinomial(op, input, *, dtype=6, sample_size=1, seed=None):
    """Samples classes with the Gumbel-max trick."""
    scores = op.Unsqueeze(cast(op, input, _FLOAT), [1])
    repeated = op.Expand(scores, op.dims([1, sample_size, 1]))
    noise = op.Neg(op.Log(op.Neg(op.Log(_uniform(op, repeated, seed)))))
    return cast(op, op.ArgMax(op.Add(repeated, noise), axis=2, keepdims=0), ir.DataType(dtype))


@decompose("Dropout")
def dropout(op, data, ratio=None, training_mode=None, *, seed=None, outputs: Outputs):
    training = np.bool_(False) if training_mode is None else known(training_mode)
    if training is not None and not training:
        mask = op.Expand(op.constant(np.bool_(True)), op.Shape(data)) if outputs[1:] and outputs[1] else None
        return op.Identity(data), mask
    ratio = op.constant(np.float32(0.5)) if ratio is None else cast(op, ratio, _FLOAT)
    if training is None:
        ratio = op.Where(training_mode, ratio, 0.0)
    mask = op.GreaterOrEqual(_uniform(op, data, seed), ratio)
    factor = op.Div(op.Cast(mask, to=_FLOAT), op.Sub(1.0, ratio))
    return op.Mul(data, cast(op, factor, data.dtype)), mask
