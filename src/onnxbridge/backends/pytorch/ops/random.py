"""Random numbers. PyTorch's generators differ from other frameworks'; `seed` only makes the module repeatable."""

from __future__ import annotations

import torch

from onnxbridge.backends.pytorch import dtypes
from onnxbridge.backends.pytorch.ops import rule
from onnxbridge.backends.pytorch.trace.size_arithmetic import known_ints
from onnxbridge.backends.pytorch.trace.tracer import Deferred, opaque_call


def _generator(seed):
    """The `generator` of a random function, if there is one: with None, torch.export does not take sizes that are not numbers."""
    return {} if seed is None else {"generator": torch.Generator().manual_seed(int(abs(seed) * 1e6) % (1 << 31))}


@opaque_call
def normal(like, shape, dtype, mean, scale, seed, device=None):
    shape = like.shape if shape is None else shape
    return (torch.randn(shape, dtype=torch.float32, **_generator(seed)) * scale + mean).to(device, dtype)


@opaque_call
def uniform(like, shape, dtype, low, high, seed, device=None):
    shape = like.shape if shape is None else shape
    return (torch.rand(shape, dtype=torch.float32, **_generator(seed)) * (high - low) + low).to(device, dtype)


def _dtype(input, dtype):
    return input.dtype if dtype is None else dtypes.attribute(dtype)


@rule("RandomNormal")
def random_normal(*, shape, dtype=1, mean=0.0, scale=1.0, seed=None):
    return Deferred(normal, (None, list(shape), dtypes.attribute(dtype), mean, scale, seed))


@rule("RandomUniform")
def random_uniform(*, shape, dtype=1, high=1.0, low=0.0, seed=None):
    return Deferred(uniform, (None, list(shape), dtypes.attribute(dtype), low, high, seed))


@rule("RandomNormalLike")
def random_normal_like(input, *, dtype=None, mean=0.0, scale=1.0, seed=None):
    return normal(input, None, _dtype(input, dtype), mean, scale, seed)


@rule("RandomUniformLike")
def random_uniform_like(input, *, dtype=None, high=1.0, low=0.0, seed=None):
    return uniform(input, None, _dtype(input, dtype), low, high, seed)


@opaque_call
def sample(input, dtype, sample_size, seed):
    return torch.multinomial(torch.softmax(input, -1), sample_size, replacement=True, **_generator(seed)).to(dtype)


@rule("Multinomial")
def multinomial(input, *, dtype=6, sample_size=1, seed=None):
    return sample(input, dtypes.attribute(dtype), sample_size, seed)


@opaque_call
def bernoulli_of(input, dtype, seed):
    return torch.bernoulli(input, **_generator(seed)).to(dtype)


@rule("Bernoulli")
def bernoulli(input, *, dtype=None, seed=None):
    return bernoulli_of(input, _dtype(input, dtype), seed)


@opaque_call
def dropped(data, ratio, training, seed):
    """`ratio` and `training` may be tensors, which are read at run time."""
    ratio = ratio.item() if isinstance(ratio, torch.Tensor) else ratio
    training = bool(training)
    if not training or ratio == 0.0:
        return data.clone(), torch.ones(data.shape, dtype=torch.bool, device=data.device)
    mask = torch.rand(data.shape, **_generator(seed)).to(data.device) >= ratio
    return (data * mask / (1 - ratio)).to(data.dtype), mask


@rule("Dropout")
def dropout(data, ratio=None, training_mode=None, *, seed=None):
    training = known_ints(training_mode)
    if training_mode is None or (isinstance(training, tuple) and not training[0]):
        return data, torch.ones_like(data, dtype=torch.bool)
    found = dropped(data, 0.5 if ratio is None else ratio, training[0] if isinstance(training, tuple) else training, seed)
    return found[0], found[1]
