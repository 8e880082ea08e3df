"""Special functions, by series and fits whose errors are below float32's rounding where it says so."""

import math

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.frontends.pytorch.ops.arithmetic import floor_divide
from onnxbridge.frontends.pytorch.promotion import cast, floating, together

D = ir.DataType
# Lanczos' approximation with g = 7 and nine terms, in double: relative error below 1e-14
_LANCZOS = (
    0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059, 12.507343278686905,
    -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
)  # fmt: skip
# Chebyshev fit of log(erfc(z) / t) + z * z in powers of t = 1 / (1 + z / 2)
_ERFC = (
    -1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807, -1.13520398, 1.48851587, -0.82215223, 0.17087277,
)  # fmt: skip


def _in_double(function):
    """A rule that computes in float64 and returns to the operand's dtype."""

    def lower(op, self):
        [x] = floating(op, self)
        return cast(op, function(op, cast(op, x, D.DOUBLE)), x.dtype)

    return lower


def _log_gamma(op, x):
    small = op.Less(x, 0.5)
    z = op.Sub(op.Where(small, op.Sub(1.0, x), x), 1.0)
    total = _LANCZOS[0]
    for i, c in enumerate(_LANCZOS[1:], 1):
        total = op.Add(op.Div(op.constant(np.float64(c)), op.Add(z, float(i))), total)
    t = op.Add(z, 7.5)
    upper = op.Add(op.Sub(op.Mul(op.Add(z, 0.5), op.Log(t)), t), op.Add(op.Log(total), 0.5 * math.log(2 * math.pi)))
    fraction = op.Sub(x, op.Floor(x))
    sine = op.Abs(op.Sin(op.Mul(fraction, math.pi)))
    reflected = op.Sub(op.Sub(math.log(math.pi), op.Log(sine)), upper)
    pole = op.And(op.LessOrEqual(x, 0.0), op.Equal(fraction, 0.0))
    result = op.Where(pole, math.inf, op.Where(small, reflected, upper))
    return op.Where(op.IsInf(x), math.inf, result)


rule("aten::lgamma", "aten::special_gammaln")(_in_double(_log_gamma))


@rule("aten::erfc", "aten::special_erfc")
def erfc(op, self):
    [x] = floating(op, self)
    if x.dtype == D.DOUBLE:
        raise Unsupported("erfc in double precision", "use float32")
    # 1 - erf(x) would lose every digit of the tail; the fit's relative error is below 1.2e-7 everywhere
    z = op.Abs(cast(op, x, D.DOUBLE))
    t = op.Div(1.0, op.Add(op.Mul(z, 0.5), 1.0))
    exponent = op.Mul(t, _ERFC[-1])
    for c in reversed(_ERFC[1:-1]):
        exponent = op.Mul(op.Add(exponent, c), t)
    y = op.Mul(t, op.Exp(op.Sub(op.Add(exponent, _ERFC[0]), op.Mul(z, z))))
    return cast(op, op.Where(op.Less(x, 0.0), op.Sub(2.0, y), y), x.dtype)


def _gcd(op, a, b):
    """Euclid's algorithm, all elements at once, until every remainder is 0."""

    def turn(iteration, condition, x, y):
        done = op.Equal(y, 0)
        rest = op.Mod(x, op.Where(done, 1, y))
        x, y = op.Where(done, x, y), op.Where(done, 0, rest)
        return _any(op, y), x, y

    zero = op.Mul(op.Add(a, b), 0)
    x, y = op.Add(op.Abs(a), zero), op.Add(op.Abs(b), zero)
    return op.Loop(None, _any(op, y), x, y, body=turn, outputs=2)[0]


def _any(op, y):
    flat = op.Cast(op.Not(op.Equal(op.reshape(y, [-1]), 0)), to=D.INT32)
    return op.Greater(op.ReduceSum(flat, [0], keepdims=0), 0)


@rule("aten::gcd")
def gcd(op, self, other):
    return _gcd(op, *together(op, self, other))


@rule("aten::lcm")
def lcm(op, self, other):
    a, b = together(op, self, other)
    common = op.Max(_gcd(op, a, b), 1)
    return op.Abs(op.Mul(floor_divide(op, a, common), b))


@rule("aten::copysign.Tensor", "aten::copysign.Scalar")
def copysign(op, self, other):
    a, b = floating(op, self, other)
    negative = op.Or(op.Less(b, 0.0), op.And(op.Equal(b, 0.0), op.Less(op.Reciprocal(b), 0.0)))
    size = op.Abs(a)
    return op.Where(negative, op.Neg(size), size)


@rule("aten::angle")
def angle(op, self):
    [x] = floating(op, self)
    return op.Where(op.IsNaN(x), x, op.Where(op.Less(x, 0.0), op.CastLike(np.float64(math.pi), x), op.CastLike(0.0, x)))


def _polynomial(first, step):
    """The rule of a family of polynomials by its recurrence, for a known whole degree."""

    def lower(op, x, n):
        if isinstance(n, ir.Value):
            raise Unsupported("a degree that is not a number")
        x = cast(op, x, D.FLOAT) if isinstance(x, ir.Value) and x.dtype not in (D.FLOAT, D.DOUBLE) else x
        n = int(n)
        if n < 0:
            return op.Mul(x, 0.0)
        before, now = op.Add(op.Mul(x, 0.0), 1.0), first(op, x)
        for k in range(1, n):
            before, now = now, step(op, x, k, now, before)
        return now if n else before

    return lower


def _twice(op, x, k, now, before):
    return op.Sub(op.Mul(op.Mul(x, 2.0), now), before)


def _shifted(first):
    def start(op, x):
        return first(op, op.Sub(op.Mul(x, 2.0), 1.0))

    def step(op, x, k, now, before):
        return _twice(op, op.Sub(op.Mul(x, 2.0), 1.0), k, now, before)

    return start, step


_CHEBYSHEV = {
    "t": lambda op, x: x, "u": lambda op, x: op.Mul(x, 2.0),
    "v": lambda op, x: op.Sub(op.Mul(x, 2.0), 1.0), "w": lambda op, x: op.Add(op.Mul(x, 2.0), 1.0),
}  # fmt: skip
for _kind, _first in _CHEBYSHEV.items():
    rule(f"aten::special_chebyshev_polynomial_{_kind}.n_scalar")(_polynomial(_first, _twice))
    rule(f"aten::special_shifted_chebyshev_polynomial_{_kind}.n_scalar")(_polynomial(*_shifted(_first)))
rule("aten::special_hermite_polynomial_h.n_scalar")(
    _polynomial(lambda op, x: op.Mul(x, 2.0), lambda op, x, k, p, q: op.Sub(op.Mul(op.Mul(x, 2.0), p), op.Mul(q, 2.0 * k)))
)
rule("aten::special_hermite_polynomial_he.n_scalar")(
    _polynomial(lambda op, x: x, lambda op, x, k, p, q: op.Sub(op.Mul(x, p), op.Mul(q, float(k))))
)
rule("aten::special_legendre_polynomial_p.n_scalar")(
    _polynomial(
        lambda op, x: x,
        lambda op, x, k, p, q: op.Div(op.Sub(op.Mul(op.Mul(x, 2.0 * k + 1), p), op.Mul(q, float(k))), k + 1.0),
    )
)
rule("aten::special_laguerre_polynomial_l.n_scalar")(
    _polynomial(
        lambda op, x: op.Sub(1.0, x),
        lambda op, x, k, p, q: op.Div(op.Sub(op.Mul(op.Sub(2.0 * k + 1, x), p), op.Mul(q, float(k))), k + 1.0),
    )
)
