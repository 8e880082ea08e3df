"""Random numbers, drawn by Core ML when the model runs."""

import onnx_ir as ir
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil.mil import types

from onnxbridge.backends.coreml.element_types import cast, held
from onnxbridge.backends.coreml.ops import rule
from onnxbridge.backends.coreml.sizes import sizes, vector


def _seed(seed):
    return -1 if seed is None else int(seed)


def _typed(y, dtype, like):
    return cast(y, like.dtype if dtype is None else held(ir.DataType(dtype)))


@rule("RandomNormal")
def random_normal(*, dtype=1, mean=0.0, scale=1.0, seed=None, shape):
    return _typed(mb.random_normal(shape=list(shape), mean=mean, stddev=scale, seed=_seed(seed)), dtype, None)


@rule("RandomUniform")
def random_uniform(*, dtype=1, high=1.0, low=0.0, seed=None, shape):
    return _typed(mb.random_uniform(shape=list(shape), low=low, high=high, seed=_seed(seed)), dtype, None)


@rule("RandomNormalLike")
def random_normal_like(input, *, dtype=None, mean=0.0, scale=1.0, seed=None):
    return _typed(mb.random_normal(shape=vector(sizes(input)), mean=mean, stddev=scale, seed=_seed(seed)), dtype, input)


@rule("RandomUniformLike")
def random_uniform_like(input, *, dtype=None, high=1.0, low=0.0, seed=None):
    return _typed(mb.random_uniform(shape=vector(sizes(input)), low=low, high=high, seed=_seed(seed)), dtype, input)


@rule("Bernoulli")
def bernoulli(input, *, dtype=None, seed=None):
    drawn = mb.random_uniform(shape=vector(sizes(input)), low=0.0, high=1.0, seed=_seed(seed))
    hit = mb.less(x=drawn, y=cast(input, types.fp32))
    kind = input.dtype if dtype is None else held(ir.DataType(dtype))
    return hit if kind == types.bool else cast(mb.cast(x=hit, dtype="int32"), kind)
