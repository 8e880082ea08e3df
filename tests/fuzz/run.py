"""Runs the fuzzer on many graphs: python tests/fuzz/run.py --count 10000 --seed 0

Each seed is a graph. Prints how many agree, and every kind of disagreement with its first seeds. Graphs run in a child process,
because some crash ONNX Runtime; such seeds are listed and skipped.
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
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the parent handles it
    import numpy as np

    from tests.fuzz import compare, graphs, known_disagreements, opset_conversions

    with np.errstate(all="ignore"):
        while (seed := pipe.recv()) is not None:
            try:
                graph = graphs.random_graph(seed)
                found, skipped = compare.compare(graph)
                found += opset_conversions.check_other_opsets(graph, seed)
                kinds_found = [(d.checker, d.node.op_type, d.difference, known_disagreements.reason(d, graph)) for d in found]
            except Exception:  # an error in the fuzzer itself
                pipe.send(f"seed {seed}: {traceback.format_exc()}")
                continue
            pipe.send((len(graph.nodes), kinds_found, skipped))


def start() -> tuple[Any, Any]:
    parent_end, child_end = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=work, args=(child_end,), daemon=True)
    child.start()
    child_end.close()
    return child, parent_end


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=120, help="time limit for one graph")
    parser.add_argument("--skipped", action="store_true", help="also print what could not be compared")
    args = parser.parse_args()
    kinds: dict[Any, list[int]] = collections.defaultdict(list)
    skips: collections.Counter[str] = collections.Counter()
    nodes, agree, crashed, timed_out, fuzzer_errors = 0, 0, [], [], []
    child, pipe = start()
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))  # prints the results so far
    done = 0
    for seed in range(args.seed, args.seed + args.count):
        if stopped:
            break
        done += 1
        pipe.send(seed)
        if not pipe.poll(args.seconds):
            timed_out.append(seed)
            child.kill()
            child, pipe = start()
            continue
        try:
            result = pipe.recv()
        except EOFError:
            crashed.append(seed)
            child, pipe = start()
            continue
        if isinstance(result, str):
            fuzzer_errors.append(result)
            continue
        count, kinds_found, skipped = result
        nodes += count
        agree += not kinds_found
        skips.update(skipped)
        for kind in kinds_found:
            kinds[kind].append(seed)
    pipe.send(None)
    print(f"{done} graphs, {nodes} nodes: {agree} agree; crashed on seeds {crashed}, timed out on {timed_out}")
    for (checker, op, difference, explanation), seeds in sorted(kinds.items(), key=lambda i: (i[0][3], -len(i[1]))):
        print(f"{len(seeds):5} {checker} {op}: {difference} [{explanation or 'UNEXPLAINED'}] seeds {seeds[:4]}")
    print(f"not compared: {sum(skips.values())} nodes")
    if fuzzer_errors:
        raise SystemExit("\n".join(["errors in the fuzzer itself:", *fuzzer_errors]))
    if args.skipped:
        for text, count in skips.most_common():
            print(f"{count:5} {text}")


if __name__ == "__main__":
    main()
