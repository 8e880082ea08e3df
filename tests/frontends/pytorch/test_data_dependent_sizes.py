"""Sizes that only data decides, where Python code asks for them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import onnxbridge
from onnxbridge.errors import UsageError
from tests.frontends.pytorch.compare import agrees


class Counted(nn.Module):
    """Takes `len` of what it selects, as torchvision's detectors do."""

    def forward(self, x):
        kept = x[x > 0.5]
        return kept.new_zeros(len(kept)) + 3, kept * 2


def test_len_of_what_data_selects(capfd):
    made = onnxbridge.convert(Counted(), "onnx", inputs=(torch.rand(9),))
    assert made.report is not None and made.report.passed
    assert len([1, 2]) == 2 and len(torch.ones(3, 2)) == 3
    assert capfd.readouterr() == ("", "")


class Walked(nn.Module):
    def forward(self, x):
        return torch.stack([row.sum() for row in x[x[:, 0] > 0]])


def test_a_python_loop_over_it_is_refused_with_the_way_out(capfd):
    with pytest.raises(UsageError, match=r"cannot trace Walked: .*; Python code asks for what only data decides: .*torch\.cond"):
        onnxbridge.convert(Walked(), "onnx", inputs=(torch.rand(4, 2),))
    assert capfd.readouterr() == ("", "")


class Flattened(nn.Module):
    def forward(self, x):
        kept = x[x[:, 0, 0] > 0]
        return kept.flatten(1), kept[:, None].flatten(2), kept.exp().view(kept.shape[0], x.shape[1] * 4)


@pytest.mark.parametrize("dynamic", [None, {"x": {1: "h"}}], ids=["fixed", "dynamic"])
def test_nothing_is_selected(dynamic):
    agrees(Flattened(), (torch.rand(5, 3, 4),), dynamic, [(torch.zeros(5, 3, 4),), (torch.rand(5, 3, 4) - 0.5,)])


def test_pools_are_written_at_the_lowest_opset_that_has_them():
    made = onnxbridge.convert(nn.MaxPool2d(3, 2, 1), "onnx", inputs=(torch.randn(1, 2, 8, 8),))
    assert made.model.opset_import[0].version == 18
