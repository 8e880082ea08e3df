"""Converts ONNX files to other opsets and compares their outputs in ONNX Runtime with those of the originals.

    python benchmarks/opsets.py MODEL.onnx ... --to 11,13,15,17,21,26 [--size frames=200] [--value sr=16000]

Prints a Markdown table: the largest absolute difference of any output on noise and on a smooth signal, or the conversion error;
the largest magnitude of the outputs follows the model's name. Several dynamic sizes are tried until the original runs; `--size`
sets them by name, `--value` sets an input to a constant.
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
from onnxbridge.runtime.verify.samples.random_inputs import samples_for

Feeds = list[dict[str, np.ndarray[Any, Any]]]


def smooth(shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """Values between 0 and 1 that vary slowly along each axis, as in images and sounds."""
    waves = [np.sin(np.arange(n) * (0.11 + 0.05 * axis) + axis) for axis, n in enumerate(shape)]
    total = np.zeros(shape)
    for axis, wave in enumerate(waves):
        total += wave.reshape([-1 if a == axis else 1 for a in range(len(shape))])
    return (0.5 + total / (2 * max(1, len(shape)))).astype(dtype)


def candidates(model: onnx.ModelProto, sizes: dict[str, int], fixed: dict[str, float]) -> Iterator[Feeds]:
    """Noise and smooth feeds for several choices of the dynamic sizes."""
    hub = onnx_files.from_proto(model)
    bounds = {name: (n, n) for name, n in sizes.items()}
    for size in (64, 32, 224, 512, 576, 2):
        feeds = samples_for(hub.graph, 1, 0, bounds, size, batch=1)
        feeds[0] = {k: v for k, v in feeds[0].items() if k not in hub.graph.initializers}
        feeds.append({k: smooth(v.shape, v.dtype) if v.dtype.kind == "f" else v for k, v in feeds[0].items()})
        yield [f | {k: np.full_like(f[k], v) for k, v in fixed.items() if k in f} for f in feeds]


def run(model: onnx.ModelProto, feeds: Feeds) -> list[list[Any]]:
    session = devices.session(model, "cpu", threads=1)
    return [session.run(None, f) for f in feeds]


def difference(actual: list[list[Any]], expected: list[list[Any]]) -> float:
    """The largest absolute difference; infinite if shapes, dtypes or positions of NaN differ."""
    largest = 0.0
    for f, w in zip((v for run in actual for v in run), (v for run in expected for v in run), strict=True):
        if f.shape != w.shape or f.dtype != w.dtype or not np.array_equal(np.isnan(f), np.isnan(w)):
            return np.inf
        errors = np.abs(f.astype(np.float64) - w.astype(np.float64))[f != w]
        largest = max(largest, np.nanmax(errors, initial=0.0))
    return largest


def row(path: Path, targets: list[int], sizes: dict[str, int], fixed: dict[str, float]) -> list[str]:
    """One row of the table."""
    model = onnx.load(path)
    for feeds in candidates(model, sizes, fixed):
        try:
            expected = run(model, feeds)
            break
        except Exception as error:
            reason = str(error).strip().splitlines()[0]
    else:
        return [f"{path.parent.name}/{path.name}", *[f"the original does not run: {reason}"] * len(targets)]
    largest = max(np.nanmax(np.abs(v.astype(np.float64)), initial=0.0) for run in expected for v in run)
    cells = [f"{path.parent.name}/{path.name} ({largest:.2g})"]
    for target in targets:
        start = time.process_time()
        try:
            converted = opset.convert(model, to=target)
        except OnnxbridgeError as error:
            cells.append("unsupported: " + "; ".join(p.reason for p in getattr(error, "problems", [])) if error else str(error))
            continue
        seconds = time.process_time() - start
        try:
            cells.append(
                f"{difference(run(converted, feeds), expected):.1e} ({len(converted.graph.node)} nodes, {seconds:.1f} s)"
            )
        except Exception as error:
            cells.append(f"FAILED: {str(error).strip().splitlines()[0]}")
    return cells


def pairs(assignments: list[str], type_: Any) -> dict[str, Any]:
    return {name: type_(number) for name, _, number in (t.rpartition("=") for t in assignments)}


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
