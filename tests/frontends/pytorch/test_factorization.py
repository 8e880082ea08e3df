"""Factorisations of symmetric matrices that are not positive: the pivots are LAPACK's, and what is solved with them is right.
And singular values of matrices that may be wide or tall."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.frontends.pytorch.compare import agrees

ROUNDING = 1e-4
"""Some matrices' condition is near 100, and both sides round in float32."""


class Factor(nn.Module):
    def forward(self, a):
        return tuple(torch.linalg.ldl_factor_ex(a))


class Solve(nn.Module):
    def forward(self, a, b):
        factor, pivots = torch.linalg.ldl_factor(a)
        return torch.linalg.ldl_solve(factor, pivots, b)


def symmetric(*shape, seed):
    """Matrices with blocks of 1 and of 2: the diagonal is small, and 0 in some."""
    a = torch.randn(*shape, shape[-1], generator=torch.Generator().manual_seed(seed))
    a.diagonal(0, -2, -1).mul_(0.0 if seed % 2 else 0.5)
    return a


@pytest.mark.parametrize("shape", [(1,), (2,), (3, 3), (2, 1, 7)])
@pytest.mark.parametrize("seed", [2, 3])
def test_pivots_and_blocks(shape, seed):
    a = symmetric(*shape, seed=seed)
    agrees(Factor(), (a,), rtol=ROUNDING)
    assert seed % 2 == 0 or shape == (1,) or (torch.linalg.ldl_factor(a).pivots < 0).any()  # it takes blocks of 2


def test_what_is_solved():
    a, b = symmetric(2, 6, seed=5), torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(0))
    agrees(Solve(), (a, b), rtol=ROUNDING)


def test_any_size():
    sizes = {"a": {0: "batch", 1: "n", 2: "n"}}
    agrees(Factor(), (symmetric(2, 5, seed=1),), dynamic=sizes, other=[(symmetric(3, 8, seed=1),)], rtol=ROUNDING)


def test_nothing_to_factorise():
    """The first block of 0 is told, as LAPACK does."""
    agrees(Factor(), (torch.zeros(2, 3, 3),))


class Singular(nn.Module):
    def forward(self, a):
        u, s, v = torch.linalg.svd(a, full_matrices=False)
        full, _, right = torch.linalg.svd(a)
        k = s.shape[-1]
        again = (full[..., :k] * s[..., None, :]) @ right[..., :k, :]
        return torch.linalg.svdvals(a), (u * s[..., None, :]) @ v, again, torch.linalg.pinv(a, atol=0.01)


@pytest.mark.parametrize("axes", [{1: "n"}, {0: "m", 1: "n"}])
def test_singular_values_of_matrices_of_any_sizes(axes):
    shapes = [(4, 6), *((4 if 0 not in axes else m, 6 if 1 not in axes else n) for m, n in ((9, 6), (4, 3), (2, 7), (8, 8)))]
    draw = torch.Generator().manual_seed(0)
    first, *others = [(torch.randn(*shape, generator=draw),) for shape in shapes]
    agrees(Singular(), first, {"a": axes}, others, rtol=ROUNDING)
