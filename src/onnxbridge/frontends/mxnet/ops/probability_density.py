"""Probability densities of samples; the dimensions of the parameters are the first ones of the samples."""

from __future__ import annotations

import math

from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.frontends.mxnet.ops.special import gammaln
from onnxbridge.hub.ir.values import rank


def _wide(op, parameter, sample):
    missing = rank(sample) - rank(parameter)
    return op.Unsqueeze(parameter, list(range(rank(parameter), rank(parameter) + missing))) if missing else parameter


def _density(log, is_log, op):
    return log if is_log else op.Exp(log)


@rule("_random_pdf_uniform", "random_pdf_uniform")
def random_pdf_uniform(op, sample, low, high, *, is_log=False):
    """MXNet does not look whether a sample is in the range."""
    width = op.Sub(_wide(op, high, sample), _wide(op, low, sample))
    return _density(op.Expand(op.Neg(op.Log(width)), op.Shape(sample)), is_log, op)


@rule("_random_pdf_normal", "random_pdf_normal")
def random_pdf_normal(op, sample, mu, sigma, *, is_log=False):
    sigma = _wide(op, sigma, sample)
    gap = op.Div(op.Sub(sample, _wide(op, mu, sample)), sigma)
    return _density(op.Sub(op.Mul(op.Mul(gap, gap), -0.5), op.Log(op.Mul(sigma, math.sqrt(2 * math.pi)))), is_log, op)


@rule("_random_pdf_gamma", "random_pdf_gamma")
def random_pdf_gamma(op, sample, alpha, beta, *, is_log=False):
    """`beta` is the rate."""
    alpha, beta = _wide(op, alpha, sample), _wide(op, beta, sample)
    log = op.Add(op.Mul(alpha, op.Log(beta)), op.Mul(op.Sub(alpha, 1.0), op.Log(sample)))
    return _density(op.Sub(op.Sub(log, op.Mul(beta, sample)), gammaln(op, alpha)), is_log, op)


@rule("_random_pdf_exponential", "random_pdf_exponential")
def random_pdf_exponential(op, sample, lam, *, is_log=False):
    lam = _wide(op, lam, sample)
    return _density(op.Sub(op.Log(lam), op.Mul(lam, sample)), is_log, op)


@rule("_random_pdf_poisson", "random_pdf_poisson")
def random_pdf_poisson(op, sample, lam, *, is_log=False):
    lam = _wide(op, lam, sample)
    log = op.Sub(op.Sub(op.Mul(sample, op.Log(lam)), gammaln(op, op.Add(sample, 1.0))), lam)
    return _density(log, is_log, op)


def _negative_binomial(op, sample, k, p, is_log):
    ways = op.Sub(op.Sub(gammaln(op, op.Add(sample, k)), gammaln(op, op.Add(sample, 1.0))), gammaln(op, k))
    return _density(op.Add(op.Add(ways, op.Mul(k, op.Log(p))), op.Mul(sample, op.Log(op.Sub(1.0, p)))), is_log, op)


@rule("_random_pdf_negative_binomial", "random_pdf_negative_binomial")
def random_pdf_negative_binomial(op, sample, k, p, *, is_log=False):
    return _negative_binomial(op, sample, _wide(op, k, sample), _wide(op, p, sample), is_log)


@rule("_random_pdf_generalized_negative_binomial", "random_pdf_generalized_negative_binomial")
def random_pdf_generalized_negative_binomial(op, sample, mu, alpha, *, is_log=False):
    mu, alpha = _wide(op, mu, sample), _wide(op, alpha, sample)
    return _negative_binomial(op, sample, op.Reciprocal(alpha), op.Reciprocal(op.Add(op.Mul(mu, alpha), 1.0)), is_log)


@rule("_random_pdf_dirichlet", "random_pdf_dirichlet")
def random_pdf_dirichlet(op, sample, alpha, *, is_log=False):
    """The last dimension of both is that of the distribution."""
    wide = alpha
    if rank(sample) > rank(alpha):
        wide = op.Unsqueeze(alpha, list(range(rank(alpha) - 1, rank(sample) - 1)))
    total = op.ReduceSum(op.Mul(op.Sub(wide, 1.0), op.Log(sample)), [-1], keepdims=0)
    weights = op.Sub(
        op.ReduceSum(gammaln(op, wide), [-1], keepdims=0), gammaln(op, op.ReduceSum(wide, [-1], keepdims=0))
    )
    return _density(op.Sub(total, weights), is_log, op)
