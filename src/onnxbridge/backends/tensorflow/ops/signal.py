"""Fourier transforms."""

from __future__ import annotations

import tensorflow as tf

from onnxbridge.backends.tensorflow.ops import rule
from onnxbridge.backends.tensorflow.sizes import known, rank


def _complex(x):
    real = x[..., 0]
    return tf.complex(real, x[..., 1] if x.shape[-1] == 2 else tf.zeros_like(real))


def _parts(x):
    return tf.stack([tf.math.real(x), tf.math.imag(x)], -1)


@rule("DFT")
def dft(input, dft_length=None, axis=None, *, inverse=0, onesided=0):
    """Computed in float64, so that cancellation is exact; TensorFlow transforms the last axis, so the axis is moved there."""
    signals = rank(input) - 1
    axis = -2 if axis is None else tf.reshape(axis, [])
    axis = tf.cast(tf.where(axis < 0, axis + rank(input), axis), tf.int32)
    order = tf.tensor_scatter_nd_update(tf.range(signals + 1), [[axis], [signals - 1]], [signals - 1, axis])
    last = tf.transpose(tf.cast(input, tf.float64), order)
    last = tf.ensure_shape(last, [None] * signals + [input.shape[-1]])
    if inverse and onesided:
        length = (tf.shape(last)[-2] - 1) * 2 if dft_length is None else tf.cast(tf.reshape(dft_length, []), tf.int32)
        found = tf.signal.irfft(_complex(last), length[None])[..., None]
    else:
        if dft_length is not None:
            last = _of_length(last, tf.cast(tf.reshape(dft_length, []), tf.int32))
        if onesided:
            found = _parts(tf.signal.rfft(last[..., 0]))
        else:
            found = _parts((tf.signal.ifft if inverse else tf.signal.fft)(_complex(last)))
    return tf.cast(tf.transpose(found, order), input.dtype)


def _of_length(last, length):
    """Crop or zero-pad along the second-to-last axis."""
    cut = last[..., :length, :]
    pads = [[0, 0]] * (rank(last) - 2) + [[0, length - tf.shape(cut)[-2]], [0, 0]]
    return tf.pad(cut, pads)


@rule("STFT")
def stft(signal, frame_step, window=None, frame_length=None, *, onesided=1):
    length = known(frame_length)
    length = window.shape[0] if length is None else tf.reshape(frame_length, []) if isinstance(length, tf.Tensor) else length[0]
    frames = tf.signal.frame(signal, tf.cast(length, tf.int32), tf.cast(tf.reshape(frame_step, []), tf.int32), axis=1)
    if window is not None:
        frames = frames * (window[:, None] if rank(signal) == 3 else window)
    if rank(signal) == 2:
        frames = frames[..., None]
    return _parts(tf.signal.rfft(frames[..., 0]) if onesided else tf.signal.fft(_complex(frames)))
