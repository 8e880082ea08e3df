"""The networks that `architectures.py` converts, at a small size with random weights, and example inputs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import families_programs
import families_torchvision
import families_transformers
import torch
from family import Family, parameters, settled
from networks import examples
from torch import nn


def families() -> Iterator[Family]:
    for name, (module, inputs) in examples().items():
        yield Family(name, lambda m=module, i=inputs: (m, dict(zip(parameters(m), i, strict=False))))
    yield from families_torchvision.vision()
    yield from families_torchvision.detectors()
    yield from families_transformers.encoders()
    yield from families_transformers.decoders()
    yield from families_transformers.encoder_decoder_and_vision()
    yield from _recurrent()
    yield from families_programs.control()
    yield from families_programs.quantized()


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], **options: Any) -> None:
        super().__init__()
        self.rnn = kind(8, 16, num_layers=2, batch_first=True, **options)
        self.head = nn.Linear(32 if options.get("bidirectional") else 16, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, Any]:
        y, state = self.rnn(x)
        return self.head(y), state


class Packed(nn.Module):
    """Packed sequences of different lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(8, 16, batch_first=True, bidirectional=True)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        y, (h, _) = self.rnn(packed)
        return nn.utils.rnn.pad_packed_sequence(y, batch_first=True, total_length=x.shape[1])[0], h


class UNet(nn.Module):
    def __init__(self, widths: tuple[int, ...] = (8, 16, 32)) -> None:
        super().__init__()
        self.down, self.up, self.upsample = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for i, o in zip((3, *widths), widths, strict=False):
            self.down.append(self.block(i, o))
        for i, o in zip(widths[:0:-1], widths[-2::-1], strict=True):
            self.upsample.append(nn.ConvTranspose2d(i, o, 2, 2))
            self.up.append(self.block(2 * o, o))
        self.head = nn.Conv2d(widths[0], 2, 1)

    @staticmethod
    def block(i: int, o: int) -> nn.Module:
        first = nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(True))
        return nn.Sequential(*first, nn.Conv2d(o, o, 3, padding=1), nn.SiLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = []
        for i, block in enumerate(self.down):
            x = block(x)
            if i < len(self.down) - 1:
                skips.append(x)
                x = nn.functional.max_pool2d(x, 2)
        for upsample, block in zip(self.upsample, self.up, strict=True):
            x = block(torch.cat([skips.pop(), upsample(x)], 1))
        return self.head(x)


def _recurrent() -> Iterator[Family]:
    yield Family("UNet", lambda: (settled(UNet()), {"x": torch.randn(2, 3, 32, 32)}), {"x": {0: "batch"}})
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        yield Family(
            f"{kind.__name__}, two layers, bidirectional",
            lambda k=kind: (Recurrent(k, bidirectional=True).eval(), {"x": torch.randn(2, 7, 8)}),
            {"x": {0: "batch", 1: "time"}},
        )
    yield Family(
        "packed LSTM", lambda: (Packed().eval(), {"x": torch.randn(3, 7, 8), "lengths": torch.tensor([5, 7, 2])}),
        {"x": {0: "batch", 1: "time"}, "lengths": {0: "batch"}},
    )  # fmt: skip
