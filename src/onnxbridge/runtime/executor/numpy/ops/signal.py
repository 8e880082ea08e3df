"""Fourier transforms, windows and the mel scale. The last axis of a signal holds its real and imaginary part."""

from __future__ import annotations

import numpy as np

from onnxbridge.hub.io.resource_limits import claim
from onnxbridge.rules import Float, Int
from onnxbridge.runtime.executor.numpy.dtypes import FLOAT, dtype_of, widened
from onnxbridge.runtime.executor.numpy.ops import rule


def _complex(x):
    return x[..., 0] + 1j * x[..., 1] if x.shape[-1] == 2 else x[..., 0]


def _parts(y, dtype):
    return np.stack((y.real, y.imag), -1).astype(dtype)


@rule("DFT")
@widened
def dft(input, dft_length: Int | None = None, axis: Int = -2, *, inverse=0, onesided=0):
    x = _complex(input)
    axis = axis % input.ndim
    if dft_length is not None:
        claim([dft_length if d == axis else n for d, n in enumerate(input.shape)], np.complex128)
    if inverse and onesided:
        return np.fft.irfft(x, dft_length, axis)[..., None].astype(input.dtype)
    if onesided:
        return _parts(np.fft.rfft(x.real, dft_length, axis), input.dtype)
    return _parts((np.fft.ifft if inverse else np.fft.fft)(x, dft_length, axis), input.dtype)


@rule("STFT")
@widened
def stft(signal, frame_step: Int, window=None, frame_length: Int | None = None, *, onesided=1):
    x = _complex(signal)
    length = frame_length or (x.shape[1] if window is None else window.shape[0])
    starts = np.arange((x.shape[1] - length) // frame_step + 1) * frame_step
    claim((x.shape[0], max(1, len(starts)), length), np.complex128)
    frames = x[:, starts[:, None] + np.arange(length)]
    if window is not None:
        frames = frames * window
    if onesided:
        return _parts(np.fft.rfft(frames.real, axis=-1), signal.dtype)
    return _parts(np.fft.fft(frames, axis=-1), signal.dtype)


def _cosine_window(size, periodic, output_datatype, *coefficients):
    """A sum of cosines with alternating signs; a symmetric window of size 1 is 0 / 0 by definition."""
    claim([size], np.float64)
    angle = np.arange(size) * 2 * np.pi / np.float64(size if periodic else size - 1)
    return sum((-1) ** k * c * np.cos(k * angle) for k, c in enumerate(coefficients)).astype(dtype_of(output_datatype))


@rule("HannWindow")
def hann_window(size: Int, *, output_datatype=FLOAT, periodic=1):
    return _cosine_window(size, periodic, output_datatype, 0.5, 0.5)


@rule("HammingWindow")
def hamming_window(size: Int, *, output_datatype=FLOAT, periodic=1):
    return _cosine_window(size, periodic, output_datatype, 25 / 46, 21 / 46)


@rule("BlackmanWindow")
def blackman_window(size: Int, *, output_datatype=FLOAT, periodic=1):
    return _cosine_window(size, periodic, output_datatype, 0.42, 0.5, 0.08)


@rule("MelWeightMatrix")
def mel_weight_matrix(
    num_mel_bins: Int,
    dft_length: Int,
    sample_rate: Int,
    lower_edge_hertz: Float,
    upper_edge_hertz: Float,
    *,
    output_datatype=FLOAT,
):
    """A triangle for each mel band, over the bins of a spectrum."""
    claim((dft_length // 2 + 1, num_mel_bins), np.float64)
    low, high = (2595 * np.log10(1 + hertz / 700) for hertz in (lower_edge_hertz, upper_edge_hertz))
    mels = np.arange(num_mel_bins + 2) * ((high - low) / (num_mel_bins + 2)) + low
    bins = ((dft_length + 1) * 700 * (10 ** (mels / 2595) - 1) // sample_rate).astype(np.int64)
    start, centre, end = bins[:-2], bins[1:-1], bins[2:]
    j = np.arange(dft_length // 2 + 1)[:, None]
    rising = np.where((j >= start) & (j <= centre), np.where(centre == start, 1, (j - start) / np.maximum(centre - start, 1)), 0)
    falling = np.where((j > centre) & (j < end), (end - j) / np.maximum(end - centre, 1), 0)
    return (rising + falling).astype(dtype_of(output_datatype))
