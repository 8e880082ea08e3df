"""Fourier transforms as products with matrices of cosines and sines."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.adapters.shapes import known
from onnxbridge.hub.expand import expand
from onnxbridge.hub.expand.axis import along
from onnxbridge.rules import Int


def _waves(op, rows, columns, length, like):
    """cos and sin of 2 pi * row * column / length."""
    angle = 2 * np.pi * (np.outer(np.arange(rows), np.arange(columns)) % length) / length
    return (op.constant(v, dtype=like.dtype) for v in (np.cos(angle), np.sin(angle)))


def _transform(op, real, imaginary, length, inverse, onesided):
    """Both parts along the last axis, which is cut to `length` elements or goes on with zeros."""
    n = real.shape[-1]
    if not isinstance(n, int):
        raise Unsupported("a dynamic length")
    used = min(n, length // 2 + 1 if inverse and onesided else length)
    if used < n:
        real, imaginary = (v if v is None else op.Slice(v, [0], [used], [-1]) for v in (real, imaginary))
    if inverse and onesided:
        return _real_inverse(op, real, imaginary, used, length), None
    cos, sin = _waves(op, used, length // 2 + 1 if onesided else length, length, real)
    a, b = op.MatMul(real, cos), op.MatMul(real, sin)
    b = b if inverse else op.Neg(b)
    if imaginary is not None and not onesided:
        c, d = op.MatMul(imaginary, cos), op.MatMul(imaginary, sin)
        a, b = (op.Sub(a, d), op.Add(b, c)) if inverse else (op.Add(a, d), op.Add(b, c))
    return (op.Div(a, float(length)), op.Div(b, float(length))) if inverse else (a, b)


def _real_inverse(op, real, imaginary, used, length):
    """The real signal of half a spectrum, whose other half is its mirror image."""
    cos, sin = _waves(op, used, length, length, real)
    twice = np.array([[1.0 if k == 0 or 2 * k == length else 2.0] for k in range(used)]) / length
    weights = op.constant(twice, dtype=real.dtype)
    total = op.MatMul(real, op.Mul(cos, weights))
    return total if imaginary is None else op.Sub(total, op.MatMul(imaginary, op.Mul(sin, weights)))


def _parts(op, x):
    """The real and the imaginary part, None where there is none."""
    if x.shape is None or x.shape[-1] not in (1, 2):
        raise Unsupported("neither real nor complex numbers for certain")
    return op.Gather(x, 0, axis=-1), op.Gather(x, 1, axis=-1) if x.shape[-1] == 2 else None


def _joined(op, real, imaginary):
    real = op.Unsqueeze(real, [-1])
    return real if imaginary is None else op.Concat(real, op.Unsqueeze(imaginary, [-1]), axis=-1)


@expand("DFT")
def dft(op, input, dft_length: Int | None = None, axis=None, *, inverse=0, onesided=0):
    rank = len(input.shape)
    if axis is None:
        return _dft(op, input, dft_length, rank - 2, inverse, onesided)
    if onesided and known(axis) is None:
        raise Unsupported("a onesided transform along an axis that is only known when the model runs")
    return along(op, axis, rank, lambda a: _dft(op, input, dft_length, a, inverse, onesided), last=rank - 2)


def _dft(op, input, dft_length, axis, inverse, onesided):
    real, imaginary = _parts(op, input)
    rank = len(input.shape)
    n = input.shape[axis]
    length = dft_length or (n if not (inverse and onesided) else 2 * (n - 1))
    if not isinstance(length, int):
        raise Unsupported("a dynamic length")
    order = [d for d in range(rank - 1) if d != axis] + [axis]
    back = [order.index(d) for d in range(rank - 1)]
    moved = order != sorted(order)
    parts = [v if v is None or not moved else op.Transpose(v, perm=order) for v in (real, imaginary)]
    results = _transform(op, *parts, length, inverse, onesided)
    return _joined(op, *(v if v is None or not moved else op.Transpose(v, perm=back) for v in results))


@expand("STFT")
def stft(op, signal, frame_step: Int, window=None, frame_length: Int | None = None, *, onesided=1):
    real, imaginary = _parts(op, signal)
    total = signal.shape[1]
    length = frame_length or (total if window is None else window.shape[0])
    if not isinstance(total, int) or not isinstance(length, int):
        raise Unsupported("a dynamic length")
    starts = np.arange((total - length) // frame_step + 1) * frame_step
    places = starts[:, None] + np.arange(length)

    def frames(v):
        taken = op.Gather(v, places, axis=1)
        return taken if window is None else op.Mul(taken, window)

    parts = frames(real), None if imaginary is None or onesided else frames(imaginary)
    return _joined(op, *_transform(op, *parts, length, False, onesided))
