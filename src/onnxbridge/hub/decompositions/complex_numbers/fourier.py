"""Fourier transforms from ONNX's DFT along one axis. Axes are not negative; sizes may be dynamic."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.decompositions.complex_numbers import pairs
from onnxbridge.hub.decompositions.complex_numbers.arithmetic import scale
from onnxbridge.hub.decompositions.complex_numbers.pairs import Complex

D = ir.DataType


def element_count(op: Any, x: Any, axes: Sequence[int]) -> Any:
    """The number of elements along the axes of a complex or real tensor, as a float or a float64 value."""
    found = [x.shape[a] for a in axes]
    if all(isinstance(n, int) for n in found):
        return float(math.prod(found))
    total = op.constant(np.float64(1))
    for a in axes:
        n = op.size(x.real if isinstance(x, Complex) else x, a)
        total = op.Mul(total, op.Cast(n, to=D.DOUBLE) if isinstance(n, ir.Value) else float(n))
    return total


def divide_by_count(op: Any, x: Any, count: Any, power: float = 1.0) -> Any:
    """A complex or real tensor divided by a power of the count."""
    part: Any = (x.real if isinstance(x, Complex) else x).dtype
    if isinstance(count, float):
        factor = op.constant(np.asarray(count**-power, part.numpy()))
    else:
        factor = op.Cast(op.Reciprocal(op.Sqrt(count) if power == 0.5 else count), to=part)
    return scale(op, x, factor) if isinstance(x, Complex) else op.Mul(x, factor)


def transform(op: Any, x: Complex, axes: Sequence[int], *, inverse: bool = False) -> Complex:
    """The transform along the axes, without normalization in either direction."""
    pair = pairs.join(op, x)
    for axis in axes:
        pair = _in_double(op, pair, x.shape[axis], functools.partial(_dft, op, axis=axis, inverse=int(inverse)))
    y = pairs.split(op, pair)
    if inverse:  # ONNX's inverse divides by the count
        count = element_count(op, x, axes)
        y = divide_by_count(op, y, 1 / count if isinstance(count, float) else op.Reciprocal(count))
    return y


def _dft(op: Any, pair: Any, *, axis: int, **attributes: int) -> Any:
    return op.DFT(pair, None, np.int64(axis), **attributes)


def _in_double(op: Any, x: Any, size: Any, function: Callable[[Any], Any]) -> Any:
    """Compute a transform in float64 unless its size is a power of two: for others, runtimes lose precision in float32."""
    if x.dtype == D.DOUBLE or isinstance(size, int) and size & (size - 1) == 0:
        return function(x)
    return op.Cast(function(op.Cast(x, to=D.DOUBLE)), to=x.dtype)


def real_transform(op: Any, x: Any, axes: Sequence[int], *, onesided: bool = True) -> Complex:
    """The transform of a real tensor without normalization; the last of the axes has the frequencies up to half its size."""
    last = axes[-1]
    pair = _in_double(
        op, op.Unsqueeze(x, [-1]), x.shape[last], functools.partial(_dft, op, axis=last, onesided=int(onesided))
    )
    y = _zero_real_frequencies(op, pairs.split(op, pair), x.shape[last], last, onesided)
    return transform(op, y, axes[:-1]) if axes[:-1] else y


def _zero_real_frequencies(op: Any, y: Complex, size: Any, axis: int, onesided: bool) -> Complex:
    """Set the imaginary parts that are exactly 0 for a real signal (mean and Nyquist frequency): with rounding errors, their sign
    would decide between the angles pi and -pi."""
    if not isinstance(size, int):
        return y
    real = np.zeros(size // 2 + 1 if onesided else size, bool)
    real[[0, size // 2] if size % 2 == 0 else [0]] = True
    return Complex(y.real, op.Where(real.reshape(-1, *[1] * (len(y.shape) - 1 - axis)), 0.0, y.imag))


def inverse_real_transform(op: Any, x: Complex, axes: Sequence[int], size: Any) -> Any:
    """The real signal, `size` long on the last of the axes, that has these frequencies; without normalization.

    `size` is an integer or a scalar value; the frequencies are those up to half of it.
    """
    last = axes[-1]
    known = isinstance(size, int)
    half, middle = (size // 2 + 1, (size - 1) // 2) if known else (op.Add(op.Div(size, 2), 1), op.Div(op.Sub(size, 1), 2))
    x = transform(op, x, axes[:-1], inverse=True) if axes[:-1] else x
    x = Complex(*(op.Slice(p, [0], op.dims([half]), [last]) for p in (x.real, x.imag)))
    full = x
    if not known or size >= 3:  # the spectrum of a real signal is conjugate symmetric
        real, imag = (op.Slice(p, op.dims([middle]), [0], [last], [-1]) for p in (x.real, x.imag))
        full = Complex(op.Concat(x.real, real, axis=last), op.Concat(x.imag, op.Neg(imag), axis=last))
    return transform(op, full, [last], inverse=True).real
