"""The digits network in PyTorch: `python torch_net.py DIGITS.npz OUT.pt2` trains it and saves the exported program.

It also saves the state dict, for `onnxbridge convert torch_net:build OUT.pth`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn


class Net(nn.Module):
    """Convolutions with batch norm, a depthwise-separable residual block, pooling, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.depthwise = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1, groups=16, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.pointwise = nn.Sequential(nn.Conv2d(16, 16, 1, bias=False), nn.BatchNorm2d(16))
        self.grow = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU())
        self.head = nn.Linear(32 * 2 * 2, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.stem(image)
        x = torch.relu(x + self.pointwise(self.depthwise(x)))
        x = nn.functional.max_pool2d(x, 2)
        x = nn.functional.avg_pool2d(self.grow(x), 2)
        return torch.softmax(self.head(torch.flatten(x, 1)), dim=1)


def build() -> nn.Module:
    """The untrained network."""
    torch.manual_seed(2)
    return Net()


def train(x: np.ndarray, y: np.ndarray, epochs: int = 20) -> nn.Module:
    """Trains the network in a few seconds, to the same weights on every CPU.

    CPUs round differently, and training amplifies any difference. In float64 it is so small that rounding the weights after each
    step removes it.
    """
    torch.set_default_dtype(torch.float64)
    net = build()
    torch.set_default_dtype(torch.float32)
    images, labels = torch.from_numpy(x).double(), torch.from_numpy(y)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    _round(net)
    for _ in range(epochs):
        for batch in torch.randperm(len(images)).split(64):
            optimizer.zero_grad()
            loss = nn.functional.nll_loss(torch.log(net(images[batch]) + 1e-9), labels[batch])
            loss.backward()
            optimizer.step()
            _round(net)
    return net.float().eval()


@torch.no_grad()
def _round(net: nn.Module) -> None:
    for weight in net.parameters():
        weight.copy_(torch.round(weight * 2**16) / 2**16)


def main(digits: str, out: str) -> None:
    torch.set_num_threads(1)
    with np.load(digits) as data:
        net = train(data["x_train"], data["y_train"])
        example = torch.from_numpy(data["x_test"][:4])
    program = torch.export.export(net, (example,), dynamic_shapes={"image": {0: torch.export.Dim("N")}}, strict=False)
    torch.export.save(program, out)
    torch.save(net.state_dict(), Path(out).with_suffix(".pth"))


if __name__ == "__main__":
    main(*sys.argv[1:])
