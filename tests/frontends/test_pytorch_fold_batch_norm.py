"""Batch normalisations put into the weights before them: asked for, exact to rounding, and only where nothing else changes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import onnxbridge
from onnxbridge.errors import UsageError


def settled(module):
    torch.manual_seed(0)
    for m in module.modules():
        if isinstance(m, nn.modules.batchnorm._BatchNorm):
            m.running_mean.normal_()
            m.running_var.uniform_(0.3, 3)
            if m.affine:
                nn.init.normal_(m.weight)
                nn.init.normal_(m.bias)
    return module.eval()


def kinds(module, *inputs, **options):
    made = onnxbridge.convert(settled(module), "onnx", inputs=inputs, **options)
    assert made.report is not None and made.report.passed
    return [n.op_type for n in made.model.graph.node], made


LAYERS = {
    "Conv": (nn.Conv2d(4, 8, 3, groups=2, bias=False), nn.BatchNorm2d(8), (2, 4, 6, 6)),
    "Conv in one axis": (nn.Conv1d(4, 8, 3), nn.BatchNorm1d(8, affine=False), (2, 4, 6)),
    "ConvTranspose": (nn.ConvTranspose2d(4, 6, 3, groups=2), nn.BatchNorm2d(6, eps=0.1), (2, 4, 6, 6)),
    "ConvTranspose in one group": (nn.ConvTranspose3d(2, 3, 2, bias=False), nn.BatchNorm3d(3), (1, 2, 3, 3, 3)),
    "Gemm": (nn.Linear(5, 7), nn.BatchNorm1d(7), (3, 5)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_the_norm_goes_into_the_layer(name):
    layer, norm, shape = LAYERS[name]
    net, x = nn.Sequential(layer, norm), torch.randn(shape)
    assert "BatchNormalization" in kinds(net, x)[0]
    found, made = kinds(net, x, fold_batch_norm=True)
    assert found == [name.split()[0]]
    initializers = {i.name for i in made.model.graph.initializer}
    assert initializers == {"0.weight/folded", "0.weight/folded_bias"}


class Shared(nn.Module):
    """One result is read beside its norm, and one weight is used twice."""

    def __init__(self):
        super().__init__()
        self.layer, self.first, self.second = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.BatchNorm2d(4)

    def forward(self, x):
        y = self.layer(x)
        return self.first(y) + y, self.second(self.layer(x * 2))


def test_what_is_read_elsewhere_stays():
    found, made = kinds(Shared(), torch.randn(1, 3, 4, 4), fold_batch_norm=True)
    assert found.count("BatchNormalization") == 1 and found.count("Conv") == 2
    assert {"layer.weight", "layer.weight/folded"} <= {i.name for i in made.model.graph.initializer}


def test_what_would_not_be_finite_stays():
    net = settled(nn.Sequential(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2, eps=0.0)))
    net[1].running_var.zero_()
    made = onnxbridge.convert(net, "onnx", inputs=(torch.randn(1, 2, 3, 3),), fold_batch_norm=True, verify=False)
    assert [n.op_type for n in made.model.graph.node] == ["Conv", "BatchNormalization"]


def test_other_sources_and_names_are_refused(tmp_path):
    net = nn.Conv2d(1, 1, 1)
    with pytest.raises(UsageError, match="fold_batch"):
        onnxbridge.convert(net, "onnx", inputs=(torch.randn(1, 1, 2, 2),), fold_batch=True)
    path = onnxbridge.convert(net, "onnx", inputs=(torch.randn(1, 1, 2, 2),), output=tmp_path / "net.onnx").paths[0]
    with pytest.raises(UsageError, match="fold_batch_norm"):
        onnxbridge.convert(path, "onnx", fold_batch_norm=True)
    assert onnxbridge.check(net, "onnx", inputs=(torch.randn(1, 1, 2, 2),), fold_batch_norm=True) == []
