"""Functions of complex numbers, writes into complex tensors, and complex matrices, compared with PyTorch."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.frontends.pytorch.compare import check_against_pytorch
from tests.frontends.pytorch.test_complex import check

GENERATOR = torch.Generator().manual_seed(0)
Z, W = (2 * torch.randn(3, 5, dtype=torch.complex64, generator=GENERATOR) for _ in range(2))
A, B = (torch.randn(2, 4, n, dtype=torch.complex64, generator=GENERATOR) for n in (4, 3))
CUT = torch.linspace(-3, 3, 13)
INDICES = torch.tensor([[0, 1, 2, 1, 0]])


@pytest.mark.filterwarnings("ignore")  # NumPy warns about divisions by 0, which PyTorch does too
@pytest.mark.parametrize("name", ["asin", "acos", "atan", "asinh", "acosh", "atanh"])
def test_inverse_functions(name):
    """Also on the real axis, where the branch cuts are."""
    function = getattr(torch, name)
    check(lambda z, x: (function(z), function(torch.complex(x, torch.zeros_like(x)))), Z, CUT, rtol=1e-5)


def test_functions():
    check(lambda z: (torch.log2(z), torch.log10(z), torch.log1p(z), torch.expm1(z), torch.sigmoid(z), F.silu(z)), Z)
    near = Z * 1e-4
    check(lambda z: (torch.log1p(z), torch.expm1(z)), near)


def test_moments():
    check(lambda z: (z.var(), z.std(1), *torch.var_mean(z, 1), *torch.std_mean(z, 0, keepdim=True)), Z)


def test_logical_operators():
    check(lambda z, w: (torch.logical_and(z, w), torch.logical_xor(z, w.real > 0), torch.logical_not(z * 0)), Z, W)


def test_writes():
    rows, columns = torch.tensor([1, 1, 0]), torch.tensor([0, 3])
    check(lambda z, w: (
        z.index_put((rows[1:],), w[:2]), z.scatter(0, INDICES, w), z.scatter_add(0, INDICES, w), z.scatter(0, INDICES, 1 + 2j),
        z.index_add(0, rows, w), z.index_copy(1, columns, w[:, :2]), z.index_fill(0, rows[:1], 3 + 1j),
        z.slice_scatter(w[:1], 0, 1, 2), z.select_scatter(w[0], 0, 1), z.masked_scatter(z.real > 0, w),
        z.diagonal_scatter(w[0, :3]), z.scatter(0, INDICES, 2.5),
    ), Z, W)  # fmt: skip


def test_circular_padding():
    """Its decomposition writes into views of a new tensor."""
    check(lambda z: (F.pad(z[None], (1, 2), "circular"),), Z)


def test_matrices():
    check(lambda a, b: (
        torch.linalg.solve(a, b), torch.linalg.solve(a, b.mT, left=False), torch.linalg.solve(a, b[..., 0]), torch.linalg.inv(a),
        torch.linalg.pinv(a[:, :2]), torch.matrix_exp(a), torch.linalg.solve_triangular(a, b, upper=True),
        torch.linalg.solve_triangular(a, b.mT, upper=False, left=False, unitriangular=True),
    ), A, B, rtol=1e-4)  # fmt: skip


class Phase(nn.Module):
    def forward(self, x):
        frames = torch.stft(x, 6, 3, center=False, return_complex=True)
        return torch.fft.rfft(x).angle(), frames.angle(), torch.fft.fft(x).imag[..., 0]


def test_phase_of_real_frequencies_is_0_or_pi():
    check_against_pytorch(Phase(), (torch.randn(4, 12, generator=torch.Generator().manual_seed(0)),))


class Inverse(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how = how

    def forward(self, x):
        return torch.view_as_real(torch.fft.ihfftn(x, **self.how).resolve_conj())


@pytest.mark.parametrize("how", [{"s": (8,)}, {"dim": (-2,)}, {"dim": (0, -1)}, {"norm": "ortho"}], ids=str)
def test_transforms_returning_a_lazy_conjugate(how):
    check_against_pytorch(Inverse(how), (torch.randn(4, 5, 6, generator=torch.Generator().manual_seed(0)),), rtol=1e-5)
