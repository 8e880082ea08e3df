"""Trigonometric and hyperbolic functions, and the sigmoid, in exponentials, logarithms and roots."""

from __future__ import annotations

import numpy as np

from onnxbridge.hub.decompositions.standard import expand


@expand("Sigmoid")
def sigmoid(op, X):
    return op.Reciprocal(op.Add(op.Exp(op.Neg(X)), 1.0))


@expand("Tan")
def tan(op, input):
    return op.Div(op.Sin(input), op.Cos(input))


@expand("Asin")
def asin(op, input):
    return op.Atan(op.Div(input, op.Sqrt(op.Mul(op.Sub(1.0, input), op.Add(input, 1.0)))))


@expand("Acos")
def acos(op, input):
    return op.Mul(op.Atan(op.Sqrt(op.Div(op.Sub(1.0, input), op.Add(input, 1.0)))), 2.0)


@expand("Sinh")
def sinh(op, input):
    """Near zero the exponentials cancel; there it is the tangent over the secant, which keeps subnormal numbers too."""
    t = op.Tanh(input)
    small = op.Div(t, op.Sqrt(op.Mul(op.Sub(1.0, t), op.Add(t, 1.0))))
    return op.Where(op.Less(op.Abs(input), 1.0), small, op.Sub(*_halves(op, input)))


@expand("Cosh")
def cosh(op, input):
    return op.Add(*_halves(op, input))


def _halves(op, x):
    """Half of e to the x and to the -x, in two factors, since e to the x alone may be too large."""
    return (op.Mul(op.Mul(grown, 0.5), grown) for grown in (op.Exp(op.Mul(x, s)) for s in (0.5, -0.5)))


def _log_of_one_and(op, x):
    """log(1 + x) to the last digit: what rounding takes from 1 + x is put right by the quotient of x and what is left of it."""
    whole = op.Add(x, 1.0)
    left = op.Sub(whole, 1.0)
    lost = op.Or(op.Equal(left, 0.0), op.IsInf(whole))
    log = op.Log(whole)
    return op.Where(lost, op.Where(op.IsInf(whole), log, x), op.Mul(log, op.Div(x, op.Where(lost, 1.0, left))))


@expand("Asinh")
def asinh(op, input):
    """By the magnitude, since the formula cancels below zero; far out one beside the square is nothing."""
    size = op.Abs(input)
    large = op.Greater(size, 1e4 if input.dtype.name != "FLOAT16" else 100.0)
    square = op.Mul(op.Where(large, 1.0, size), op.Where(large, 1.0, size))
    near = _log_of_one_and(op, op.Add(size, op.Div(square, op.Add(op.Sqrt(op.Add(square, 1.0)), 1.0))))
    far = op.Add(op.Log(op.Where(large, size, 1.0)), float(np.log(2)))
    return op.Mul(op.Where(large, far, near), op.Sign(input))


@expand("Acosh")
def acosh(op, input):
    beyond = op.Sub(input, 1.0)
    return _log_of_one_and(op, op.Add(beyond, op.Mul(op.Sqrt(beyond), op.Sqrt(op.Add(input, 1.0)))))


@expand("Atanh")
def atanh(op, input):
    return op.Mul(op.Sub(_log_of_one_and(op, input), _log_of_one_and(op, op.Neg(input))), 0.5)
