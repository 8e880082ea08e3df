"""LDL factorization of symmetric indefinite matrices: LAPACK's pivots, correct solutions. Singular values of matrices that may
be wide or tall."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.frontends.pytorch.compare import check_against_pytorch

ROUNDING = 1e-4
"""The condition number of some matrices is near 100, and both runs round in float32."""


class Factor(nn.Module):
    def forward(self, a):
        return tuple(torch.linalg.ldl_factor_ex(a))


class Solve(nn.Module):
    def forward(self, a, b):
        factor, pivots = torch.linalg.ldl_factor(a)
        return torch.linalg.ldl_solve(factor, pivots, b)


def symmetric(*shape, seed):
    """Matrices with pivot blocks of size 1 and 2: the diagonal is small, or 0."""
    a = torch.randn(*shape, shape[-1], generator=torch.Generator().manual_seed(seed))
    a.diagonal(0, -2, -1).mul_(0.0 if seed % 2 else 0.5)
    return a


@pytest.mark.parametrize("shape", [(1,), (2,), (3, 3), (2, 1, 7)])
@pytest.mark.parametrize("seed", [2, 3])
def test_pivots_and_blocks(shape, seed):
    a = symmetric(*shape, seed=seed)
    check_against_pytorch(Factor(), (a,), rtol=ROUNDING)
    assert seed % 2 == 0 or shape == (1,) or (torch.linalg.ldl_factor(a).pivots < 0).any()  # has pivot blocks of size 2


def test_solutions():
    a, b = symmetric(2, 6, seed=5), torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(0))
    check_against_pytorch(Solve(), (a, b), rtol=ROUNDING)


def test_dynamic_size():
    sizes = {"a": {0: "batch", 1: "n", 2: "n"}}
    check_against_pytorch(Factor(), (symmetric(2, 5, seed=1),), dynamic=sizes, other=[(symmetric(3, 8, seed=1),)], rtol=ROUNDING)


def test_zero_matrix():
    """`info` is the index of the first zero block, as in LAPACK."""
    check_against_pytorch(Factor(), (torch.zeros(2, 3, 3),))


class Singular(nn.Module):
    def forward(self, a):
        u, s, v = torch.linalg.svd(a, full_matrices=False)
        full, _, right = torch.linalg.svd(a)
        k = s.shape[-1]
        reconstructed = (full[..., :k] * s[..., None, :]) @ right[..., :k, :]
        return torch.linalg.svdvals(a), (u * s[..., None, :]) @ v, reconstructed, torch.linalg.pinv(a, atol=0.01)


@pytest.mark.parametrize("axes", [{1: "n"}, {0: "m", 1: "n"}])
def test_singular_values_with_dynamic_sizes(axes):
    shapes = [(4, 6), *((4 if 0 not in axes else m, 6 if 1 not in axes else n) for m, n in ((9, 6), (4, 3), (2, 7), (8, 8)))]
    draw = torch.Generator().manual_seed(0)
    first, *others = [(torch.randn(*shape, generator=draw),) for shape in shapes]
    check_against_pytorch(Singular(), first, {"a": axes}, others, rtol=ROUNDING)
