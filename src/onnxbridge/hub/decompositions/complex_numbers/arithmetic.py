"""Arithmetic and elementary functions of complex numbers."""

from __future__ import annotations

import math
from typing import Any

from onnxbridge.hub.decompositions.complex_numbers.pairs import Complex


def is_negative(op: Any, x: Any) -> Any:
    """Whether a real tensor has a negative sign; true for -0, whose reciprocal is minus infinity."""
    return op.Or(op.Less(x, 0.0), op.Equal(op.Reciprocal(x), -math.inf))


def atan2(op: Any, y: Any, x: Any) -> Any:
    """The angle of the point (x, y) of real tensors, by quadrant; the sign of zeros counts."""

    def with_sign_of_y(size: Any) -> Any:
        return op.Where(is_negative(op, y), op.Neg(size), size)

    size = op.Atan(op.Div(op.Abs(y), op.Abs(x)))
    size = op.Where(op.And(op.Equal(x, 0.0), op.Equal(y, 0.0)), 0.0, size)
    size = op.Where(op.And(op.IsInf(x), op.IsInf(y)), math.pi / 4, size)
    return with_sign_of_y(op.Where(is_negative(op, x), op.Sub(math.pi, size), size))


def hypot(op: Any, x: Any, y: Any) -> Any:
    """The square root of x**2 + y**2 of real tensors, without overflow; as in C, infinity beside NaN is infinite."""
    a, b = op.Abs(x), op.Abs(y)
    large, small = op.Max(a, b), op.Min(a, b)
    ratio = op.Div(small, op.Where(op.Equal(large, 0.0), 1.0, large))
    infinite = op.Or(op.Equal(a, math.inf), op.Equal(b, math.inf))
    return op.Where(infinite, math.inf, op.Mul(large, op.Sqrt(op.Add(op.Mul(ratio, ratio), 1.0))))


def magnitude(op: Any, x: Any) -> Any:
    return hypot(op, x.real, x.imag)


def phase(op: Any, x: Any) -> Any:
    return atan2(op, x.imag, x.real)


def add_pairs(op: Any, a: Any, b: Any) -> Any:
    return Complex(op.Add(a.real, b.real), op.Add(a.imag, b.imag))


def subtract_pairs(op: Any, a: Any, b: Any) -> Any:
    return Complex(op.Sub(a.real, b.real), op.Sub(a.imag, b.imag))


def multiply_pairs(op: Any, a: Any, b: Any) -> Any:
    real = op.Sub(op.Mul(a.real, b.real), op.Mul(a.imag, b.imag))
    return Complex(real, op.Add(op.Mul(a.real, b.imag), op.Mul(a.imag, b.real)))


def scale(op: Any, x: Any, factor: Any) -> Any:
    """x times a real number or tensor."""
    return Complex(op.Mul(x.real, factor), op.Mul(x.imag, factor))


def divide(op: Any, a: Any, b: Any) -> Any:
    """a / b; the divisor is scaled first so that its square neither overflows nor underflows."""
    size = op.Max(op.Abs(b.real), op.Abs(b.imag))
    size = op.Where(op.Equal(size, 0.0), 1.0, size)
    c, d = op.Div(b.real, size), op.Div(b.imag, size)
    square = op.Mul(op.Add(op.Mul(c, c), op.Mul(d, d)), size)
    y = multiply_pairs(op, a, Complex(c, op.Neg(d)))
    return Complex(op.Div(y.real, square), op.Div(y.imag, square))


def exponential(op: Any, x: Any) -> Any:
    return scale(op, Complex(op.Cos(x.imag), op.Sin(x.imag)), op.Exp(x.real))


def logarithm(op: Any, x: Any) -> Any:
    return Complex(op.Log(magnitude(op, x)), phase(op, x))


def square_root(op: Any, x: Any) -> Any:
    """The square root; computes the larger part first to avoid cancellation."""
    size = magnitude(op, x)
    large = op.Sqrt(op.Mul(op.Add(size, op.Abs(x.real)), 0.5))
    small = op.Div(op.Abs(x.imag), op.Mul(op.Where(op.Equal(large, 0.0), 1.0, large), 2.0))
    left = op.Less(x.real, 0.0)
    real, imag = op.Where(left, small, large), op.Where(left, large, small)
    return Complex(real, op.Where(is_negative(op, x.imag), op.Neg(imag), imag))  # also for -0, on the branch cut


def sine(op: Any, x: Any, hyperbolic: Any) -> Any:
    a, b = (x.imag, x.real) if hyperbolic else (x.real, x.imag)
    up, down = op.Exp(b), op.Exp(op.Neg(b))
    cosh, sinh = op.Mul(op.Add(up, down), 0.5), op.Mul(op.Sub(up, down), 0.5)
    one, other = op.Mul(op.Sin(a), cosh), op.Mul(op.Cos(a), sinh)
    return Complex(other, one) if hyperbolic else Complex(one, other)


def cosine(op: Any, x: Any, hyperbolic: Any) -> Any:
    a, b = (x.imag, x.real) if hyperbolic else (x.real, x.imag)
    up, down = op.Exp(b), op.Exp(op.Neg(b))
    cosh, sinh = op.Mul(op.Add(up, down), 0.5), op.Mul(op.Sub(up, down), 0.5)
    imag = op.Mul(op.Sin(a), sinh)
    return Complex(op.Mul(op.Cos(a), cosh), imag if hyperbolic else op.Neg(imag))
