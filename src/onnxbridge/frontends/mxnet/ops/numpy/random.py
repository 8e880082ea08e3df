"""`mx.np.random` and `mx.npx.random`: parameters are arrays or numbers, in NumPy's order."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.frontends.mxnet.ops.random import SAMPLES, exponentials, gammas, gumbels, logistics, normals, uniforms
from onnxbridge.frontends.mxnet.ops.types import as_tuple, named
from onnxbridge.hub.ir.values import cast, rank

FLOAT, INT64 = ir.DataType.FLOAT, ir.DataType.INT64


def _parameters(op, arrays, numbers, size, in_front=False):
    """The parameters, arrays where they are not numbers, as float32 arrays of the result's shape.

    That is `size`, or the shape of the parameters; `in_front` puts the one before the other.
    """
    arrays = [cast(op, a, FLOAT) for a in arrays if a is not None]
    found = [op.constant(np.float32(n)) if n is not None else arrays.pop(0) for n in numbers]
    shape = op.Shape(found[0])
    if len(found) > 1 and any(rank(f) for f in found):
        shape = op.Shape(op.Add(op.Mul(found[0], 0.0), op.Mul(found[1], 0.0)))
    if size is not None:
        given = op.constant(np.array(as_tuple(size), np.int64))
        shape = op.Concat(given, shape, axis=0) if in_front else given
    return [op.Expand(f, shape) for f in found]


def _uniform(in_front):
    def lower(op, input1=None, input2=None, *, low=None, high=None, size=None, dtype="float32"):
        low, high = _parameters(op, (input1, input2), (low, high), size, in_front)
        return cast(op, op.Add(op.Mul(uniforms(op, low), op.Sub(high, low)), low), named(dtype))

    return lower


def _normal(in_front):
    def lower(op, input1=None, input2=None, *, loc=None, scale=None, size=None, dtype="float32"):
        loc, scale = _parameters(op, (input1, input2), (loc, scale), size, in_front)
        return cast(op, op.Add(op.Mul(normals(op, loc), scale), loc), named(dtype))

    return lower


def _located(draw):
    def lower(op, input1=None, input2=None, *, loc=None, scale=None, size=None):
        loc, scale = _parameters(op, (input1, input2), (loc, scale), size)
        return op.Add(op.Mul(draw(op, loc), scale), loc)

    return lower


rule("_npi_uniform", limits=SAMPLES)(_uniform(in_front=False))
rule("_npi_uniform_n", limits=SAMPLES)(_uniform(in_front=True))
rule("_npi_normal", limits=SAMPLES)(_normal(in_front=False))
rule("_npi_normal_n", limits=SAMPLES)(_normal(in_front=True))
rule("_npi_gumbel", limits=SAMPLES)(_located(gumbels))
rule("_npi_logistic", limits=SAMPLES)(_located(logistics))


@rule("_npi_gamma", limits=SAMPLES)
def gamma(op, input1=None, input2=None, *, shape=None, scale=None, size=None, dtype="float32"):
    shape, scale = _parameters(op, (input1, input2), (shape, scale), size)
    return cast(op, op.Mul(gammas(op, shape), scale), named(dtype))


def _scaled(draw):
    def lower(op, input1=None, *, scale=1.0, size=None):
        (scale,) = _parameters(op, (input1,), (None if input1 is not None else scale,), size)
        return op.Mul(draw(op, scale), scale)

    return lower


rule("_npi_exponential", limits=SAMPLES)(_scaled(exponentials))
rule("_npi_rayleigh", limits=SAMPLES)(_scaled(lambda op, x: op.Sqrt(op.Mul(exponentials(op, x), 2.0))))


def _shaped(draw):
    def lower(op, input1=None, *, a=None, size=None):
        (a,) = _parameters(op, (input1,), (a,), size)
        return draw(op, a)

    return lower


def _weibull(op, a):
    return op.Pow(exponentials(op, a), op.Reciprocal(a))


def _pareto(op, a):
    return op.Sub(op.Exp(op.Div(exponentials(op, a), a)), 1.0)


def _power(op, a):
    return op.Pow(uniforms(op, a), op.Reciprocal(a))


rule("_npi_weibull", limits=SAMPLES)(_shaped(_weibull))
rule("_npi_pareto", limits=SAMPLES)(_shaped(_pareto))
rule("_npi_powerd", limits=SAMPLES)(_shaped(_power))


@rule("_npi_bernoulli", limits=SAMPLES)
def bernoulli(op, input1=None, *, prob=None, logit=None, size=None, dtype="float32", is_logit):
    (p,) = _parameters(op, (input1,), (logit if is_logit else prob,), size)
    chosen = op.Less(logistics(op, p), p) if is_logit else op.Less(uniforms(op, p), p)
    return cast(op, chosen, named(dtype))


@rule("_npi_choice", limits=SAMPLES)
def choice(op, input1=None, input2=None, *, a=None, size=None, replace=True, weighted=False):
    """Indices below `a`, or below the size of the first array; the last array has their probabilities."""
    arrays = [x for x in (input1, input2) if x is not None]
    count = op.size(arrays.pop(0), 0) if a is None else a
    shape = tuple(as_tuple(size))
    total = int(np.prod(shape, dtype=np.int64))
    scores = op.Log(cast(op, arrays[0], FLOAT)) if weighted else op.Expand(op.constant(np.float32(0)), op.dims([count]))
    if replace:
        rows = op.Expand(op.Unsqueeze(scores, [0]), np.array([total, 1]))
        chosen = op.ArgMax(op.Add(rows, gumbels(op, rows)), axis=1, keepdims=0)
    else:  # the largest scores with Gumbel noise are a sample without replacement
        chosen = op.TopK(op.Add(scores, gumbels(op, scores)), np.array([total]), outputs=2)[1]
    return op.Reshape(chosen, np.array(shape, np.int64))


@rule("_npi_multinomial", limits=SAMPLES)
def multinomial(op, a=None, *, n, pvals=None, size=None):
    """How often each class occurs in n draws."""
    probabilities = op.constant(np.array(as_tuple(pvals), np.float32)) if a is None else cast(op, a, FLOAT)
    shape, count = as_tuple(size), op.size(probabilities, 0)
    scores = op.Expand(op.Log(probabilities), np.array([*shape, n, 1]))
    chosen = op.ArgMax(op.Add(scores, gumbels(op, scores)), axis=-1, keepdims=1)
    classes = op.Range(op.constant(np.int64(0)), op.constant(np.int64(count)), op.constant(np.int64(1)))
    hits = op.Cast(op.Equal(chosen, classes), to=INT64)
    return op.ReduceSum(hits, [-2], keepdims=0)
