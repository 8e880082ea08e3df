"""Speed of a PyTorch module converted to ONNX and back, relative to the original module.

    python benchmarks/pytorch_module.py [NAME ...]

CPU time with one thread, the minimum of seven alternating runs of each; the target is at most 1.1x. Networks that need
torchvision or transformers are run only when named: MobileNetV3, Swin-T, GPT-2.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from families import UNet
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


class Step(nn.Module):
    """One step of a decoder of six layers with a past of 64 tokens."""

    def __init__(self) -> None:
        super().__init__()
        library = importlib.import_module("transformers")
        config = library.GPT2Config(n_layer=6, n_embd=384, n_head=6, vocab_size=5000, bos_token_id=0, eos_token_id=0)
        self.model, self.cache = library.GPT2LMHeadModel(config), library.DynamicCache

    def forward(self, ids: torch.Tensor, *past: torch.Tensor) -> tuple[torch.Tensor, ...]:
        cache = self.cache()
        for i in range(len(past) // 2):
            cache.update(past[2 * i], past[2 * i + 1], i)
        result = self.model(ids, past_key_values=cache, use_cache=True)
        return (result.logits, *(t for layer in result.past_key_values.layers for t in (layer.keys, layer.values)))


def _torchvision(name: str) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return getattr(importlib.import_module("torchvision").models, name)(), (torch.randn(1, 3, 224, 224),)


OPTIONAL: dict[str, Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]] = {
    "MobileNetV3": lambda: _torchvision("mobilenet_v3_large"), "Swin-T": lambda: _torchvision("swin_t"),
    "GPT-2": lambda: (Step(), (torch.randint(0, 5000, (1, 1)), *(torch.randn(1, 6, 64, 64) for _ in range(12)))),
}  # fmt: skip


def seconds(function: Callable[[], object]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def main() -> None:
    torch.set_num_threads(1)
    cases = {
        **examples(), "LSTM": (Tagger(), (torch.arange(400).reshape(4, 100),)),
        "UNet": (UNet((32, 64, 128)), (torch.randn(1, 3, 128, 128),)),
    }  # fmt: skip
    for name in sys.argv[1:] or cases:
        module, inputs = OPTIONAL[name]() if name in OPTIONAL else cases[name]
        module.eval()
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            path = Path(folder) / "net.onnx"
            onnxbridge.convert(module, inputs=inputs, verify=False, output=path)
            converted = onnxbridge.convert(path, "pytorch", verify=False).model
            pairs = [(seconds(lambda m=module, i=inputs: m(*i)), seconds(lambda b=converted, i=inputs: b(*i))) for _ in range(8)][
                1:
            ]
        before, after = (min(p) for p in zip(*pairs, strict=True))
        keys = "same" if set(converted.state_dict()) == set(module.state_dict()) else "different"
        times = f"{before * 1e3:6.1f} ms, from ONNX {after * 1e3:6.1f} ms = {after / before:.2f}x"
        print(f"{name:12} {times}, {keys} state_dict keys")


if __name__ == "__main__":
    main()
