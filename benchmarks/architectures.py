"""Converts whole architectures from PyTorch to ONNX, verifies them, counts nodes and measures time; prints a Markdown table.

    python benchmarks/architectures.py [NAME ...] [--fixed] [--fast] [--untimed]

Weights are random and nothing is downloaded. The number of nodes at static sizes is compared with torch.onnx.export if onnxscript
is installed. The cost is the CPU time of `convert(verify=False)` relative to `torch.export.export` (medians of three runs after a
warm-up). Architectures whose library is not installed are skipped. `--fixed` verifies static sizes only, `--untimed` skips the
time measurement, `--fast` also skips torch.onnx.
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


def seconds(function: Callable[[], object], runs: int = 3) -> float:
    """The median CPU time after a warm-up run."""
    function()
    times = []
    for _ in range(runs):
        gc.collect()
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return statistics.median(times)


def nodes(proto: Any) -> int:
    """The number of nodes of a model, including subgraphs and functions."""

    def of(graph: Any) -> int:
        inner = [a.g for n in graph.node for a in n.attribute if a.HasField("g")]
        return len(graph.node) + sum(of(g) for g in inner)

    return of(proto.graph) + sum(len(f.node) for f in proto.functions)


def torch_onnx_nodes(module: torch.nn.Module, inputs: dict[str, Any]) -> str:
    """The number of nodes that torch.onnx writes for static sizes, or the type of its error."""
    if importlib.util.find_spec("onnxscript") is None:
        return ""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            conversion = torch.onnx.export(module, (), kwargs=inputs, dynamo=True, verbose=False)
        except Exception as error:  # its errors are results
            return type(error).__name__
    return "none" if conversion is None else str(nodes(conversion.model_proto))


def row(family: Family, static_only: bool, fast: bool, timed: bool) -> tuple[str, ...]:
    """One row of the table; its second cell begins with "PASSED" or with the kind of failure."""
    module, inputs = family.build()
    dynamic = None if static_only else family.dynamic
    sizes = ", ".join(dict.fromkeys(label for axes in (dynamic or {}).values() for label in axes.values())) or "fixed"
    try:
        conversion = onnxbridge.convert(module, "onnx", inputs=inputs, dynamic=dynamic)
    except VerificationError as error:
        return family.name, f"FAILED {str(error).splitlines()[0]}", sizes, "", "", ""
    except OnnxbridgeError as error:
        return family.name, f"UNSUPPORTED {' / '.join(str(error).splitlines()[:4])}", sizes, "", "", ""
    worst = max(o.max_abs for o in conversion.report.outputs) if conversion.report else 0.0
    count, torch_onnx_count, cost = str(nodes(conversion.model)), "", ""
    if not fast:
        fixed = nodes(onnxbridge.convert(module, "onnx", inputs=inputs, verify=False).model)
        count += f" / {fixed}"
        torch_onnx_count = torch_onnx_nodes(module, inputs)
    if timed and not fast:
        export_seconds = seconds(lambda: exported(module, inputs))
        convert_seconds = seconds(lambda: onnxbridge.convert(module, "onnx", inputs=inputs, verify=False))
        cost = f"{convert_seconds:.2f} / {export_seconds:.2f} = {convert_seconds / export_seconds:.2f}"
    return family.name, f"PASSED {worst:.1g}", sizes, count, torch_onnx_count, cost


def exported(module: torch.nn.Module, inputs: dict[str, Any]) -> Any:
    with torch.no_grad():
        return torch.export.export(module, (), inputs, strict=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--untimed", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    torchvision_operators.ensure()
    print("| architecture | verified, largest difference | dynamic sizes | nodes / static | torch.onnx | CPU s / torch.export |")
    print("|---|---|---|---|---|---|")
    for family in families():
        if arguments.names and not any(name.lower() in family.name.lower() for name in arguments.names):
            continue
        if family.needs and importlib.util.find_spec(family.needs) is None:
            print(f"{family.name}: {family.needs} is not installed", file=sys.stderr)
            continue
        try:
            cells = row(family, arguments.fixed, arguments.fast, not arguments.untimed)
        except Exception as error:  # continue with the other architectures
            text = (str(error).strip() or "no message").splitlines()[0]
            cells = (family.name, f"ERROR {type(error).__name__}: {text[:300]}", "", "", "", "")
        print(f"| {' | '.join(cells)} |", flush=True)
        gc.collect()


if __name__ == "__main__":
    main()
