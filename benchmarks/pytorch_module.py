"""Speed of the module that comes back from ONNX, beside the PyTorch module that went there.

    python benchmarks/pytorch_module.py [NAME ...]

CPU time of one thread, the least of seven runs of each, taken in turns; the target is 1.1x at most.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from networks import examples
from torch import nn

import onnxbridge


class Tagger(nn.Module):
    """Two layers of a bidirectional LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.out = nn.Embedding(500, 64), nn.Linear(256, 5)
        self.lstm = nn.LSTM(64, 128, num_layers=2, bidirectional=True, batch_first=True)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.out(self.lstm(self.words(ids))[0])
        return y


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    torch.set_num_threads(1)
    cases = {**examples(), "LSTM": (Tagger(), (torch.arange(400).reshape(4, 100),))}
    for name in sys.argv[1:] or cases:
        module, inputs = cases[name]
        module.eval()
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            path = Path(folder) / "net.onnx"
            onnxbridge.convert(module, inputs=inputs, verify=False, output=path)
            back = onnxbridge.convert(path, "pytorch", verify=False).model
            pairs = [(seconds(lambda m=module, i=inputs: m(*i)), seconds(lambda b=back, i=inputs: b(*i))) for _ in range(8)][1:]
        before, after = (min(p) for p in zip(*pairs, strict=True))
        same = "the same" if set(back.state_dict()) == set(module.state_dict()) else "other"
        times = f"{before * 1e3:6.1f} ms, back from ONNX {after * 1e3:6.1f} ms = {after / before:.2f}x"
        print(f"{name:12} {times}, {same} state_dict keys")


if __name__ == "__main__":
    main()
