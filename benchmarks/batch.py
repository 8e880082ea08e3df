"""How many jobs of a batch finish in a minute: one after the other in this process, in processes of their own, and on Ray.

    python benchmarks/batch.py [--jobs N] [--to NAME ...]

The jobs are the nine light networks of the onnx package (DenseNet, ResNet-50, VGG, ...), each converted to ONNX and verified,
with a seed of its own so that no job is known from before.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import onnx

from onnxbridge.pipeline import run_batch, run_job

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


def jobs(count: int, to: list[str]) -> list[dict[str, Any]]:
    files = sorted(LIGHT.glob("*.onnx"))
    return [
        {"source": str(files[i % len(files)]), "to": to, "name": f"{files[i % len(files)].stem}_{i}", "seed": i, "samples": 1}
        for i in range(count)
    ]


def run(many: list[dict[str, Any]], executor: str, workers: int) -> tuple[int, float]:
    """How many jobs were done, and the seconds that it took."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        if executor:
            outcomes = run_batch(many, folder, workers=workers, executor=executor).outcomes
        else:
            outcomes = [run_job({**job, "output": folder}) for job in many]
        return sum(o["status"] == "done" for o in outcomes), time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=18)
    parser.add_argument("--to", nargs="+", default=["onnx"])
    given = parser.parse_args()
    many = jobs(given.jobs, given.to)

    ways = {
        "one after the other": ("", 0), "local, 1 worker": ("local", 1), "local, 2 workers": ("local", 2),
        "Ray, 1 worker": ("ray", 1), "Ray, 2 workers": ("ray", 2),
    }  # fmt: skip
    print("| jobs | seconds | jobs a minute | against one after the other |\n|---|---|---|---|")
    first = 0.0
    for name, (executor, workers) in ways.items():
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as own:  # a process in which nothing is loaded
            done, seconds = own.submit(run, many, executor, workers).result()
        first = first or seconds
        figures = f"{seconds:.1f} | {60 * done / seconds:.1f} | {first / seconds:.2f}"
        print(f"| {name}, {done} of {len(many)} done | {figures} |", flush=True)


if __name__ == "__main__":
    main()
