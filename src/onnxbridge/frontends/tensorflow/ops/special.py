"""Special functions, computed in double precision."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.frontends.tensorflow.sizes import known_array
from onnxbridge.hub.decompositions.special import bessel, error_functions, gamma, integrals
from onnxbridge.hub.ir.values import cast

D = ir.DataType


def _in_float64(op, function, *operands):
    return cast(op, function(op, *(cast(op, x, D.DOUBLE) for x in operands)), operands[0].dtype)


def _unary(name, function, **options):
    @rule(name)
    def unary(op, x):
        return _in_float64(op, lambda op, x: function(op, x, **options), x)


_unary("Lgamma", gamma.log_gamma)
_unary("Erfinv", error_functions.erfinv)
_unary("Ndtri", error_functions.ndtri)


# at poles and outside of their domains, TensorFlow's functions have limits or NaN of their own


def _digamma(op, x):
    return op.Where(op.Equal(x, 0.0), np.nan, gamma.digamma(op, x))


def _bessel_y(op, x, *, order):
    y = op.Where(op.Less(x, 0.0), -np.inf, bessel.bessel_y(op, x, order=order))
    return op.Where(op.Equal(x, 0.0), np.nan, y) if order else y


def _bessel_k(op, x, *, order, scaled):
    return op.Where(op.Less(x, 0.0), np.inf, bessel.bessel_k(op, x, order=order, scaled=scaled))


_unary("Digamma", _digamma)
_unary("Dawsn", integrals.dawson)
_unary("Expint", integrals.exponential_integral)
_unary("Spence", integrals.spence)
_unary("FresnelSin", integrals.fresnel, kind="sin")
_unary("FresnelCos", integrals.fresnel, kind="cos")
for _n in (0, 1):
    _unary(f"BesselJ{_n}", bessel.bessel_j, order=_n)
    _unary(f"BesselY{_n}", _bessel_y, order=_n)
    _unary(f"BesselI{_n}", bessel.bessel_i, order=_n)
    _unary(f"BesselI{_n}e", bessel.bessel_ie, order=_n)
    _unary(f"BesselK{_n}", _bessel_k, order=_n, scaled=False)
    _unary(f"BesselK{_n}e", _bessel_k, order=_n, scaled=True)


def _incomplete_gamma(op, a, x, *, upper):
    y = op.Where(op.LessOrEqual(a, 0.0), np.nan, gamma.incomplete_gamma(op, a, x, upper=upper))
    y = op.Where(op.And(op.IsInf(a), op.And(op.IsInf(x), op.Greater(op.Min(a, x), 0.0))), 0.0, y)
    return y if upper else op.Where(op.Equal(x, 0.0), 0.0, y)


def _zeta(op, x, q):
    """With an exponent that is not an integer, the sum has no value for q <= 0."""
    undefined = op.And(op.And(op.Greater(x, 1.0), op.LessOrEqual(q, 0.0)), op.Not(op.Equal(op.Floor(x), x)))
    return op.Where(undefined, np.nan, gamma.zeta(op, x, q))


def _binary(name, function, **options):
    @rule(name)
    def binary(op, a, x):
        return _in_float64(op, lambda op, a, x: function(op, a, x, **options), a, x)


_binary("Igamma", _incomplete_gamma, upper=False)
_binary("Igammac", _incomplete_gamma, upper=True)


@rule("Zeta")
def zeta(op, x, q):
    return _in_float64(op, _zeta, x, q)


@rule("Betainc")
def betainc(op, a, b, x):
    return _in_float64(op, integrals.incomplete_beta, a, b, x)


@rule("Polygamma", limits="a constant order, the same for all elements")
def polygamma(op, a, x):
    orders = known_array(a)
    if orders is None or orders.size == 0 or not (orders == orders.flat[0]).all() or orders.flat[0] != int(orders.flat[0]):
        raise Unsupported("polygamma of an order that is not one constant integer")
    y = _in_float64(op, lambda op, x: gamma.polygamma(op, int(orders.flat[0]), x), x)
    return op.Expand(y, np.array(orders.shape, np.int64)) if orders.ndim else y
