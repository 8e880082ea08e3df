"""Random graphs in bulk: python tests/fuzz/run.py --count 10000 --seed 0

Each seed is a graph. Prints how many agree, and every kind of disagreement with its first seeds. Graphs run in child processes,
since some end ONNX Runtime's process; such a seed is listed and passed over.
"""

from __future__ import annotations

import argparse
import collections
import multiprocessing
import signal
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

if not __package__:  # run as a script
    sys.path.insert(0, str(Path(__file__).parents[2]))


def work(pipe: Any) -> None:
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the parent's to tell
    import numpy as np

    from tests.fuzz import compare as judge
    from tests.fuzz import graphs
    from tests.fuzz import known_disagreements as known
    from tests.fuzz import opset_conversions as converted

    with np.errstate(all="ignore"):
        while (seed := pipe.recv()) is not None:
            try:
                graph = graphs.drawn(seed)
                found, skipped = judge.compare(graph)
                found += converted.refused(graph, seed)
                told = [(d.whom, d.node.op_type, d.what, known.reason(d, graph)) for d in found]
            except Exception:  # a fault of the fuzzer itself
                pipe.send(f"seed {seed}: {traceback.format_exc()}")
                continue
            pipe.send((len(graph.nodes), told, skipped))


def start() -> tuple[Any, Any]:
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=work, args=(there,), daemon=True)
    child.start()
    there.close()
    return child, here


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=120, help="that one graph may take")
    parser.add_argument("--skipped", action="store_true", help="print what could not be compared too")
    args = parser.parse_args()
    kinds: dict[Any, list[int]] = collections.defaultdict(list)
    skips: collections.Counter[str] = collections.Counter()
    nodes, agree, ended, late, faults = 0, 0, [], [], []
    child, pipe = start()
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))  # it tells what it has seen until then
    done = 0
    for seed in range(args.seed, args.seed + args.count):
        if stopped:
            break
        done += 1
        pipe.send(seed)
        if not pipe.poll(args.seconds):
            late.append(seed)
            child.kill()
            child, pipe = start()
            continue
        try:
            answer = pipe.recv()
        except EOFError:
            ended.append(seed)
            child, pipe = start()
            continue
        if isinstance(answer, str):
            faults.append(answer)
            continue
        count, told, skipped = answer
        nodes += count
        agree += not told
        skips.update(skipped)
        for kind in told:
            kinds[kind].append(seed)
    pipe.send(None)
    print(f"{done} graphs, {nodes} nodes: {agree} agree throughout; the process ended on {ended}, was too slow on {late}")
    for (whom, op, what, why), seeds in sorted(kinds.items(), key=lambda i: (i[0][3], -len(i[1]))):
        print(f"{len(seeds):5} {whom} {op}: {what} [{why or 'UNEXPLAINED'}] seeds {seeds[:4]}")
    print(f"not compared: {sum(skips.values())} nodes")
    if faults:
        raise SystemExit("\n".join(["faults of the fuzzer itself:", *faults]))
    if args.skipped:
        for text, count in skips.most_common():
            print(f"{count:5} {text}")


if __name__ == "__main__":
    main()
