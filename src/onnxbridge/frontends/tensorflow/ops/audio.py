"""Spectrograms of audio and their cepstral coefficients."""

import math

import numpy as np
import onnx_ir as ir

from onnxbridge.frontends.tensorflow import sizes
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.hub.decompositions.complex_numbers import fourier
from onnxbridge.hub.decompositions.standard.dynamic_axis import arange
from onnxbridge.hub.ir.values import static_shape
from onnxbridge.rules import Int

D = ir.DataType


@rule("AudioSpectrogram")
def audio_spectrogram(op, input, *, window_size, stride, magnitude_squared=False):
    """Of [samples, channels], as [channels, windows, frequencies]: Hann windows, filled with zeros up to a power of two."""
    length = 1 << (window_size - 1).bit_length()
    whole = sizes.subtract(op, op.size(input, 0), window_size)
    count = sizes.maximum(op, sizes.add(op, sizes.divide(op, whole, stride), 1), 0)
    starts = op.Mul(op.Unsqueeze(arange(op, count), [1]), stride)
    frames = op.Gather(op.Transpose(input, perm=[1, 0]), op.Add(starts, np.arange(window_size)), axis=1)
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window_size) / window_size)
    frames = op.Mul(op.Cast(frames, to=D.DOUBLE), hann)
    y = fourier.real_transform(op, op.Pad(frames, [0, 0, 0, 0, 0, length - window_size]), [2])
    power = op.Cast(op.Add(op.Mul(y.real, y.real), op.Mul(y.imag, y.imag)), to=D.FLOAT)
    return power if magnitude_squared else op.Sqrt(power)


def _mel(frequency):
    return 1127.0 * np.log1p(np.asarray(frequency, np.float64) / 700.0)


def _mel_filters(bins, sample_rate, channels, low, high):
    """The share of each frequency in each channel: triangles whose centers are equally spaced in mel."""
    spacing = (_mel(high) - _mel(low)) / (channels + 1)
    corners = _mel(low) + spacing * np.arange(channels + 2)
    step = 0.5 * sample_rate / (bins - 1)
    weights = np.zeros((bins, channels))
    for i in range(int(1.5 + low / step), min(int(high / step), bins - 1) + 1):
        band = min(int(np.searchsorted(corners[1:-1], _mel(i * step), side="left")), channels)
        share = (corners[band + 1] - _mel(i * step)) / (corners[band + 1] - corners[band])
        if band > 0:
            weights[i, band - 1] = share
        if band < channels:
            weights[i, band] = 1 - share
    return weights


@rule("Mfcc")
def mfcc(
    op, spectrogram, sample_rate: Int, *, upper_frequency_limit=4000.0, lower_frequency_limit=20.0,
    filterbank_channel_count=40, dct_coefficient_count=13,
):  # fmt: skip
    """The cosine transform of the logarithms of mel channels; the spectrogram holds squared magnitudes."""
    [bins], n = static_shape(spectrogram, [2]), filterbank_channel_count
    weights = _mel_filters(bins, sample_rate, n, lower_frequency_limit, upper_frequency_limit)
    mels = op.MatMul(op.Sqrt(op.Cast(spectrogram, to=D.DOUBLE)), weights)
    cosines = np.cos(np.pi / n * np.outer(np.arange(n) + 0.5, np.arange(dct_coefficient_count)))
    return op.Cast(op.MatMul(op.Log(op.Max(mels, 1e-12)), math.sqrt(2 / n) * cosines), to=D.FLOAT)
