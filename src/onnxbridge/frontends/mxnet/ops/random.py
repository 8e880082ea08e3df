"""Random numbers, with new samples in every run, and operators that are random in training only."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.frontends.mxnet.ops.types import as_tuple, named
from onnxbridge.hub.ir.values import cast, like, rank

FLOAT, DOUBLE, INT32, INT64 = ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.INT32, ir.DataType.INT64
SAMPLES = "other samples of the same distribution than MXNet's"
TRIES = 12
"""Each try for a gamma variate is accepted with a probability of at least 0.95."""


@rule("Dropout", "_npx_dropout")
def dropout(op, data, *, p=0.5, mode="training", axes=()):
    if mode != "always" or not p:
        return op.Identity(data)
    # one sample for all elements along `axes`; ONNX Runtime would remove a Dropout node
    like_ = op.ReduceMax(data, list(as_tuple(axes)), keepdims=1) if axes else data
    return op.Where(op.GreaterOrEqual(op.RandomUniformLike(like_), p), op.Div(data, 1 - p), 0.0)


def _dtype(dtype):
    return named("float32" if dtype in (None, "None") else dtype)


# samples in the shape of an array


def uniforms(op, like_):
    """Numbers between 0 and 1, neither included, in the shape of an array."""
    return op.RandomUniformLike(like_, low=2.0**-25, high=1 - 2.0**-25, dtype=FLOAT)


def normals(op, like_):
    return op.RandomNormalLike(like_, dtype=FLOAT)


def exponentials(op, like_):
    return op.Neg(op.Log(uniforms(op, like_)))


def logistics(op, like_):
    u = uniforms(op, like_)
    return op.Sub(op.Log(u), op.Log(op.Sub(1.0, u)))


def gumbels(op, like_):
    return op.Neg(op.Log(exponentials(op, like_)))


def gammas(op, alpha):
    """Gamma variates of these shapes, by Marsaglia and Tsang's method with several tries at once."""
    boosted = op.Where(op.Less(alpha, 1.0), op.Add(alpha, 1.0), alpha)
    d = op.Sub(boosted, 1 / 3)
    c = op.Reciprocal(op.Sqrt(op.Mul(d, 9.0)))
    tries = op.Expand(op.Unsqueeze(d, [0]), [TRIES] + [1] * rank(d))
    x = normals(op, tries)
    base = op.Add(op.Mul(x, c), 1.0)
    v = op.Mul(op.Mul(base, base), base)
    inside = op.Where(op.Greater(v, 0.0), v, 1.0)
    bound = op.Add(op.Mul(op.Mul(x, x), 0.5), op.Mul(d, op.Add(op.Sub(1.0, inside), op.Log(inside))))
    accepted = op.And(op.Greater(v, 0.0), op.Less(op.Log(uniforms(op, tries)), bound))
    first = op.ArgMax(op.Cast(accepted, to=INT32), axis=0, keepdims=1)
    found = op.Mul(d, op.Squeeze(op.GatherElements(inside, first, axis=0), [0]))
    small = op.Pow(uniforms(op, alpha), op.Reciprocal(alpha))
    return op.Where(op.Less(alpha, 1.0), op.Mul(found, small), found)


def poissons(op, rate):
    """How many events with exponential waiting times occur within a time of `rate`."""
    zeros = op.Mul(rate, 0.0)

    def body(i, going, time, count):
        time = op.Add(time, exponentials(op, time))
        arrived = op.Less(time, rate)
        more = op.Cast(op.ReduceMax(op.Cast(arrived, to=INT32), keepdims=0), to=ir.DataType.BOOL)
        return more, time, op.Add(count, op.Cast(arrived, to=FLOAT))

    return op.Loop(None, op.constant(np.True_), zeros, zeros, body=body, outputs=2)[1]


def negative_binomials(op, k, p):
    """A Poisson variate whose rate is a gamma variate."""
    return poissons(op, op.Mul(gammas(op, k), op.Div(op.Sub(1.0, p), p)))


def generalized_negative_binomials(op, mu, alpha):
    """Of mean mu and dispersion alpha; at alpha = 0 it is a Poisson variate."""
    size = op.Reciprocal(op.Where(op.Equal(alpha, 0.0), 1.0, alpha))
    mixed = op.Mul(gammas(op, size), op.Div(mu, size))
    return poissons(op, op.Where(op.Equal(alpha, 0.0), mu, mixed))


