"""Fourier transforms."""

from __future__ import annotations

import torch

from onnxbridge.backends.pytorch.ops import rule
from onnxbridge.backends.pytorch.trace.size_arithmetic import known_ints
from onnxbridge.backends.pytorch.trace.tracer import opaque_call


def _number(value):
    known = known_ints(value)
    return known[0] if isinstance(known, tuple) else value


@opaque_call
def transformed(input, length, axis, inverse, onesided):
    axis = int(axis)
    length = None if length is None else int(length)
    axis = axis + input.ndim if axis < 0 else axis
    if onesided and inverse:  # inverse of a onesided spectrum
        return torch.fft.irfft(torch.view_as_complex(input.contiguous()), length, axis).unsqueeze(-1)
    if onesided:
        return torch.view_as_real(torch.fft.rfft(input[..., 0], length, axis))
    wide = torch.complex(input[..., 0], torch.zeros_like(input[..., 0])) if input.shape[-1] == 1 else torch.view_as_complex(
        input.contiguous()
    )  # fmt: skip
    return torch.view_as_real((torch.fft.ifft if inverse else torch.fft.fft)(wide, length, axis))


@rule("DFT")
def dft(input, dft_length=None, axis=None, *, inverse=0, onesided=0):
    return transformed(input, _number(dft_length), -2 if axis is None else _number(axis), inverse, onesided)


@opaque_call
def short_time(signal, frame_step, window, frame_length, onesided):
    step = int(frame_step)
    length = int(frame_length) if frame_length is not None else window.shape[0]
    frames = signal.unfold(1, length, step)  # batch, channel (real, imaginary), or frames before it
    frames = frames.movedim(2, -1) if signal.ndim == 3 else frames.unsqueeze(-1)
    if window is not None:
        frames = frames * window[:, None]
    if onesided:
        return torch.view_as_real(torch.fft.rfft(frames[..., 0], dim=2))
    complex_frames = frames[..., 0] if frames.shape[-1] == 1 else torch.view_as_complex(frames.contiguous())
    return torch.view_as_real(torch.fft.fft(complex_frames, dim=2))


@rule("STFT")
def stft(signal, frame_step, window=None, frame_length=None, *, onesided=1):
    return short_time(signal, _number(frame_step), window, _number(frame_length), onesided)
