"""Data-dependent sizes used in Python code."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import onnxbridge
from onnxbridge.errors import UsageError
from tests.frontends.pytorch.compare import check_against_pytorch


class Counts(nn.Module):
    """Calls `len` on selected elements, as torchvision's detectors do."""

    def forward(self, x):
        selected = x[x > 0.5]
        return selected.new_zeros(len(selected)) + 3, selected * 2


def test_len_of_data_dependent_size(capfd):
    result = onnxbridge.convert(Counts(), "onnx", inputs=(torch.rand(9),))
    assert result.report is not None and result.report.passed
    assert len([1, 2]) == 2 and len(torch.ones(3, 2)) == 3
    assert capfd.readouterr() == ("", "")


class Loops(nn.Module):
    def forward(self, x):
        return torch.stack([row.sum() for row in x[x[:, 0] > 0]])


def test_python_loop_over_data_dependent_size(capfd):
    with pytest.raises(UsageError, match=r"cannot trace Loops: .*; the Python code depends on data: .*torch\.cond"):
        onnxbridge.convert(Loops(), "onnx", inputs=(torch.rand(4, 2),))
    assert capfd.readouterr() == ("", "")


class Flattened(nn.Module):
    def forward(self, x):
        selected = x[x[:, 0, 0] > 0]
        return selected.flatten(1), selected[:, None].flatten(2), selected.exp().view(selected.shape[0], x.shape[1] * 4)


@pytest.mark.parametrize("dynamic", [None, {"x": {1: "h"}}], ids=["fixed", "dynamic"])
def test_empty_selection(dynamic):
    check_against_pytorch(Flattened(), (torch.rand(5, 3, 4),), dynamic, [(torch.zeros(5, 3, 4),), (torch.rand(5, 3, 4) - 0.5,)])


def test_max_pool_is_written_at_the_lowest_opset():
    result = onnxbridge.convert(nn.MaxPool2d(3, 2, 1), "onnx", inputs=(torch.randn(1, 2, 8, 8),))
    assert result.model.opset_import[0].version == 18


class Replaced(nn.Module):
    """Writes embeddings of selected tokens between those of all, as multimodal language models do."""

    def forward(self, tokens):
        selected = tokens > 9
        embeddings = tokens[:, None].expand(-1, 2) * 0.5
        return embeddings.masked_scatter(selected[:, None], tokens[selected][:, None].expand(-1, 2) * 2.0)


@pytest.mark.parametrize("dynamic", [None, {"tokens": {0: "t"}}], ids=["fixed", "dynamic"])
def test_masked_scatter_of_nothing(dynamic):
    check_against_pytorch(Replaced(), (torch.arange(5) * 4,), dynamic, [(torch.arange(5),)])
