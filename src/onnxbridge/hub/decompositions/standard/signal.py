"""DFT and STFT as matrix products with cosines and sines, and MelWeightMatrix."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.standard import decompose
from onnxbridge.hub.decompositions.standard.dynamic_axis import along, arange, scalar
from onnxbridge.hub.ir.values import rank
from onnxbridge.hub.opset.adapters.signal import along_computed
from onnxbridge.hub.opset.known_values import known

_DOUBLE = ir.DataType.DOUBLE


def _cos_sin(op, rows, columns, length, dtype):
    """The cosine and sine matrices of 2 pi * row * column / length; rows from `length` on are zero."""
    if all(isinstance(n, int) for n in (rows, columns, length)):
        phase = np.outer(np.arange(rows), np.arange(columns)) % length
        inside = np.arange(rows)[:, None] < length
        return [op.constant(np.where(inside, f(2 * np.pi * phase / length), 0), dtype=dtype) for f in (np.cos, np.sin)]
    row, column = op.Unsqueeze(arange(op, rows), [1]), op.Unsqueeze(arange(op, columns), [0])
    phase = op.Mod(op.Mul(row, column), scalar(op, length))
    angle = op.Mul(op.Div(op.Cast(phase, to=_DOUBLE), scalar(op, length, _DOUBLE)), 2 * np.pi)
    inside = op.Cast(op.Less(row, scalar(op, length)), to=dtype)
    return [op.Mul(op.Cast(f(angle), to=dtype), inside) for f in (op.Cos, op.Sin)]


def _onesided_length(op, length):
    """The number of non-redundant elements of the spectrum of a real signal: length // 2 + 1."""
    return length // 2 + 1 if isinstance(length, int) else op.Add(op.Div(length, np.int64(2)), np.int64(1))


def _transform(op, real, imaginary, length, inverse, onesided):
    """Transforms the last axis, truncated or zero-padded to `length`; returns the real and imaginary parts."""
    n = op.size(real, -1)
    if isinstance(n, int) and isinstance(length, int):
        used = min(n, _onesided_length(op, length) if inverse and onesided else length)
        if used < n:
            real, imaginary = (v if v is None else op.Slice(v, [0], [used], [-1]) for v in (real, imaginary))
            n = used
    if inverse and onesided:
        return _real_inverse(op, real, imaginary, n, length), None
    cos, sin = _cos_sin(op, n, _onesided_length(op, length) if onesided else length, length, real.dtype)
    a, b = op.MatMul(real, cos), op.MatMul(real, sin)
    b = b if inverse else op.Neg(b)
    if imaginary is not None and not onesided:
        c, d = op.MatMul(imaginary, cos), op.MatMul(imaginary, sin)
        a, b = (op.Sub(a, d), op.Add(b, c)) if inverse else (op.Add(a, d), op.Add(b, c))
    count = scalar(op, length, real.dtype)
    return (op.Div(a, count), op.Div(b, count)) if inverse else (a, b)


def _real_inverse(op, real, imaginary, used, length):
    """The real signal of a one-sided spectrum."""
    cos, sin = _cos_sin(op, used, length, length, real.dtype)
    at, length_scalar = arange(op, used), scalar(op, length)
    unpaired = op.Or(op.Equal(at, np.int64(0)), op.Equal(op.Mul(at, np.int64(2)), length_scalar))
    multiplicity = op.Where(unpaired, op.constant(1, dtype=real.dtype), op.constant(2, dtype=real.dtype))
    multiplicity = op.Where(op.LessOrEqual(op.Mul(at, np.int64(2)), length_scalar), multiplicity, 0.0)
    weights = op.Unsqueeze(op.Div(multiplicity, scalar(op, length, real.dtype)), [1])
    total = op.MatMul(real, op.Mul(cos, weights))
    return total if imaginary is None else op.Sub(total, op.MatMul(imaginary, op.Mul(sin, weights)))


def _parts(op, x):
    """The real and the imaginary part; None for the latter if the input is real."""
    if x.shape is None or x.shape[-1] not in (1, 2):
        raise Unsupported("the last axis must be 1 (real) or 2 (complex)")
    return op.Gather(x, 0, axis=-1), op.Gather(x, 1, axis=-1) if x.shape[-1] == 2 else None


def _join_complex(op, real, imaginary):
    real = op.Unsqueeze(real, [-1])
    return real if imaginary is None else op.Concat(real, op.Unsqueeze(imaginary, [-1]), axis=-1)


def _static_or_scalar(op, value):
    """A length as an integer if constant, else as a scalar value; None if absent."""
    if value is None:
        return None
    found = known(value)
    return int(found.reshape(())) if found is not None else op.Reshape(op.Cast(value, to=7), np.zeros(0, np.int64))


