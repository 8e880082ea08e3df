"""Complex inputs and outputs become real tensors with a last axis of 2; complex operators in between."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from onnxbridge.errors import ConversionError
from onnxbridge.frontends.pytorch import frontend
from tests.frontends.pytorch.compare import check_against_pytorch, convert_to_onnx, onnxruntime_session, run_session

Z = torch.complex(torch.linspace(-2, 2, 12).reshape(3, 4), torch.linspace(1, -1.5, 12).reshape(3, 4))
W = torch.complex(torch.linspace(0.5, 1.5, 4), torch.linspace(-1, 1, 4))
X = torch.linspace(-3, 3, 24).reshape(2, 12)


class Apply(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def check(function, *inputs, rtol=1e-5):
    """Compare the converted function on real pairs with PyTorch's results as pairs, and with our runner."""
    source = Apply(function)
    model, proto = convert_to_onnx(source, inputs)
    pairs = [torch.view_as_real(x) if x.is_complex() else x for x in inputs]
    feeds = {v.name: p.numpy() for v, p in zip(model.graph.inputs, pairs, strict=True)}
    results = zip(
        run_session(onnxruntime_session(proto), feeds).values(),
        function(*inputs),
        frontend.runner(source)(feeds).values(),
        strict=True,
    )
    for i, (got, expected, eager) in enumerate(results):
        expected = (torch.view_as_real(expected.resolve_conj()) if expected.is_complex() else expected).numpy()
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape), i
        scale = float(np.abs(expected).max()) if expected.dtype.kind == "f" else 0
        np.testing.assert_allclose(got, expected, rtol, rtol * scale, err_msg=str(i))
        np.testing.assert_array_equal(eager, expected)


def test_arithmetic():
    check(lambda z, w: (
        z + w, z - 2 * w, z * w, z / w, z * 1j + 2, 1 / z, z.abs(), z.angle(), z.conj() * w, z.real * w.imag, z**2, torch.exp(z),
        torch.log(z), torch.sqrt(z), torch.tanh(z), z**w, z @ w, z @ z.mH, z.sum(0), z == z, torch.sgn(z), torch.cos(z),
    ), Z, W)  # fmt: skip


def test_data_movement():
    check(lambda z, w: (
        torch.cat([z, w[None]]), z[:, 1:].reshape(-1).flip(0), torch.where(z.real > 0, z, w), torch.view_as_real(z).sum(-1),
        torch.polar(z.abs(), z.angle()), torch.stack([z, z * w]), torch.complex(z.imag, z.real), z.mT.contiguous(),
        z.to(torch.complex128), torch.view_as_complex(torch.view_as_real(z) * 2), z.masked_fill(z.real > 0, 1j),
        torch.zeros_like(z) + w,
    ), Z, W)  # fmt: skip


def test_fourier_transforms():
    check(lambda x: (
        torch.fft.rfft(x), torch.fft.irfft(torch.fft.rfft(x)), torch.fft.fft(x, n=7), torch.fft.fft2(x, norm="ortho"),
        torch.fft.irfft(torch.fft.rfft(x), n=11), torch.fft.fftshift(x), torch.fft.ifft(torch.fft.fft(x)).real,
        torch.fft.hfft(x.to(torch.complex64)), torch.stft(x, 4, 2, window=torch.hann_window(4), return_complex=True),
        torch.stft(x, 5, 3, 4, window=torch.ones(4), return_complex=True, normalized=True, center=False).abs(),
    ), X)  # fmt: skip


def test_complex_parameter():
    class Filter(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.complex(torch.randn(7), torch.randn(7)))

        def forward(self, x):
            return torch.fft.irfft(torch.fft.rfft(x) * self.weight)

    check_against_pytorch(Filter(), (X,))


def test_dynamic_batch():
    class Halved(nn.Module):
        def forward(self, x):
            return torch.fft.irfft(torch.fft.rfft(x) * 0.5j)

    check_against_pytorch(Halved(), (X,), {"x": {0: "N"}}, [(torch.randn(5, 12),)])


def test_unsupported_complex_operator():
    with pytest.raises(ConversionError, match="complex::cumprod"):
        frontend.to_hub(Apply(lambda z: z.cumprod(0)), (Z,))
