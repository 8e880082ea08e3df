"""Random numbers of every distribution out of evenly distributed ones."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.decompositions.standard import expand
from onnxbridge.hub.ir.values import cast
from onnxbridge.hub.opset.known_values import known
from onnxbridge.rules import Outputs

_FLOAT = ir.DataType.FLOAT


def _even(op, like, seed, turn=0):
    """Float32 numbers from 0 up to 1; several draws of one operator differ in their seeds."""
    return op.RandomUniformLike(like, dtype=_FLOAT, seed=None if seed is None else seed + turn)


def _normal(op, like, mean, scale, seed, dtype):
    """Box and Muller's way."""
    length = op.Sqrt(op.Mul(op.Log(op.Sub(1.0, _even(op, like, seed))), -2.0))
    drawn = op.Mul(length, op.Cos(op.Mul(_even(op, like, seed, 1), 2 * np.pi)))
    return cast(op, op.Add(op.Mul(drawn, scale), mean), ir.DataType(dtype))


def _of_shape(op, shape):
    return op.Expand(op.constant(np.float32(0)), op.dims(shape))


@expand("RandomNormalLike")
def random_normal_like(op, input, *, dtype=None, mean=0.0, scale=1.0, seed=None):
    return _normal(op, input, mean, scale, seed, dtype or input.dtype)


@expand("RandomNormal")
def random_normal(op, *, dtype=1, mean=0.0, scale=1.0, seed=None, shape):
    return _normal(op, _of_shape(op, shape), mean, scale, seed, dtype)


@expand("RandomUniform")
def random_uniform(op, *, dtype=1, high=1.0, low=0.0, seed=None, shape):
    return op.RandomUniformLike(_of_shape(op, shape), dtype=dtype, high=high, low=low, seed=seed)


@expand("Multinomial")
def multinomial(op, input, *, dtype=6, sample_size=1, seed=None):
    """The class of the largest score, each score moved by noise whose largest values fall as the probabilities do (Gumbel)."""
    scores = op.Unsqueeze(cast(op, input, _FLOAT), [1])
    wide = op.Expand(scores, op.dims([1, sample_size, 1]))
    noise = op.Neg(op.Log(op.Neg(op.Log(_even(op, wide, seed)))))
    return cast(op, op.ArgMax(op.Add(wide, noise), axis=2, keepdims=0), ir.DataType(dtype))


@expand("Dropout")
def dropout(op, data, ratio=None, training_mode=None, *, seed=None, outputs: Outputs):
    training = np.bool_(False) if training_mode is None else known(training_mode)
    if training is not None and not training:
        mask = op.Expand(op.constant(np.bool_(True)), op.Shape(data)) if outputs[1:] and outputs[1] else None
        return op.Identity(data), mask
    ratio = op.constant(np.float32(0.5)) if ratio is None else cast(op, ratio, _FLOAT)
    if training is None:
        ratio = op.Where(training_mode, ratio, 0.0)
    kept = op.GreaterOrEqual(_even(op, data, seed), ratio)
    factor = op.Div(op.Cast(kept, to=_FLOAT), op.Sub(1.0, ratio))
    return op.Mul(data, cast(op, factor, data.dtype)), kept