@decompose("DFT")
def dft(op, input, dft_length=None, axis=None, *, inverse=0, onesided=0):
    length = _static_or_scalar(op, dft_length)
    if axis is None:
        return _dft(op, input, length, rank(input) - 2, inverse, onesided)
    if onesided and known(axis) is None:
        return along_computed(op, input, axis, lambda x: _dft(op, x, length, 1, inverse, onesided))
    return along(op, axis, rank(input), lambda a: _dft(op, input, length, a, inverse, onesided), last=rank(input) - 2)


def _dft(op, input, length, axis, inverse, onesided):
    real, imaginary = _parts(op, input)
    n = op.size(input, axis)
    if length is None and inverse and onesided:
        length = 2 * (n - 1) if isinstance(n, int) else op.Mul(op.Sub(n, np.int64(1)), np.int64(2))
    length = n if length is None else length
    order = [d for d in range(rank(input) - 1) if d != axis] + [axis]
    back = [order.index(d) for d in range(rank(input) - 1)]
    moved = order != sorted(order)
    parts = [v if v is None or not moved else op.Transpose(v, perm=order) for v in (real, imaginary)]
    results = _transform(op, *parts, length, inverse, onesided)
    return _join_complex(op, *(v if v is None or not moved else op.Transpose(v, perm=back) for v in results))


@decompose("STFT")
def stft(op, signal, frame_step, window=None, frame_length=None, *, onesided=1):
    real, imaginary = _parts(op, signal)
    total, step, length = op.size(signal, 1), _static_or_scalar(op, frame_step), _static_or_scalar(op, frame_length)
    if length is None:
        length = total if window is None else op.size(window, 0)
    if all(isinstance(n, int) for n in (total, step, length)):
        at = op.constant((np.arange((total - length) // step + 1) * step)[:, None] + np.arange(length))
    else:
        step = scalar(op, step)
        count = op.Add(op.Div(op.Sub(scalar(op, total), scalar(op, length)), step), np.int64(1))
        at = op.Add(op.Unsqueeze(op.Mul(arange(op, count), step), [1]), arange(op, length))

    def frames(v):
        framed = op.Gather(v, at, axis=1)
        return framed if window is None else op.Mul(framed, window)

    parts = frames(real), None if imaginary is None or onesided else frames(imaginary)
    return _join_complex(op, *_transform(op, *parts, length, False, onesided))


@decompose("MelWeightMatrix")
def mel_weight_matrix(op, num_mel_bins, dft_length, sample_rate, lower_edge_hertz, upper_edge_hertz, *, output_datatype=1):
    """A triangular filter for each mel band over the bins of a spectrum; a band of width zero is a single 1."""
    scalars = (num_mel_bins, dft_length, sample_rate, lower_edge_hertz, upper_edge_hertz)
    bands, length, rate, *edges = (op.Cast(op.Reshape(v, np.zeros(0, np.int64)), to=_DOUBLE) for v in scalars)
    scale = 2595 / np.log(10)
    low, high = (op.Mul(op.Log(op.Add(op.Div(hertz, 700.0), 1.0)), scale) for hertz in edges)
    count = op.Add(bands, 2.0)
    steps = op.Cast(op.Range(np.int64(0), op.Cast(count, to=7), np.int64(1)), to=_DOUBLE)
    mels = op.Add(op.Mul(steps, op.Div(op.Sub(high, low), count)), low)
    hertz = op.Mul(op.Sub(op.Exp(op.Div(mels, scale)), 1.0), 700.0)
    bins = op.Floor(op.Div(op.Mul(hertz, op.Add(length, 1.0)), rate))
    last = np.iinfo(np.int64).max
    start, center, end = (op.Slice(bins, [i], [i - 2 if i < 2 else last], [0]) for i in range(3))
    half = op.Floor(op.Div(length, 2.0))
    at = op.Unsqueeze(op.Cast(op.Range(np.int64(0), op.Add(op.Cast(half, to=7), np.int64(1)), np.int64(1)), to=_DOUBLE), [1])
    rise, fall = op.Sub(center, start), op.Sub(end, center)
    rising = op.Where(op.Equal(rise, 0.0), 1.0, op.Div(op.Sub(at, start), op.Max(rise, 1.0)))
    rising = op.Where(op.And(op.GreaterOrEqual(at, start), op.LessOrEqual(at, center)), rising, 0.0)
    falling = op.Div(op.Sub(end, at), op.Max(fall, 1.0))
    falling = op.Where(op.And(op.Greater(at, center), op.Less(at, end)), falling, 0.0)
    return op.Cast(op.Add(rising, falling), to=output_datatype)
