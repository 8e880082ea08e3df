"""Draw what the commands print for docs/coreml.md, as SVG files in docs/pictures: `python docs/pictures.py`.

The model is small and made here: attention over the patches of an image, with a mask value that float16 cannot represent.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text
from torch import nn

import onnxbridge

FOLDER = Path(__file__).parent / "pictures"
# The reader's own fonts, so that nothing is fetched.
FORMAT = re.sub(r"<!--.*?-->\s*|@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.S).replace("Fira Code, ", "")


class Patches(nn.Module):
    """Attention between the patches of an image, with dark ones masked. `hashed` adds an output that Core ML cannot compute."""

    def __init__(self, hashed: bool = False) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 64, 16, 16)
        self.norm = nn.LayerNorm(64)
        self.query, self.key, self.value = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 64)
        self.head = nn.Linear(64, 10)
        self.hashed = hashed

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = self.norm(self.patch(image).flatten(2).transpose(1, 2))
        scores = self.query(x) @ self.key(x).transpose(1, 2) / 8
        dark = nn.functional.avg_pool2d(image.mean(1, keepdim=True), 16).flatten(1) < -0.5
        scores = scores.masked_fill(dark[:, None], torch.finfo(torch.float32).min)
        y = x + scores.softmax(-1) @ self.value(x)
        best = torch.topk(self.head(nn.functional.gelu(y)).mean(1), 3)
        return (best.values, best.indices, *([best.indices * 2654435761 % 1000003] if self.hashed else []))


def drawn(name: str, folder: Path, *commands: str) -> None:
    """Draw what a terminal shows of these commands: standard output, then standard error."""
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=118, file=nowhere)
        for command in commands:
            ran = subprocess.run(
                [sys.executable, "-m", *shlex.split(command)], cwd=folder, capture_output=True, text=True, check=False
            )
            console.print(Text(f"$ {command}", style="bold"))
            console.print(Text((ran.stdout + ran.stderr).rstrip()))
    (FOLDER / f"{name}.svg").write_text(console.export_svg(title="onnxbridge", code_format=FORMAT, unique_id=name))


if __name__ == "__main__":
    torch.manual_seed(0)
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for name, network in (("patches", Patches()), ("hashed", Patches(hashed=True))):
            picture = {"image": torch.rand(1, 3, 224, 224)}
            onnxbridge.convert(network.eval(), "onnx", inputs=picture, verify=False, output=folder / f"{name}.onnx")
        drawn("check", folder, "onnxbridge check patches.onnx --to coreml --compute-precision fp16")
        drawn("blocked", folder, "onnxbridge check hashed.onnx --to coreml")
        drawn("report", folder, "onnxbridge convert patches.onnx --to coreml --compute-precision fp16 --compress linear8")
