"""A small network for scikit-learn's digits: trains it in seconds and saves it as an exported program and as a state dict.

    python torch_net.py OUT.pt2        # writes OUT.pt2 and OUT.pth
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn


class Block(nn.Module):
    """A depthwise convolution and one across channels, around which the input goes unchanged."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)
        self.pointwise = nn.Conv2d(channels, channels, 1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.norm(self.pointwise(self.depthwise(x))))


class Digits(nn.Module):
    """Scores for ten digits from 8x8 pixels between 0 and 1."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 24, 3, padding=1, bias=False), nn.BatchNorm2d(24), nn.ReLU(inplace=True))
        self.block = Block(24)
        self.pool = nn.MaxPool2d(2)
        self.wide = nn.Sequential(nn.Conv2d(24, 48, 3, padding=1), nn.BatchNorm2d(48), nn.ReLU(inplace=True))
        self.mean = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(48, 10)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.block(self.stem(pixels)))
        return self.classifier(self.mean(self.wide(x)).flatten(1))


def build() -> nn.Module:
    """The network without its weights: the factory for `torch_net:build`."""
    return Digits().eval()


def data() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Training pixels, test pixels, training digits, test digits."""
    digits = load_digits()
    pixels = torch.tensor(digits.images / 16, dtype=torch.float32)[:, None]
    parts = train_test_split(pixels.numpy(), digits.target, test_size=0.25, random_state=0, stratify=digits.target)
    train_x, test_x, train_y, test_y = map(torch.from_numpy, parts)
    return train_x, test_x, train_y, test_y


def train(epochs: int = 12, seed: int = 0) -> tuple[nn.Module, float]:
    """The trained network and the share of test digits that it reads right."""
    torch.manual_seed(seed)
    net = Digits()
    train_x, test_x, train_y, test_y = data()
    batch = 32
    steps = epochs * -(-len(train_x) // batch)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=steps)
    for _ in range(epochs):
        order = torch.randperm(len(train_x))
        for picked in order.split(batch):
            loss = nn.functional.cross_entropy(net(train_x[picked]), train_y[picked])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    net.eval()
    with torch.no_grad():
        accuracy = (net(test_x).argmax(1) == test_y).float().mean().item()
    return net, accuracy


def save(net: nn.Module, path: Path) -> None:
    """Write the exported program, for any batch size, and the state dict beside it."""
    example = torch.zeros(2, 1, 8, 8)
    program = torch.export.export(net, (example,), dynamic_shapes={"pixels": {0: torch.export.Dim("batch")}})
    torch.export.save(program, path)
    torch.save(net.state_dict(), path.with_suffix(".pth"))


def main() -> None:
    if len(sys.argv) != 2 or not sys.argv[1].endswith(".pt2"):
        raise SystemExit("usage: python torch_net.py OUT.pt2")
    net, accuracy = train()
    save(net, Path(sys.argv[1]))
    print(f"test accuracy {accuracy:.3f}; wrote {sys.argv[1]} and {Path(sys.argv[1]).with_suffix('.pth')}")


if __name__ == "__main__":
    main()
