"""Compares the executor with other engines: CPU time of a run and of the first run, and memory.

    python benchmarks/executor.py [MODEL ...] [--engines ort,onnxbridge,reference,torch] [--threads 1] [--runs 7] [--markdown]

A MODEL is a file, or the name of one of the networks in the onnx package ("resnet50"); the default is all of those. Inputs are
normally distributed (integers are 0 or 1; dynamic sizes are 1). Each engine has its own process, and runs alternate, so that load
on the machine affects all. With one thread the time of a run is the median CPU time, else the minimum wall-clock time; the ratio
is relative to the first engine. `torch` (eager) needs PyTorch.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import onnx

Run = Callable[[dict[str, Any]], Any]


def feeds_of(path: str) -> dict[str, Any]:
    """Deterministic inputs for a model."""
    rng = np.random.default_rng(7)
    graph = onnx.load(path, load_external_data=False).graph
    initializers = {i.name for i in graph.initializer}
    feeds: dict[str, Any] = {}
    for value in graph.input:
        if value.name in initializers:
            continue
        kind = value.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        shape = [d.dim_value or 1 for d in kind.shape.dim]
        integer = dtype.kind in "iub"
        feeds[value.name] = (rng.integers(0, 2, shape) if integer else rng.standard_normal(shape)).astype(dtype)
    return feeds


def ort(path: str, threads: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda feeds: session.run(None, feeds)


def onnxbridge(path: str, threads: int) -> Run:
    from onnxbridge.runtime import Executor

    executor = Executor(path)
    return lambda feeds: executor.run(None, feeds)


def reference(path: str, threads: int) -> Run:
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(path)
    return lambda feeds: evaluator.run(None, feeds)


def torch(path: str, threads: int) -> Run:
    import torch as framework

    from onnxbridge import convert

    framework.set_num_threads(threads)
    module = convert(path, to="pytorch", verify=False).model.eval()

    def run(feeds: dict[str, Any]) -> Any:
        with framework.inference_mode():
            return module(*(framework.from_numpy(v) for v in feeds.values()))

    return run


ENGINES = {"ort": ort, "onnxbridge": onnxbridge, "reference": reference, "torch": torch}


def bundled_models() -> dict[str, str]:
    """The networks in the onnx package, by name."""
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    return {p.stem.removeprefix("light_"): str(p) for p in sorted(folder.glob("light_*.onnx"))}


def resident_memory() -> float:
    """The resident memory of this process in MiB; NaN if unavailable."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
    except OSError:
        return float("nan")


def worker(engine: str, path: str, threads: int, pipe: Connection) -> None:
    try:
        before, begin = resident_memory(), time.process_time()
        run, feeds = ENGINES[engine](path, threads), feeds_of(path)
        run(feeds)
        pipe.send((time.process_time() - begin, resident_memory() - before))
    except Exception as e:  # an engine's error is reported in its row
        pipe.send(f"{type(e).__name__}: {e}")
        return
    clock = time.process_time if threads == 1 else time.perf_counter
    while pipe.recv():
        begin = clock()
        run(feeds)
        pipe.send(clock() - begin)


def measure(engines: list[str], path: str, threads: int, runs: int) -> dict[str, Any]:
    """For each engine (CPU time of the first run, memory, time of a run), or its error message."""
    context = multiprocessing.get_context("spawn")
    results: dict[str, Any] = {}
    pipes = {}
    for engine in engines:
        parent_end, child_end = context.Pipe()
        process = context.Process(target=worker, args=(engine, path, threads, child_end), daemon=True)
        process.start()
        results[engine] = parent_end.recv()
        if not isinstance(results[engine], str):
            pipes[engine] = (parent_end, process, [])
    for _ in range(runs):
        for parent_end, _, times in pipes.values():
            parent_end.send(True)
            times.append(parent_end.recv())
    for engine, (parent_end, process, times) in pipes.items():
        parent_end.send(False)
        process.join()
        results[engine] = (*results[engine], statistics.median(times) if threads == 1 else min(times))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--engines", default="ort,onnxbridge,reference,torch")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    engines = options.engines.split(",")
    unknown = set(engines) - set(ENGINES)
    if unknown:
        sys.exit(f"unknown engine {min(unknown)!r}; choose from {', '.join(ENGINES)}")
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "ONNXBRIDGE_THREADS"):
        os.environ[name] = str(options.threads)
    bundled = bundled_models()
    paths = {name: bundled.get(name, name) for name in options.models} or bundled
    print_rows = as_markdown if options.markdown else as_lines
    rows = (measure(engines, path, options.threads, options.runs) for path in paths.values())
    print_rows(engines, zip(map(os.path.basename, paths), rows, strict=True))


def ratio(results: dict[str, Any], engine: str, first: str) -> float:
    """An engine's time relative to the first engine; NaN if one of them failed."""
    both_ran = not isinstance(results[engine], str) and not isinstance(results[first], str)
    return float(results[engine][2] / results[first][2]) if both_ran else float("nan")


def mean(ratios: list[float]) -> float:
    """The geometric mean of the ratios that are not NaN."""
    known = np.array([r for r in ratios if r == r])
    return float(np.exp(np.log(known).mean())) if known.size else float("nan")


def as_lines(engines: list[str], rows: Iterable[tuple[str, dict[str, Any]]]) -> None:
    ratios: dict[str, list[float]] = {engine: [] for engine in engines}
    print(f"{'model':<28}{'engine':<12}{'first ms':>10}{'run ms':>10}{'ratio':>8}{'MiB':>8}")
    for name, results in rows:
        for engine, row in results.items():
            if isinstance(row, str):
                print(f"{name:<28}{engine:<12}{row.splitlines()[0][:80]}")
                continue
            ratios[engine].append(ratio(results, engine, engines[0]))
            first, memory, run = row
            ratio_to_first = ratios[engine][-1]
            print(f"{name:<28}{engine:<12}{first * 1e3:>10.1f}{run * 1e3:>10.2f}{ratio_to_first:>8.2f}{memory:>8.0f}", flush=True)
    for engine, values in ratios.items():
        if values:
            print(f"{engine}: geometric mean {mean(values):.2f} of {engines[0]}, worst {max(values):.2f}")


def as_markdown(engines: list[str], rows: Iterable[tuple[str, dict[str, Any]]]) -> None:
    ratios: dict[str, list[float]] = {engine: [] for engine in engines}
    print("| model | " + " | ".join(f"{engine} ms" for engine in engines) + " |\n|---" + "|---:" * len(engines) + "|")
    for name, results in rows:
        cells = []
        for engine in engines:
            ratios[engine].append(ratio(results, engine, engines[0]))
            row, ratio_to_first = results[engine], f" ({ratios[engine][-1]:.2f})" if engine != engines[0] else ""
            cells.append("failed" if isinstance(row, str) else f"{row[2] * 1e3:.1f}{ratio_to_first}")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    print("| geometric mean | | " + " | ".join(f"{mean(ratios[engine]):.2f}" for engine in engines[1:]) + " |")


if __name__ == "__main__":
    main()
