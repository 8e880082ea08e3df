"""Random operators. With a seed, repeated runs give the same numbers; other runtimes give different ones."""

from __future__ import annotations

import numpy as np

from onnxbridge.hub.io.resource_limits import claim
from onnxbridge.rules import Bool
from onnxbridge.runtime.executor.numpy.dtypes import FLOAT, dtype_of, wide
from onnxbridge.runtime.executor.numpy.ops import rule


def _generator(seed):
    # NumPy's legacy generator, since the standard's test cases of Dropout use it.
    return np.random.RandomState(None if seed is None else int(seed) % (1 << 32))


def _normal(shape, dtype, mean, scale, seed):
    claim(shape, np.float64)
    return np.asarray(_generator(seed).normal(mean, scale, shape)).astype(dtype)


def _uniform(shape, dtype, low, high, seed):
    claim(shape, np.float64)
    return np.asarray(_generator(seed).uniform(low, high, shape)).astype(dtype)


def _dtype_like(input, dtype):
    """The requested dtype, by default that of the input."""
    return input.dtype if dtype is None else dtype_of(dtype)


@rule("RandomNormal", kind="random")
def random_normal(*, shape, dtype=FLOAT, mean=0.0, scale=1.0, seed=None):
    return _normal(shape, dtype_of(dtype), mean, scale, seed)


@rule("RandomNormalLike", kind="random")
def random_normal_like(input, *, dtype=None, mean=0.0, scale=1.0, seed=None):
    return _normal(input.shape, _dtype_like(input, dtype), mean, scale, seed)


@rule("RandomUniform", kind="random")
def random_uniform(*, shape, dtype=FLOAT, high=1.0, low=0.0, seed=None):
    return _uniform(shape, dtype_of(dtype), low, high, seed)


@rule("RandomUniformLike", kind="random")
def random_uniform_like(input, *, dtype=None, high=1.0, low=0.0, seed=None):
    return _uniform(input.shape, _dtype_like(input, dtype), low, high, seed)


@rule("Bernoulli", kind="random")
def bernoulli(input, *, dtype=None, seed=None):
    return (_generator(seed).uniform(size=input.shape) < wide(input)).astype(_dtype_like(input, dtype))


@rule("Multinomial", kind="random")
def multinomial(input, *, dtype=6, sample_size=1, seed=None):
    """Each row has unnormalized log-probabilities; samples by the Gumbel-max trick."""
    claim((*input.shape[:1], sample_size, input.shape[1]), np.float64)
    noise = _generator(seed).gumbel(size=(input.shape[0], sample_size, input.shape[1]))
    return np.argmax(wide(input)[:, None, :] + noise, axis=-1).astype(dtype_of(dtype))


@rule("Dropout", kind="random")
def dropout(data, ratio=None, training_mode: Bool = False, *, seed=None):
    rate = 0.5 if ratio is None else float(wide(ratio).reshape(()))
    if not training_mode or rate == 0:
        return data, np.ones(data.shape, bool)
    mask = np.asarray(_generator(seed).uniform(size=data.shape) >= rate)
    scale = wide(data).dtype.type(1 / (1 - rate))
    return (np.where(mask, wide(data), 0) * scale).astype(data.dtype), mask