def _affine(draw):
    return lambda op, shift, scale: op.Add(op.Mul(draw(op, shift), scale), shift)


def _uniform(op, low, high):
    return op.Add(op.Mul(uniforms(op, low), op.Sub(high, low)), low)


DISTRIBUTIONS = {
    "uniform": _uniform,
    "normal": _affine(normals),
    "gamma": lambda op, alpha, beta: op.Mul(gammas(op, alpha), beta),
    "exponential": lambda op, lam: op.Div(exponentials(op, lam), lam),
    "poisson": poissons,
    "negative_binomial": negative_binomials,
    "generalized_negative_binomial": generalized_negative_binomials,
}
"""The samples of each distribution in the shape of its parameters, which are float32 arrays of one shape."""


def draw(op, name, parameters, dtype):
    return cast(op, DISTRIBUTIONS[name](op, *parameters), dtype)


def _filled(op, values, shape):
    return [op.Expand(op.constant(np.float32(v)), np.array(shape, np.int64)) for v in values]


@rule("_random_uniform", "random_uniform", "uniform", limits=SAMPLES)
def random_uniform(op, *, low=0.0, high=1.0, shape=(), dtype=None):
    return op.RandomUniform(low=low, high=high, shape=as_tuple(shape) or (1,), dtype=_dtype(dtype))


@rule("_random_normal", "random_normal", "normal", limits=SAMPLES)
def random_normal(op, *, loc=0.0, scale=1.0, shape=(), dtype=None):
    return op.RandomNormal(mean=loc, scale=scale, shape=as_tuple(shape) or (1,), dtype=_dtype(dtype))


@rule("_random_uniform_like", limits=SAMPLES)
def random_uniform_like(op, data, *, low=0.0, high=1.0):
    return op.RandomUniformLike(data, low=low, high=high)


@rule("_random_normal_like", limits=SAMPLES)
def random_normal_like(op, data, *, loc=0.0, scale=1.0):
    return op.RandomNormalLike(data, mean=loc, scale=scale)


@rule("_random_exponential", "random_exponential", limits=SAMPLES)
def random_exponential(op, *, lam=1.0, shape=(), dtype=None):
    return draw(op, "exponential", _filled(op, [lam], as_tuple(shape) or (1,)), _dtype(dtype))


@rule("_random_gamma", "random_gamma", limits=SAMPLES)
def random_gamma(op, *, alpha=1.0, beta=1.0, shape=(), dtype=None):
    return draw(op, "gamma", _filled(op, [alpha, beta], as_tuple(shape) or (1,)), _dtype(dtype))


@rule("_random_poisson", "random_poisson", limits=SAMPLES)
def random_poisson(op, *, lam=1.0, shape=(), dtype=None):
    return draw(op, "poisson", _filled(op, [lam], as_tuple(shape) or (1,)), _dtype(dtype))


@rule("_random_negative_binomial", "random_negative_binomial", limits=SAMPLES)
def random_negative_binomial(op, *, k=1, p=1.0, shape=(), dtype=None):
    return draw(op, "negative_binomial", _filled(op, [k, p], as_tuple(shape) or (1,)), _dtype(dtype))


@rule("_random_generalized_negative_binomial", "random_generalized_negative_binomial", limits=SAMPLES)
def random_generalized_negative_binomial(op, *, mu=1.0, alpha=1.0, shape=(), dtype=None):
    return draw(op, "generalized_negative_binomial", _filled(op, [mu, alpha], as_tuple(shape) or (1,)), _dtype(dtype))


@rule("_random_randint", "random_randint", limits=SAMPLES)
def random_randint(op, *, low, high, shape=(), dtype=None):
    """Integers from low up to and without high."""
    kind = named("int32" if dtype in (None, "None") else dtype)
    u = op.RandomUniform(low=0.0, high=1.0, shape=as_tuple(shape) or (1,), dtype=DOUBLE)
    return op.Cast(op.Add(op.Floor(op.Mul(u, float(high - low))), float(low)), to=kind)


def _like(op, name, data, *values):
    return draw(op, name, [op.Expand(op.constant(np.float32(v)), op.Shape(data)) for v in values], data.dtype)


@rule("_random_exponential_like", limits=SAMPLES)
def random_exponential_like(op, data, *, lam=1.0):
    return _like(op, "exponential", data, lam)


