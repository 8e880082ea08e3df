"""Fourier transforms, and the bits of numbers."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow import sizes
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.frontends.tensorflow.sizes import vector
from onnxbridge.hub.decompositions.complex_numbers import fourier
from onnxbridge.hub.decompositions.complex_numbers.pairs import Complex
from onnxbridge.hub.ir.values import rank

D = ir.DataType


def _fit(op, x, axis, size):
    """A real tensor cut or filled with zeros to a size along an axis."""
    n, old = rank(x), op.size(x, axis)
    if isinstance(old, int) and old == size:
        return x
    missing = sizes.maximum(op, sizes.subtract(op, size, old), 0)
    if not isinstance(missing, int) or missing:
        x = op.Pad(x, op.dims([missing if i == n + axis else 0 for i in range(2 * n)]))
    return x if isinstance(missing, int) and missing else op.Slice(x, [0], vector(op, size), [axis])


def _last_axes(x, count):
    n = rank(x)
    return list(range(n - count, n))



def _complex_rules(name, count, inverse):
    @rule(f"complex::{name}")
    def transform(op, input):
        axes = _last_axes(input.real, count)
        y = fourier.transform(op, input, axes, inverse=inverse)
        return fourier.divide_by_count(op, y, fourier.element_count(op, input, axes)) if inverse else y


def _real_rules(name, count):
    @rule(f"complex::{name}")
    def transform(op, input, fft_length, *, Tcomplex=D.COMPLEX64):
        axes = _last_axes(input, count)
        for axis, size in zip(axes, sizes.elements(op, fft_length, count), strict=True):
            input = _fit(op, input, axis, size)
        return fourier.real_transform(op, input, axes)


def _inverse_real_rules(name, count):
    @rule(f"complex::{name}")
    def transform(op, input, fft_length, *, Treal=D.FLOAT):
        axes, lengths = _last_axes(input.real, count), sizes.elements(op, fft_length, count)
        halves = [*lengths[:-1], sizes.add(op, sizes.divide(op, lengths[-1], 2), 1)]
        for axis, size in zip(axes, halves, strict=True):
            input = Complex(*(_fit(op, p, axis, size) for p in (input.real, input.imag)))
        y = fourier.inverse_real_transform(op, input, axes, lengths[-1])
        return fourier.divide_by_count(op, y, fourier.element_count(op, y, axes))


for _suffix, _count in (("", 1), ("2D", 2), ("3D", 3)):
    _complex_rules(f"FFT{_suffix}", _count, inverse=False)
    _complex_rules(f"IFFT{_suffix}", _count, inverse=True)
    _real_rules(f"RFFT{_suffix}", _count)
    _inverse_real_rules(f"IRFFT{_suffix}", _count)


def _bits(dtype):
    return {8: D.UINT8, 16: D.UINT16, 32: D.UINT32, 64: D.UINT64}[dtype.bitwidth]


@rule("Bitcast")
def bitcast(op, input, *, type):
    """Between widths, the last axis holds the parts of a number, the lowest first."""
    if D.BOOL in (input.dtype, type) or type is None:
        raise Unsupported("the bits of booleans")
    old, new = input.dtype.bitwidth, type.bitwidth
    if old == new:
        return op.BitCast(input, to=type)
    bits = op.Cast(op.BitCast(input, to=_bits(input.dtype)), to=D.UINT64)
    narrow = min(old, new)
    shifts = np.arange(max(old, new) // narrow, dtype=np.uint64) * np.uint64(narrow)
    if old > new:
        parts = op.BitShift(op.Unsqueeze(bits, [-1]), shifts, direction="RIGHT")
        parts = op.BitwiseAnd(parts, np.uint64((1 << narrow) - 1))
        return op.BitCast(op.Cast(parts, to=_bits(type)), to=type)
    parts = op.BitShift(bits, shifts, direction="LEFT")
    whole = op.Gather(parts, np.int64(0), axis=-1)
    for i in range(1, len(shifts)):
        whole = op.BitwiseOr(whole, op.Gather(parts, np.int64(i), axis=-1))
    return op.BitCast(op.Cast(whole, to=_bits(type)), to=type)
