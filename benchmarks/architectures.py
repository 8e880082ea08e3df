"""Whole architectures from PyTorch to ONNX: converted, verified against PyTorch, counted and timed, as a Markdown table.

    python benchmarks/architectures.py [NAME ...] [--fixed] [--fast] [--untimed]

Weights are random and nothing is downloaded. The nodes of a model of fixed sizes stand beside what torch.onnx.export writes where
onnxscript is installed; the cost is the CPU time of `convert(verify=False)` over that of `torch.export.export` alone (medians of
three runs after a first).
Architectures whose library is not installed are left out. `--fixed` verifies at fixed sizes only,
`--untimed` leaves out the times (for a machine that is busy), `--fast` torch.onnx's nodes too.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.util
import io
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torchvision_operators
from families import Family, families

import onnxbridge
from onnxbridge.errors import OnnxbridgeError, VerificationError


def seconds(work: Callable[[], object], runs: int = 3) -> float:
    """The median CPU time, the first run not counted."""
    work()
    found = []
    for _ in range(runs):
        gc.collect()
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return statistics.median(found)


def nodes(proto: Any) -> int:
    """The nodes of a model, those in its subgraphs and functions too."""

    def of(graph: Any) -> int:
        inner = [a.g for n in graph.node for a in n.attribute if a.HasField("g")]
        return len(graph.node) + sum(of(g) for g in inner)

    return of(proto.graph) + sum(len(f.node) for f in proto.functions)


def theirs(module: torch.nn.Module, inputs: dict[str, Any]) -> str:
    """How many nodes torch.onnx writes for fixed sizes, or the error that it ends in."""
    if importlib.util.find_spec("onnxscript") is None:
        return ""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            made = torch.onnx.export(module, (), kwargs=inputs, dynamo=True, verbose=False)
        except Exception as error:  # what the other tool cannot do is a result here
            return type(error).__name__
    return "none" if made is None else str(nodes(made.model_proto))


def row(family: Family, at_fixed: bool, fast: bool, timed: bool) -> tuple[str, ...]:
    """One line of the table; its second cell begins with "PASSED" or says what went wrong."""
    module, inputs = family.build()
    dynamic = None if at_fixed else family.dynamic
    sizes = ", ".join(dict.fromkeys(label for axes in (dynamic or {}).values() for label in axes.values())) or "fixed"
    try:
        made = onnxbridge.convert(module, "onnx", inputs=inputs, dynamic=dynamic)
    except VerificationError as error:
        return family.name, f"FAILED {str(error).splitlines()[0]}", sizes, "", "", ""
    except OnnxbridgeError as error:
        return family.name, f"REFUSED {' / '.join(str(error).splitlines()[:4])}", sizes, "", "", ""
    worst = max(o.max_abs for o in made.report.outputs) if made.report else 0.0
    count, other, cost = str(nodes(made.model)), "", ""
    if not fast:
        fixed = nodes(onnxbridge.convert(module, "onnx", inputs=inputs, verify=False).model)
        count += f" / {fixed}"
        other = theirs(module, inputs)
    if timed and not fast:
        alone = seconds(lambda: exported(module, inputs))
        ours = seconds(lambda: onnxbridge.convert(module, "onnx", inputs=inputs, verify=False))
        cost = f"{ours:.2f} / {alone:.2f} = {ours / alone:.2f}"
    return family.name, f"PASSED {worst:.1g}", sizes, count, other, cost


def exported(module: torch.nn.Module, inputs: dict[str, Any]) -> Any:
    with torch.no_grad():
        return torch.export.export(module, (), inputs, strict=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--untimed", action="store_true")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    torchvision_operators.ensure()
    print("| architecture | verified, largest difference | varies | nodes / fixed | torch.onnx | CPU s / torch.export |")
    print("|---|---|---|---|---|---|")
    for family in families():
        if asked.names and not any(name.lower() in family.name.lower() for name in asked.names):
            continue
        if family.needs and importlib.util.find_spec(family.needs) is None:
            print(f"{family.name}: {family.needs} is not installed", file=sys.stderr)
            continue
        try:
            cells = row(family, asked.fixed, asked.fast, not asked.untimed)
        except Exception as error:  # the other architectures are looked at all the same
            text = (str(error).strip() or "no message").splitlines()[0]
            cells = (family.name, f"ERROR {type(error).__name__}: {text[:300]}", "", "", "", "")
        print(f"| {' | '.join(cells)} |", flush=True)
        gc.collect()


if __name__ == "__main__":
    main()
