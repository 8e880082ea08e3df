"""Well-known architectures at a small size, from PyTorch to ONNX, to Core ML, and back to PyTorch."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from torch import nn

import onnxbridge

_file = Path(__file__).parents[2] / "benchmarks" / "networks.py"
_spec = importlib.util.spec_from_file_location("networks", _file)
networks = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(networks)


class Tagger(nn.Module):
    """Two layers of a bidirectional LSTM over embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.lstm = nn.LSTM(16, 12, num_layers=2, bidirectional=True, batch_first=True)
        self.out = nn.Linear(24, 5)

    def forward(self, ids):
        y, (h, c) = self.lstm(self.words(ids))
        return self.out(y), h


class UNet(nn.Module):
    """A U-Net of one level: down, a transposed convolution up, and a skip connection."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU())
        self.middle = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.InstanceNorm2d(16), nn.GELU())
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.out = nn.Conv2d(16, 2, 1)

    def forward(self, x):
        a = self.down(x)
        return self.out(torch.cat([a, self.up(self.middle(a))], 1))


def bottlenecks():
    block = networks.Bottleneck(16, 8, 2)
    return nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), block, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 4))


def cases():
    ids = torch.arange(14).reshape(2, 7) * 3
    batch = {0: "N"}
    image = torch.randn(2, 3, 32, 32)
    return {
        "resnet": (bottlenecks, (image,), {"input": batch}),
        "unet": (UNet, (image,), {"x": batch}),
        "vit": (lambda: networks.ViT(32, 8, 32, 2, 4, 10), (image,), {"x": batch}),
        "minilm": (lambda: networks.MiniLM(50, 32, 2, 4, 16), (ids, torch.ones_like(ids)), None),
        "lstm": (Tagger, (ids,), {"ids": batch}),
    }


def test_lstm_is_saved_as_a_program_and_verified_from_the_file(tmp_path):
    torch.manual_seed(0)
    module = Tagger().eval()
    ids = torch.arange(14).reshape(2, 7) * 3
    conversion = onnxbridge.convert(module, "pytorch", inputs=(ids,), dynamic={"ids": {0: "N"}}, output=tmp_path / "net.pt2")
    assert any("lstm" in str(n.target) for n in conversion.model.graph.nodes), "PyTorch's own kernel, not a loop"
    report = onnxbridge.verify(tmp_path / "net.pt2", module, inputs={"ids": ids.numpy()})
    assert report.passed, str(report)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["onnx", "coreml", "pytorch"])
@pytest.mark.parametrize("name", list(cases()))
def test_architecture(name, target):
    torch.manual_seed(0)
    build, inputs, dynamic = cases()[name]
    module = build().eval()
    for m in module.modules():  # as after training, not mean 0 and variance 1
        if isinstance(m, nn.BatchNorm2d):
            m.running_mean.uniform_(-0.5, 0.5)
            m.running_var.uniform_(0.5, 1.5)
    conversion = onnxbridge.convert(module, target, inputs=inputs, dynamic=dynamic)
    assert conversion.report.passed, str(conversion.report)
    assert not any("default" in o.tolerance.origin for o in conversion.report.outputs)
