"""Grouped matrix products, of which mixtures of experts are made."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.frontends.pytorch.compare import check_against_pytorch

OFFSETS = torch.tensor([2, 2, 7, 12], dtype=torch.int32)  # the second group is empty


class Product(nn.Module):
    def __init__(self, mat2):
        super().__init__()
        self.mat2 = nn.Parameter(mat2)

    def forward(self, x, offs=None):
        return torch.ops.aten._grouped_mm.default(x, self.mat2, offs)


@pytest.mark.parametrize(
    "left, right",
    [((12, 8), (4, 8, 16)), ((4, 8, 8), (8, 12)), ((8, 12), (12, 8))],
    ids=["groups of rows", "groups of columns", "groups of products"],
)
def test_groups(left, right):
    net = Product(torch.randn(right)).eval()
    other = (torch.randn(left), torch.tensor([0, 4, 5, 12], dtype=torch.int32))
    check_against_pytorch(net, (torch.randn(left), OFFSETS), None, [other])


def test_batches_of_matrices():
    check_against_pytorch(Product(torch.randn(3, 8, 16)).eval(), (torch.randn(3, 4, 8),))


def test_any_number_of_rows():
    net = Product(torch.randn(4, 8, 16)).eval()
    other = (torch.randn(20, 8), torch.tensor([1, 3, 3, 20], dtype=torch.int32))
    check_against_pytorch(net, (torch.randn(12, 8), OFFSETS), {"x": {0: "n"}}, [other])
