"""Trigonometric and hyperbolic functions, and the sigmoid, in exponentials, logarithms and roots."""

from __future__ import annotations

import numpy as np

from onnxbridge.hub.decompositions.standard import decompose


@decompose("Sigmoid")
def sigmoid(op, X):
    return op.Reciprocal(op.Add(op.Exp(op.Neg(X)), 1.0))


@decompose("Tan")
def tan(op, input):
    return op.Div(op.Sin(input), op.Cos(input))


@decompose("Asin")
def asin(op, input):
    return op.Atan(op.Div(input, op.Sqrt(op.Mul(op.Sub(1.0, input), op.Add(input, 1.0)))))


@decompose("Acos")
def acos(op, input):
    return op.Mul(op.Atan(op.Sqrt(op.Div(op.Sub(1.0, input), op.Add(input, 1.0)))), 2.0)


@decompose("Sinh")
def sinh(op, input):
    """For |x| < 1, where the exponentials cancel, tanh(x) / sqrt(1 - tanh(x)^2), which is exact for subnormals too."""
    t = op.Tanh(input)
    small = op.Div(t, op.Sqrt(op.Mul(op.Sub(1.0, t), op.Add(t, 1.0))))
    return op.Where(op.Less(op.Abs(input), 1.0), small, op.Sub(*_half_exponentials(op, input)))


@decompose("Cosh")
def cosh(op, input):
    return op.Add(*_half_exponentials(op, input))


def _half_exponentials(op, x):
    """exp(x) / 2 and exp(-x) / 2, each as a product of two factors because exp(x) alone may overflow."""
    return (op.Mul(op.Mul(exponential, 0.5), exponential) for exponential in (op.Exp(op.Mul(x, s)) for s in (0.5, -0.5)))


def _log1p(op, x):
    """log1p(x) to full precision: the rounding error of 1 + x is corrected by the factor x / ((1 + x) - 1)."""
    one_plus_x = op.Add(x, 1.0)
    rounded_x = op.Sub(one_plus_x, 1.0)
    degenerate = op.Or(op.Equal(rounded_x, 0.0), op.IsInf(one_plus_x))
    log = op.Log(one_plus_x)
    return op.Where(
        degenerate, op.Where(op.IsInf(one_plus_x), log, x), op.Mul(log, op.Div(x, op.Where(degenerate, 1.0, rounded_x)))
    )


@decompose("Asinh")
def asinh(op, input):
    """Of |x|, since the formula cancels for negative x; for large x it is log(2 |x|)."""
    magnitude = op.Abs(input)
    large = op.Greater(magnitude, 1e4 if input.dtype.name != "FLOAT16" else 100.0)
    square = op.Mul(op.Where(large, 1.0, magnitude), op.Where(large, 1.0, magnitude))
    near = _log1p(op, op.Add(magnitude, op.Div(square, op.Add(op.Sqrt(op.Add(square, 1.0)), 1.0))))
    far = op.Add(op.Log(op.Where(large, magnitude, 1.0)), float(np.log(2)))
    return op.Mul(op.Where(large, far, near), op.Sign(input))


@decompose("Acosh")
def acosh(op, input):
    x_minus_one = op.Sub(input, 1.0)
    return _log1p(op, op.Add(x_minus_one, op.Mul(op.Sqrt(x_minus_one), op.Sqrt(op.Add(input, 1.0)))))


@decompose("Atanh")
def atanh(op, input):
    return op.Mul(op.Sub(_log1p(op, input), _log1p(op, op.Neg(input))), 0.5)
