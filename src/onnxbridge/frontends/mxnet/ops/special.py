"""Special functions that ONNX does not have, by standard approximations."""

from __future__ import annotations

import math

import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.frontends.mxnet.ops.arithmetic import floating

DOUBLE = ir.DataType.DOUBLE
# Lanczos' approximation of the gamma function with g = 7, accurate to 15 digits
LANCZOS = (
    0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
    12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
)  # fmt: skip
# Giles' single precision approximation of the inverse error function: in the middle, and in the tails
MIDDLE = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
    0.246640727, 1.50140941,
)  # fmt: skip
TAILS = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
    1.00167406, 2.83297682,
)  # fmt: skip


def _log_gamma(op, x):
    """The logarithm of the gamma function for x >= 0.5, in double precision."""
    z = op.Sub(x, 1.0)
    total = op.Add(op.Div(LANCZOS[1], op.Add(z, 1.0)), LANCZOS[0])
    for i, c in enumerate(LANCZOS[2:], 2):
        total = op.Add(total, op.Div(c, op.Add(z, float(i))))
    t = op.Add(z, 7.5)
    power = op.Sub(op.Mul(op.Add(z, 0.5), op.Log(t)), t)
    return op.Add(op.Add(power, op.Log(total)), 0.5 * math.log(2 * math.pi))


def _reflected(op, x):
    """For x < 0.5, gamma(x) = pi / (sin(pi x) gamma(1 - x)): whether x < 0.5, the logarithm, the sine, and the poles."""
    low = op.Less(x, 0.5)
    log = _log_gamma(op, op.Where(low, op.Sub(1.0, x), x))
    sine = op.Sin(op.Mul(op.Sub(x, op.Mul(op.Floor(op.Div(x, 2.0)), 2.0)), math.pi))
    return low, log, sine, op.And(op.LessOrEqual(x, 0.0), op.Equal(x, op.Floor(x)))


@rule("gamma", "_npx_gamma")
def gamma(op, data):
    """Of integers it is an integer, a factorial."""
    if not data.dtype.is_floating_point():
        return op.Cast(op.Round(gamma(op, op.Cast(data, to=DOUBLE))), to=data.dtype)
    x = op.Cast(data, to=DOUBLE)
    low, log, sine, pole = _reflected(op, x)
    y = op.Where(low, op.Div(math.pi, op.Mul(op.Where(pole, 1.0, sine), op.Exp(log))), op.Exp(log))
    return op.Cast(op.Where(op.Equal(x, 0.0), op.Reciprocal(x), op.Where(pole, math.nan, y)), to=data.dtype)


@rule("gammaln", "_npx_gammaln")
@floating
def gammaln(op, data):
    x = op.Cast(data, to=DOUBLE)
    low, log, sine, pole = _reflected(op, x)
    below = op.Sub(op.Log(op.Div(math.pi, op.Abs(op.Where(pole, 1.0, sine)))), log)
    return op.Cast(op.Where(pole, math.inf, op.Where(low, below, log)), to=data.dtype)


@rule("erfinv", "_npx_erfinv", limits="float32")
def erfinv(op, data):
    if data.dtype != ir.DataType.FLOAT:
        raise Unsupported(f"erfinv of {data.dtype.name}", hint="cast to float32 first")
    w = op.Neg(op.Log(op.Mul(op.Sub(1.0, data), op.Add(data, 1.0))))
    middle = _polynomial(op, op.Sub(w, 2.5), MIDDLE)
    tails = _polynomial(op, op.Sub(op.Sqrt(w), 3.0), TAILS)
    y = op.Mul(op.Where(op.Less(w, 5.0), middle, tails), data)
    return op.Where(op.Equal(op.Abs(data), 1.0), op.Mul(data, math.inf), y)


def _polynomial(op, x, coefficients):
    """A polynomial by Horner's rule, highest power first."""
    y = op.Add(op.Mul(x, coefficients[0]), coefficients[1])
    for c in coefficients[2:]:
        y = op.Add(op.Mul(y, x), c)
    return y