@rule("_random_gamma_like", limits=SAMPLES)
def random_gamma_like(op, data, *, alpha=1.0, beta=1.0):
    return _like(op, "gamma", data, alpha, beta)


@rule("_random_poisson_like", limits=SAMPLES)
def random_poisson_like(op, data, *, lam=1.0):
    return _like(op, "poisson", data, lam)


@rule("_random_negative_binomial_like", limits=SAMPLES)
def random_negative_binomial_like(op, data, *, k=1, p=1.0):
    return _like(op, "negative_binomial", data, k, p)


@rule("_random_generalized_negative_binomial_like", limits=SAMPLES)
def random_generalized_negative_binomial_like(op, data, *, mu=1.0, alpha=1.0):
    return _like(op, "generalized_negative_binomial", data, mu, alpha)


# several samples for each element of the parameters


def _several(op, name, shape, dtype, *parameters):
    shape = as_tuple(shape)
    kind = parameters[0].dtype if dtype in (None, "None") else named(dtype)
    kind = kind if kind.is_floating_point() else FLOAT
    wide = [op.Unsqueeze(cast(op, p, FLOAT), list(range(rank(p), rank(p) + len(shape)))) for p in parameters]
    full = [op.Expand(p, np.array([1] * rank(q) + list(shape))) for p, q in zip(wide, parameters, strict=True)]
    return draw(op, name, full, kind)


@rule("_sample_uniform", "sample_uniform", limits=SAMPLES)
def sample_uniform(op, low, high, *, shape=(), dtype=None):
    return _several(op, "uniform", shape, dtype, low, high)


@rule("_sample_normal", "sample_normal", limits=SAMPLES)
def sample_normal(op, mu, sigma, *, shape=(), dtype=None):
    return _several(op, "normal", shape, dtype, mu, sigma)


@rule("_sample_gamma", "sample_gamma", limits=SAMPLES)
def sample_gamma(op, alpha, beta, *, shape=(), dtype=None):
    return _several(op, "gamma", shape, dtype, alpha, beta)


@rule("_sample_exponential", "sample_exponential", limits=SAMPLES)
def sample_exponential(op, lam, *, shape=(), dtype=None):
    return _several(op, "exponential", shape, dtype, lam)


@rule("_sample_poisson", "sample_poisson", limits=SAMPLES)
def sample_poisson(op, lam, *, shape=(), dtype=None):
    return _several(op, "poisson", shape, dtype, lam)


@rule("_sample_negative_binomial", "sample_negative_binomial", limits=SAMPLES)
def sample_negative_binomial(op, k, p, *, shape=(), dtype=None):
    return _several(op, "negative_binomial", shape, dtype, k, p)


@rule("_sample_generalized_negative_binomial", "sample_generalized_negative_binomial", limits=SAMPLES)
def sample_generalized_negative_binomial(op, mu, alpha, *, shape=(), dtype=None):
    return _several(op, "generalized_negative_binomial", shape, dtype, mu, alpha)


@rule("_sample_multinomial", "sample_multinomial", limits=SAMPLES)
def sample_multinomial(op, data, *, shape=(), get_prob=False, dtype="int32", np_shape=False):
    """Classes drawn by the probabilities in the last dimension, and the logarithms of their probabilities."""
    shape, count = as_tuple(shape), rank(data) - 1
    scores = op.Unsqueeze(op.Log(cast(op, data, FLOAT)), list(range(count, count + len(shape))))
    scores = op.Expand(scores, np.array([1] * count + [*shape, 1]))
    chosen = op.ArgMax(op.Add(scores, gumbels(op, scores)), axis=-1, keepdims=1)
    scalar = count + len(shape) == 0 and not np_shape
    classes = cast(op, chosen if scalar else op.Squeeze(chosen, [-1]), named(dtype))
    if not get_prob:
        return classes
    logs = op.GatherElements(scores, chosen, axis=-1)
    return classes, like(op, logs if scalar else op.Squeeze(logs, [-1]), data)


@rule("_shuffle", "shuffle", limits=SAMPLES)
def shuffle(op, data):
    """Along the first axis."""
    count = op.Shape(data, start=0, end=1)
    noise = op.RandomUniformLike(op.Expand(op.constant(np.float32(0)), count))
    return op.Gather(data, op.TopK(noise, count, outputs=2)[1], axis=0)
