"""A PyTorch classifier of photos as a Core ML app model: it takes an image, and gives a label.

    python photos_to_coreml.py OUT.mlpackage

The preprocessing of the training (pixels from 0 to 1, minus the mean, over the deviation) becomes part of the model, so that an
app passes camera images as they are. Replace `Network` and `LABELS` by your own.
"""

from __future__ import annotations

import sys

import torch
from torch import nn

import onnxbridge

LABELS = ["cat", "dog", "horse"]
MEAN, DEVIATION = 0.45, 0.225


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        self.scores = nn.Linear(8, len(LABELS))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.scores(self.features(image).flatten(1)).softmax(1)


def main(output: str) -> None:
    torch.manual_seed(0)
    made = onnxbridge.convert(
        Network().eval(),
        to="coreml",
        inputs={"image": torch.zeros(1, 3, 64, 64)},
        image={"image": f"RGB,scale={1 / 255 / DEVIATION},bias={-MEAN / DEVIATION}"},  # (pixel / 255 - mean) / deviation
        labels=LABELS,
        compute_precision="fp16",
        metadata={"author": "us", "description": "cat, dog or horse"},
    )
    print(made.report)
    made.save(output)


if __name__ == "__main__":
    main(sys.argv[1])
