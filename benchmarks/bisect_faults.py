"""Plants small faults in models and in what backends write from them, and counts those that `bisect` finds, as a Markdown table.

    python benchmarks/bisect_faults.py [--to onnx,pytorch,tensorflow,coreml,mxnet] [--count 20] [--seed 0] [FILE.onnx ...]

A fault is found if the value that `bisect` names is computed by the faulty operator or by one that reads its result. Faults that
no output shows are counted apart. Without files, small random networks of several kinds are used.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import onnx_ir as ir
import torch
from networks import Bottleneck
from torch import nn

import onnxbridge
from onnxbridge.errors import OnnxbridgeError
from onnxbridge.runtime.bisect.bisection import Bisection
from onnxbridge.runtime.mutation.fault import Fault
from onnxbridge.runtime.mutation.faults import faults_of

SUFFIX = {"onnx": ".onnx", "pytorch": ".pt2", "tensorflow": "", "coreml": ".mlpackage", "mxnet": "-symbol.json"}


class Recurrent(nn.Module):
    """Two recurrent layers and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.first = nn.Linear(6, 12), nn.LSTM(12, 16, batch_first=True)
        self.second, self.head = nn.GRU(16, 10, batch_first=True), nn.Linear(10, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.second(self.first(torch.tanh(self.embed(x)))[0])[0]
        return self.head(x.mean(1)).log_softmax(-1)


class UNet(nn.Module):
    """Two scales with a skip connection."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.deep = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.norm, self.up = nn.InstanceNorm2d(16, affine=True), nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.out = nn.Conv2d(16, 2, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = torch.relu(self.down(x))
        b = nn.functional.silu(self.norm(self.deep(nn.functional.avg_pool2d(a, 2))))
        return torch.sigmoid(self.out(torch.cat([a, self.up(b)], 1)))


def convolutional(blocks: int) -> nn.Module:
    body = [Bottleneck(32, 8, 1) for _ in range(blocks)]
    return nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), *body, nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(32, 10))  # fmt: skip


def networks() -> Iterator[tuple[str, nn.Module, torch.Tensor]]:
    torch.manual_seed(0)
    image = torch.randn(2, 3, 16, 16)
    yield "unet", UNet(), image
    yield "recurrent", Recurrent(), torch.randn(2, 7, 6)
    yield "convolutional", convolutional(4), image
    encoder = [nn.TransformerEncoderLayer(24, 4, 48, batch_first=True) for _ in range(4)]
    yield "transformer", nn.Sequential(*encoder), torch.randn(2, 9, 24)
    deep = [nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.Tanh()) for _ in range(130)]
    yield "deep", nn.Sequential(*deep), torch.randn(3, 16)


def randomized(net: nn.Module) -> nn.Module:
    """The network with statistics and affine parameters other than 0 and 1, so that faults in them show."""
    for module in net.modules():
        for name in ("running_mean", "weight", "bias"):
            tensor = getattr(module, name, None)
            if isinstance(tensor, torch.Tensor) and not isinstance(module, (nn.Linear, nn.Conv2d, nn.ConvTranspose2d)):
                tensor.data += 0.3 * torch.randn_like(tensor)
    return net.eval()


def sources(files: list[str]) -> Iterator[tuple[str, ir.Model]]:
    for path in files:
        yield Path(path).stem, onnxbridge.load(path)
    for name, net, x in networks() if not files else ():
        yield name, onnxbridge.load(randomized(net), inputs=(x,))


def chosen(model: ir.Model, count: int, seed: int) -> list[Fault]:
    """Faults of every kind in turn."""
    by_kind: dict[str, list[Fault]] = defaultdict(list)
    for fault in faults_of(model.graph):
        by_kind[fault.kind].append(fault)
    for faults in by_kind.values():
        random.Random(seed).shuffle(faults)
    found: list[Fault] = []
    while len(found) < count and any(by_kind.values()):
        found += [faults.pop() for faults in by_kind.values() if faults]
    return found[:count]


def is_found(model: ir.Model, fault: Fault, bisection: Bisection) -> bool:
    node = next(n for n in model.graph if fault.value in [o.name for o in n.outputs])
    near = {v.name for v in node.outputs} | {v.name for o in node.outputs for use in o.uses() for v in use.node.outputs}
    return bisection.first is not None and bisection.first.name in near


def row(name: str, model: ir.Model, to: str, count: int, seed: int, folder: str) -> list[object]:
    nodes = sum(1 for _ in model.graph)
    found, invisible, runs, wrong = 0, 0, 0, []
    faults, start = chosen(model, count, seed), time.perf_counter()
    for i, fault in enumerate(faults):
        path = os.path.join(folder, f"{name}-{to}-{i}{SUFFIX[to]}")
        try:
            onnxbridge.convert(fault.planted(model), to, output=path, verify=False)
            bisection = onnxbridge.bisect(model, path, samples=1)
        except OnnxbridgeError as e:
            wrong.append(f"{fault}: {type(e).__name__}: {str(e)[:200]}")
            continue
        runs = max(runs, *bisection.runs_of)
        if bisection.report.agrees:
            invisible += 1
        elif is_found(model, fault, bisection):
            found += 1
        else:
            first = bisection.first
            wrong.append(f"{fault.kind}, {fault}: found {first and (first.name, first.candidate_name)} {bisection.reason}")
    for text in wrong:
        print("   not found:", text)
    limit = math.ceil(math.log2(nodes)) + 2
    seconds = (time.perf_counter() - start) / max(len(faults), 1)
    visible = len(faults) - invisible
    return [name, to, nodes, len(faults), invisible, f"{found} of {visible}", f"{runs} of {limit}", f"{seconds:.1f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--to", default="onnx,pytorch,tensorflow,coreml,mxnet")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    print("| model | target | nodes | faults | invisible | found | runs | seconds each |\n|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, model in sources(given.files):
            for to in given.to.split(","):
                print(f"| {' | '.join(map(str, row(name, model, to, given.count, given.seed, folder)))} |", flush=True)


if __name__ == "__main__":
    main()
