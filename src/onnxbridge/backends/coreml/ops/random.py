"""Random number generators, run by Core ML at inference."""

import onnx_ir as ir
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil.mil import types

from onnxbridge.backends.coreml.element_types import cast, mil_type
from onnxbridge.backends.coreml.ops import rule
from onnxbridge.backends.coreml.sizes import sizes, vector


def _seed(seed):
    return -1 if seed is None else int(seed)


def _cast_to(y, dtype, like):
    return cast(y, like.dtype if dtype is None else mil_type(ir.DataType(dtype)))


@rule("RandomNormal")
def random_normal(*, dtype=1, mean=0.0, scale=1.0, seed=None, shape):
    return _cast_to(mb.random_normal(shape=list(shape), mean=mean, stddev=scale, seed=_seed(seed)), dtype, None)


@rule("RandomUniform")
def random_uniform(*, dtype=1, high=1.0, low=0.0, seed=None, shape):
    return _cast_to(mb.random_uniform(shape=list(shape), low=low, high=high, seed=_seed(seed)), dtype, None)


@rule("RandomNormalLike")
def random_normal_like(input, *, dtype=None, mean=0.0, scale=1.0, seed=None):
    return _cast_to(mb.random_normal(shape=vector(sizes(input)), mean=mean, stddev=scale, seed=_seed(seed)), dtype, input)


@rule("RandomUniformLike")
def random_uniform_like(input, *, dtype=None, high=1.0, low=0.0, seed=None):
    return _cast_to(mb.random_uniform(shape=vector(sizes(input)), low=low, high=high, seed=_seed(seed)), dtype, input)


@rule("Bernoulli")
def bernoulli(input, *, dtype=None, seed=None):
    uniform = mb.random_uniform(shape=vector(sizes(input)), low=0.0, high=1.0, seed=_seed(seed))
    success = mb.less(x=uniform, y=cast(input, types.fp32))
    result_dtype = input.dtype if dtype is None else mil_type(ir.DataType(dtype))
    return success if result_dtype == types.bool else cast(mb.cast(x=success, dtype="int32"), result_dtype)
