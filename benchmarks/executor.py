"""The bundled executor side by side with other engines: CPU time of a run, the first answer, and what it holds in memory.

    python benchmarks/executor.py [MODEL ...] [--engines ort,onnxbridge,reference,torch] [--threads 1] [--runs 7] [--markdown]

A MODEL is a file, or the name of one of the networks that come with the onnx package ("resnet50"); without any it is all of
those. Inputs are drawn from a normal distribution (whole numbers are 0 or 1; sizes that are not fixed count as 1). Every
engine gets a process of its own, and their runs take turns, so that a busy machine slows them alike. With one thread a
run's figure is the median of its CPU times, with more the best of its times on the clock. Beside it stands the ratio to the
first engine. `torch` (eager) needs onnxbridge's PyTorch backend and what that needs.
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
    """Inputs for a model, the same ones every time."""
    rng = np.random.default_rng(7)
    graph = onnx.load(path, load_external_data=False).graph
    given = {i.name for i in graph.initializer}
    feeds: dict[str, Any] = {}
    for value in graph.input:
        if value.name in given:
            continue
        kind = value.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        shape = [d.dim_value or 1 for d in kind.shape.dim]
        whole = dtype.kind in "iub"
        feeds[value.name] = (rng.integers(0, 2, shape) if whole else rng.standard_normal(shape)).astype(dtype)
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


def bundled() -> dict[str, str]:
    """The networks that come with the onnx package, by name."""
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    return {p.stem.removeprefix("light_"): str(p) for p in sorted(folder.glob("light_*.onnx"))}


def held() -> float:
    """The memory that this process holds, in MiB; NaN where the system does not tell."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
    except OSError:
        return float("nan")


def worker(engine: str, path: str, threads: int, pipe: Connection) -> None:
    try:
        before, begin = held(), time.process_time()
        run, feeds = ENGINES[engine](path, threads), feeds_of(path)
        run(feeds)
        pipe.send((time.process_time() - begin, held() - before))
    except Exception as e:  # whatever an engine fails with is its line of the table
        pipe.send(f"{type(e).__name__}: {e}")
        return
    clock = time.process_time if threads == 1 else time.perf_counter
    while pipe.recv():
        begin = clock()
        run(feeds)
        pipe.send(clock() - begin)


def measured(engines: list[str], path: str, threads: int, runs: int) -> dict[str, Any]:
    """For each engine (CPU time of the first answer, memory, time of a run), or the text of what it failed with."""
    context = multiprocessing.get_context("spawn")
    found: dict[str, Any] = {}
    pipes = {}
    for engine in engines:
        here, there = context.Pipe()
        process = context.Process(target=worker, args=(engine, path, threads, there), daemon=True)
        process.start()
        found[engine] = here.recv()
        if not isinstance(found[engine], str):
            pipes[engine] = (here, process, [])
    for _ in range(runs):
        for here, _, times in pipes.values():
            here.send(True)
            times.append(here.recv())
    for engine, (here, process, times) in pipes.items():
        here.send(False)
        process.join()
        found[engine] = (*found[engine], statistics.median(times) if threads == 1 else min(times))
    return found


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
        sys.exit(f"no engine {min(unknown)!r}; there are {', '.join(ENGINES)}")
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "ONNXBRIDGE_THREADS"):
        os.environ[name] = str(options.threads)
    there = bundled()
    paths = {name: there.get(name, name) for name in options.models} or there
    show = as_markdown if options.markdown else as_lines
    rows = (measured(engines, path, options.threads, options.runs) for path in paths.values())
    show(engines, zip(map(os.path.basename, paths), rows, strict=True))


def ratio(found: dict[str, Any], engine: str, first: str) -> float:
    """An engine's time as a multiple of the first one's."""
    whole = not isinstance(found[engine], str) and not isinstance(found[first], str)
    return float(found[engine][2] / found[first][2]) if whole else float("nan")


def mean(ratios: list[float]) -> float:
    """The geometric mean of those that there are."""
    known = np.array([r for r in ratios if r == r])
    return float(np.exp(np.log(known).mean())) if known.size else float("nan")


def as_lines(engines: list[str], rows: Iterable[tuple[str, dict[str, Any]]]) -> None:
    ratios: dict[str, list[float]] = {engine: [] for engine in engines}
    print(f"{'model':<28}{'engine':<12}{'first ms':>10}{'run ms':>10}{'ratio':>8}{'MiB':>8}")
    for name, found in rows:
        for engine, row in found.items():
            if isinstance(row, str):
                print(f"{name:<28}{engine:<12}{row.splitlines()[0][:80]}")
                continue
            ratios[engine].append(ratio(found, engine, engines[0]))
            first, memory, run = row
            by = ratios[engine][-1]
            print(f"{name:<28}{engine:<12}{first * 1e3:>10.1f}{run * 1e3:>10.2f}{by:>8.2f}{memory:>8.0f}", flush=True)
    for engine, values in ratios.items():
        if values:
            print(f"{engine}: geometric mean {mean(values):.2f} of {engines[0]}, worst {max(values):.2f}")


def as_markdown(engines: list[str], rows: Iterable[tuple[str, dict[str, Any]]]) -> None:
    ratios: dict[str, list[float]] = {engine: [] for engine in engines}
    print("| model | " + " | ".join(f"{engine} ms" for engine in engines) + " |\n|---" + "|---:" * len(engines) + "|")
    for name, found in rows:
        cells = []
        for engine in engines:
            ratios[engine].append(ratio(found, engine, engines[0]))
            row, by = found[engine], f" ({ratios[engine][-1]:.2f})" if engine != engines[0] else ""
            cells.append("not run" if isinstance(row, str) else f"{row[2] * 1e3:.1f}{by}")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    print("| geometric mean | | " + " | ".join(f"{mean(ratios[engine]):.2f}" for engine in engines[1:]) + " |")


if __name__ == "__main__":
    main()
