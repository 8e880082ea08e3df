"""Special functions, computed in double precision."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.frontends.tensorflow.sizes import known_array
from onnxbridge.hub.decompositions.special import bessel, error_functions, gamma
from onnxbridge.hub.ir.values import cast

D = ir.DataType


def _in_float64(op, function, *operands):
    return cast(op, function(op, *(cast(op, x, D.DOUBLE) for x in operands)), operands[0].dtype)


def _unary(name, function, **options):
    @rule(name)
    def unary(op, x):
        return _in_float64(op, lambda op, x: function(op, x, **options), x)


_unary("Lgamma", gamma.log_gamma)
_unary("Digamma", gamma.digamma)
_unary("Erfinv", error_functions.erfinv)
_unary("Ndtri", error_functions.ndtri)
for _n in (0, 1):
    _unary(f"BesselJ{_n}", bessel.bessel_j, order=_n)
    _unary(f"BesselY{_n}", bessel.bessel_y, order=_n)
    _unary(f"BesselI{_n}", bessel.bessel_i, order=_n)
    _unary(f"BesselI{_n}e", bessel.bessel_ie, order=_n)
    _unary(f"BesselK{_n}", bessel.bessel_k, order=_n, scaled=False)
    _unary(f"BesselK{_n}e", bessel.bessel_k, order=_n, scaled=True)


def _incomplete(name, upper):
    @rule(name)
    def incomplete(op, a, x):
        return _in_float64(op, lambda op, a, x: gamma.incomplete_gamma(op, a, x, upper=upper), a, x)


_incomplete("Igamma", False)
_incomplete("Igammac", True)


@rule("Zeta")
def zeta(op, x, q):
    return _in_float64(op, gamma.zeta, x, q)


@rule("Polygamma", limits="a constant order, the same for all elements")
def polygamma(op, a, x):
    orders = known_array(a)
    if orders is None or orders.size == 0 or not (orders == orders.flat[0]).all() or orders.flat[0] != int(orders.flat[0]):
        raise Unsupported("polygamma of an order that is not one constant integer")
    y = _in_float64(op, lambda op, x: gamma.polygamma(op, int(orders.flat[0]), x), x)
    return op.Expand(y, np.array(orders.shape, np.int64)) if orders.ndim else y
