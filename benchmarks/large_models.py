"""What the verification of a large model takes beside one plain run in ONNX Runtime: seconds, and memory without mapped files.

    python benchmarks/large_models.py [FOLDER]

Two models are written to FOLDER: 12 Linear layers of 8192 (3.2 GB of weights, in a second file) and ViT-B/16 (346 MB). Each is
then converted from ONNX to ONNX by the command line, with and without verification. Linux only. docs/verification.md shows the
figures.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

LAYERS, WIDTH = 12, 8192
RUN = """
import sys, numpy as np, onnxruntime as ort
session = ort.InferenceSession(sys.argv[1])
x = session.get_inputs()[0]
shape = [2 if not isinstance(d, int) else d for d in x.shape]
session.run(None, {x.name: np.random.default_rng(0).standard_normal(shape).astype(np.float32)})
"""


def write_linear(path: Path) -> None:
    """Linear layers with ReLU between; weights as PyTorch initializes them."""
    rng, bound = np.random.default_rng(0), WIDTH**-0.5
    nodes, weights, value, offset = [], [], "x", 0
    with open(f"{path}.data", "wb") as data:
        for i in range(LAYERS):
            for name, shape in ((f"{i}.weight", (WIDTH, WIDTH)), (f"{i}.bias", (WIDTH,))):
                array = rng.uniform(-bound, bound, shape).astype(np.float32)
                data.write(array.tobytes())
                tensor = onnx.TensorProto(name=name, dims=shape, data_type=onnx.TensorProto.FLOAT, data_location=1)
                entries = {"location": f"{path.name}.data", "offset": str(offset), "length": str(array.nbytes)}
                for key, text in entries.items():
                    tensor.external_data.add(key=key, value=text)
                weights.append(tensor)
                offset += array.nbytes
            nodes.append(helper.make_node("Gemm", [value, f"{i}.weight", f"{i}.bias"], [f"linear_{i}"], name=str(i), transB=1))
            value = f"linear_{i}"
            if i < LAYERS - 1:
                nodes.append(helper.make_node("Relu", [value], [f"relu_{i}"]))
                value = f"relu_{i}"
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", WIDTH]) for name in ("x", value))
    graph = helper.make_graph(nodes, "linear", [x], [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)


def write_vit(path: Path) -> None:
    """ViT-B/16: patches of 16, 12 encoder layers of 768 with 12 heads, on one image of 224."""
    import torch
    from torch import nn

    import onnxbridge

    class ViT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, 768, 16, stride=16)
            self.cls, self.positions = nn.Parameter(torch.zeros(1, 1, 768)), nn.Parameter(torch.randn(1, 197, 768) * 0.02)
            layer = nn.TransformerEncoderLayer(768, 12, 3072, activation="gelu", batch_first=True, norm_first=True)
            self.encoder = nn.TransformerEncoder(layer, 12, nn.LayerNorm(768), enable_nested_tensor=False)
            self.head = nn.Linear(768, 1000)

        def forward(self, image: torch.Tensor) -> torch.Tensor:
            x = torch.cat([self.cls, self.patches(image).flatten(2).transpose(1, 2)], 1)
            return self.head(self.encoder(x + self.positions)[:, 0])

    torch.manual_seed(0)
    onnxbridge.convert(ViT().eval(), "onnx", inputs=(torch.randn(1, 3, 224, 224),), verify=False).save(path)


def measured(*command: str) -> tuple[float, float, int]:
    """Seconds, the most memory in GB that is not of mapped files, and the exit code."""
    start, peak = time.perf_counter(), 0
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL)
    while process.poll() is None:
        try:
            found = re.search(r"RssAnon:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())
        except OSError:
            found = None
        peak = max(peak, int(found[1]) if found else 0)
        time.sleep(0.02)
    return time.perf_counter() - start, peak / 1e6, process.returncode


def main(folder: Path) -> None:
    for name, write in (("vit", write_vit), ("linear", write_linear)):
        path, out = folder / f"{name}.onnx", folder / f"{name}.converted.onnx"
        if not path.exists():
            write(path)
        convert = ("-m", "onnxbridge", "convert", str(path), "-o", str(out), "--force")
        for title, command in (
            ("one run in ONNX Runtime", ("-c", RUN, str(path))),
            ("convert --no-verify", (*convert, "--no-verify")),
            ("convert", convert),
        ):
            seconds, memory, code = measured(*command)
            print(f"{name:7} {title:24} {seconds:6.1f} s {memory:6.2f} GB  exit {code}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as made:
            main(Path(made))
