"""Convert ONNX files to other opsets and compare what ONNX Runtime computes of them with what it computes of the originals.

    python benchmarks/opsets.py MODEL.onnx ... --to 11,13,15,17,21,26 [--size frames=200] [--value sr=16000]

Prints a Markdown table: the largest absolute difference of any output on noise and on a smooth signal, or the refusal, with the
largest magnitude of the outputs behind the model's name. Dynamic sizes are tried until the original runs; `--size` fixes them by
name, `--value` whole inputs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnxbridge import opset
from onnxbridge.errors import OnnxbridgeError
from onnxbridge.hub.io import onnx_files
from onnxbridge.runtime import devices
from onnxbridge.runtime.verify.sample_inputs import samples_for

Feeds = list[dict[str, np.ndarray[Any, Any]]]


def smooth(shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """Values between 0 and 1 that change slowly along the last axes, as those of a picture or of a sound do."""
    waves = [np.sin(np.arange(n) * (0.11 + 0.05 * axis) + axis) for axis, n in enumerate(shape)]
    total = np.zeros(shape)
    for axis, wave in enumerate(waves):
        total += wave.reshape([-1 if a == axis else 1 for a in range(len(shape))])
    return (0.5 + total / (2 * max(1, len(shape)))).astype(dtype)


def candidates(model: onnx.ModelProto, sizes: dict[str, int], fixed: dict[str, float]) -> Iterator[Feeds]:
    """Noise and smooth feeds, in one choice of the sizes left open after another."""
    hub = onnx_files.from_proto(model)
    bounds = {name: (n, n) for name, n in sizes.items()}
    for least in (64, 32, 224, 512, 576, 2):
        feeds = samples_for(hub.graph, 1, 0, bounds, least, batch=1)
        feeds[0] = {k: v for k, v in feeds[0].items() if k not in hub.graph.initializers}
        feeds.append({k: smooth(v.shape, v.dtype) if v.dtype.kind == "f" else v for k, v in feeds[0].items()})
        yield [f | {k: np.full_like(f[k], v) for k, v in fixed.items() if k in f} for f in feeds]


def run(model: onnx.ModelProto, feeds: Feeds) -> list[list[Any]]:
    session = devices.session(model, "cpu", threads=1)
    return [session.run(None, f) for f in feeds]


def difference(found: list[list[Any]], wanted: list[list[Any]]) -> float:
    """The largest absolute difference; infinite where shapes, dtypes or the places of NaN differ."""
    most = 0.0
    for f, w in zip((v for run in found for v in run), (v for run in wanted for v in run), strict=True):
        if f.shape != w.shape or f.dtype != w.dtype or not np.array_equal(np.isnan(f), np.isnan(w)):
            return np.inf
        apart = np.abs(f.astype(np.float64) - w.astype(np.float64))[f != w]
        most = max(most, np.nanmax(apart, initial=0.0))
    return most


def row(path: Path, targets: list[int], sizes: dict[str, int], fixed: dict[str, float]) -> list[str]:
    """One line of the table."""
    model = onnx.load(path)
    for feeds in candidates(model, sizes, fixed):
        try:
            wanted = run(model, feeds)
            break
        except Exception as error:
            reason = str(error).strip().splitlines()[0]
    else:
        return [f"{path.parent.name}/{path.name}", *[f"the original does not run: {reason}"] * len(targets)]
    largest = max(np.nanmax(np.abs(v.astype(np.float64)), initial=0.0) for run in wanted for v in run)
    cells = [f"{path.parent.name}/{path.name} ({largest:.2g})"]
    for target in targets:
        start = time.process_time()
        try:
            made = opset.convert(model, to=target)
        except OnnxbridgeError as error:
            cells.append("refused: " + "; ".join(p.reason for p in getattr(error, "problems", [])) if error else str(error))
            continue
        seconds = time.process_time() - start
        try:
            cells.append(f"{difference(run(made, feeds), wanted):.1e} ({len(made.graph.node)} nodes, {seconds:.1f} s)")
        except Exception as error:
            cells.append(f"FAILED: {str(error).strip().splitlines()[0]}")
    return cells


def pairs(texts: list[str], kind: Any) -> dict[str, Any]:
    return {name: kind(number) for name, _, number in (t.rpartition("=") for t in texts)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--to", default="11,13,15,17,21,26")
    parser.add_argument("--size", action="append", default=[])
    parser.add_argument("--value", action="append", default=[])
    arguments = parser.parse_args()
    targets = [int(t) for t in arguments.to.split(",")]
    print("| model | " + " | ".join(map(str, targets)) + " |", "|---" * (len(targets) + 1) + "|", sep="\n")
    for path in arguments.models:
        cells = row(path, targets, pairs(arguments.size, int), pairs(arguments.value, float))
        print("| " + " | ".join(cells) + " |", flush=True)
