"""Operators whose loops or windows depend on sizes, with every size dynamic: converted once, run at several sizes."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._decomp import decomposition_table
from torch.nn import functional as F

import onnxbridge
from onnxbridge.errors import ConversionError
from onnxbridge.frontends.pytorch.fx import decompose
from tests.frontends.pytorch.compare import check_against_pytorch

real = torch.view_as_real
CASES = {
    "fftn": (lambda x: real(torch.fft.fftn(x)), [(5, 6, 7), (4, 3, 9)]),
    "ifft2": (lambda x: real(torch.fft.ifft2(x)), [(5, 6, 7), (4, 3, 9)]),
    "irfft": (torch.fft.irfft, [(5, 6), (4, 9), (4, 2)]),
    "irfft2": (lambda x: torch.fft.irfft2(torch.fft.rfft2(x)), [(5, 6, 8), (4, 3, 10)]),
    "irfft2 of modes": (lambda x: torch.fft.irfft2(torch.fft.rfft2(x)[..., :3, :3], s=x.shape[-2:]), [(5, 6, 7), (4, 9, 6)]),
    "ifft2 of modes": (lambda x: real(torch.fft.ifft2(torch.fft.fft2(x)[..., :3, :3], s=x.shape[-2:])), [(5, 6, 7), (4, 9, 8)]),
    "fftn to sizes": (lambda x: real(torch.fft.fftn(x, s=(x.shape[1] + 1, 3), dim=(1, 2))), [(5, 6, 7), (4, 3, 9)]),
    "rfftn ortho": (lambda x: real(torch.fft.rfftn(x, s=(-1, x.shape[2] * 2), norm="ortho")), [(5, 6, 7), (4, 3, 9)]),
    "irfft ortho": (lambda x: torch.fft.irfft(torch.fft.rfft(x, norm="ortho"), norm="ortho"), [(5, 6), (4, 8)]),
    "hfft": (torch.fft.hfft, [(5, 6), (4, 9)]),
    "fftshift": (torch.fft.fftshift, [(5, 6), (4, 9), (3, 3)]),
    "roll": (lambda x: torch.roll(x, (1, -3), (0, 1)), [(5, 6), (4, 9), (2, 2)]),
    "roll all": (lambda x: torch.roll(x, 2), [(5, 6), (4, 9)]),
    "tensor_split": (lambda x: (*x.tensor_split(3, 0), *(x + 1).tensor_split(2, -1)), [(5, 6), (4, 9), (6, 4), (7, 7)]),
    "bucketize": (lambda x: torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])), [(5, 6), (4, 9), (0, 3)]),
    "max_pool1d": (lambda x: (F.max_pool1d(x, 2, 1), F.max_pool1d(x, 3, 2, 1, ceil_mode=True)), [(2, 3, 9), (1, 2, 5)]),
    "linspace": (lambda x: x * torch.linspace(-1, x.shape[1] - 0.5, steps=x.shape[1]), [(2, 9), (4, 4), (3, 2)]),
    "linspace of integers": (lambda x: x + torch.linspace(-3, 10, x.shape[1], dtype=torch.int32), [(2, 9), (4, 4), (3, 12)]),
    "cov": (lambda x: (x.cov(), x.cov(correction=0, aweights=x[0].abs()), x.corrcoef(), x[1].cov()), [(5, 6), (4, 9), (7, 5)]),
    "diagonal above": (lambda x: torch.diagonal(x, 1), [(5, 6), (4, 9), (9, 3)]),
    "diagonal below": (lambda x: torch.diagonal(x, -2, -2, -1), [(2, 5, 6), (3, 9, 3)]),
    "channel_shuffle": (lambda x: F.channel_shuffle(x, 2), [(2, 6, 4, 4), (3, 8, 5, 3)]),
    "unfold": (lambda x: x.unfold(1, 3, 2), [(2, 9), (3, 12)]),
    "adaptive mean 1": (lambda x: F.adaptive_avg_pool1d(x, 3), [(2, 4, 7), (3, 2, 11), (2, 2, 2)]),
    "adaptive mean 2": (lambda x: F.adaptive_avg_pool2d(x, (7, 3)), [(2, 4, 9, 8), (3, 2, 31, 4), (2, 2, 5, 2)]),
    "adaptive mean 3": (lambda x: F.adaptive_avg_pool3d(x, (2, 3, 1)), [(2, 4, 5, 6, 7), (2, 3, 7, 9, 4)]),
    "adaptive max 1": (lambda x: F.adaptive_max_pool1d(x, 3, return_indices=True), [(2, 4, 7), (3, 2, 11), (2, 2, 2)]),
    "adaptive max 2": (lambda x: F.adaptive_max_pool2d(x, (4, 3), return_indices=True), [(2, 4, 9, 8), (3, 2, 31, 4)]),
    "adaptive mean of a share": (lambda x: F.interpolate(x, scale_factor=0.5, mode="area"), [(2, 3, 8, 8), (1, 2, 5, 9)]),
    "adaptive mean beside": (lambda x: F.adaptive_avg_pool2d(x, (x.shape[2] // 2, 3)), [(2, 3, 8, 8), (1, 2, 5, 9)]),
    "instance_norm": (lambda x: F.instance_norm(x), [(2, 3, 8), (1, 5, 9)]),
    "group_norm": (lambda x: F.group_norm(x, 2), [(2, 4, 8), (1, 6, 9)]),
    "layer_norm": (lambda x: F.layer_norm(x, x.shape[1:]), [(2, 4, 8), (1, 6, 9)]),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 2), [(2, 3, 8, 8), (3, 2, 12, 6)]),
    "counted ceil": (lambda x: F.avg_pool2d(x, 2, 2, ceil_mode=True), [(2, 3, 8, 8), (1, 2, 5, 9)]),
    "running": (lambda x: (x.cumprod(1), x.logcumsumexp(0)), [(3, 5), (3, 9), (2, 2), (17, 1)]),
    "running extremes": (lambda x: (x.cummax(1), x.cummin(0)), [(3, 5), (3, 9), (2, 2), (17, 1)]),
    "any, all": (lambda x: (x.any(0), (x > 0).all(0), x.any(), x.all(), x.any(1)), [(3, 5), (2, 9), (0, 4)]),
    "diagonal_scatter": (lambda x: x.diagonal_scatter(x.new_ones(2), 1)[:3], [(3, 3), (4, 3), (2, 7)]),
    "adaptive max 3": (lambda x: F.adaptive_max_pool3d(x, (2, 3, 1)), [(2, 4, 5, 6, 7), (2, 3, 7, 9, 4)]),
}  # fmt: skip


def test_view_as_another_dtype():
    x = torch.randn(3, 4)
    check_against_pytorch(Function(lambda x: (x.view(torch.int32), (x.view(torch.int32) & 0x7FFFFFFF).view(torch.float32))), (x,))
    with pytest.raises(ConversionError, match="a view of FLOAT as UINT8, which has another bit width"):
        check_against_pytorch(Function(lambda x: x.view(torch.uint8)), (x,))


def test_floor_division_of_sizes(tmp_path):
    """Sizes are non-negative, so floor division needs no sign handling; the result is still a size in exported programs."""
    halved = Function(lambda x: x[:, : x.shape[1] // 3].sum(1) + torch.zeros((x.shape[1] * 2 + 1) // 4).sum())
    sizes = {"x": {0: "batch", 1: "n"}}
    result = onnxbridge.convert(halved, inputs=(torch.randn(2, 12),), dynamic=sizes)
    assert not {"Xor", "Less"} & {n.op_type for n in result.model.graph.node}
    onnxbridge.convert(result.model, "pytorch", output=tmp_path / "net.pt2")
    x = torch.randn(3, 7)
    torch.testing.assert_close(torch.export.load(tmp_path / "net.pt2").module()(x), halved(x))
    less = Function(lambda x: torch.zeros((x.shape[1] - 7) // 2 + 4) + x.sum())
    check_against_pytorch(less, (torch.randn(2, 12),), sizes, [(torch.randn(3, 4),)])


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@pytest.mark.parametrize("name", CASES)
def test_dynamic_size(name):
    function, shapes = CASES[name]
    first, *others = (torch.randn(shape, generator=torch.Generator().manual_seed(i)) for i, shape in enumerate(shapes))
    sizes = {"x": dict.fromkeys(range(first.dim()), torch.export.Dim.AUTO)}
    check_against_pytorch(Function(function), (first,), sizes, [(other,) for other in others], rtol=1e-5)


def test_a_decomposition_that_fixes_sizes_is_refused(monkeypatch):
    """Once PyTorch has fixed a size, decompositions that are tried later hold for that size only, too."""
    monkeypatch.setattr(decompose, "_table", lambda: dict(decomposition_table))
    function, (shape, _) = CASES["ifft2 of modes"]
    with pytest.raises(ConversionError, match="fft_ifft2"):
        onnxbridge.convert(Function(function), inputs=(torch.randn(shape),), dynamic={"x": {1: "h", 2: "w"}})


@torch.library.custom_op("onnxbridge_sizes::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return torch.fft.irfft(torch.fft.rfft(x, dim=-1) * 2, n=x.shape[-1], dim=-1)


@doubled.register_fake
def _like(x):
    return torch.empty_like(x)


def test_fft_in_custom_operator():
    sizes = {"x": {0: "batch", 1: "n"}}
    check_against_pytorch(Function(lambda x: doubled(x) + 1), (torch.randn(3, 6),), sizes, [(torch.randn(4, 9),)], rtol=1e-5)


class Few(nn.Module):
    def forward(self, x):
        return x * 2 if 3 < x.shape[0] < 20 else x


def test_verification_stays_in_the_valid_sizes():
    inputs, dynamic = (torch.randn(5, 3),), {"x": {0: "n"}}
    result = onnxbridge.convert(Few(), inputs=inputs, dynamic=dynamic)
    assert result.report.passed and result.notes[0].startswith("valid only for n=4..19")
    assert onnxbridge.verify(Few(), result.model, inputs, dynamic=dynamic).passed


def test_a_program_of_odd_sizes_only():
    class SecondHalf(nn.Module):
        def forward(self, x):
            return x.tensor_split(2, 1)[1]

    sizes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    program = torch.export.export(SecondHalf(), (torch.randn(3, 5),), dynamic_shapes={"x": sizes})
    assert onnxbridge.convert(program, to="onnx").report.agrees


class Counted(nn.Module):
    """`len` fixes a size in a trace; detectors such as D-FINE and RT-DETR use it for the size of a batch."""

    def forward(self, x):
        return x.new_ones(len(x), 2).cumsum(0), x.reshape(len(x), -1).sum(1)


def test_len_of_a_dynamic_size():
    check_against_pytorch(Counted(), (torch.randn(3, 4, 5),), {"x": {0: "n"}}, [(torch.randn(7, 4, 5),)])
