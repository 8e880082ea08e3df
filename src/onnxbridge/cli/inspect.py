"""`onnxbridge inspect`."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

import click

from onnxbridge.cli.shared import options, shell, types
from onnxbridge.cli.shared.model_cost import cost, cost_text, weights_text
from onnxbridge.diagnostics import one_line
from onnxbridge.errors import UsageError
from onnxbridge.hub.ir.values import dtype_name

if TYPE_CHECKING:
    from onnxbridge.plugin_protocols import Outline
    from onnxbridge.runtime.executor.explain import Planned


@click.command("inspect")
@click.argument("source", type=types.LOCATION)
@click.argument("weights", required=False, type=types.LOCATION)
@options.frontend
@options.inputs
@options.dynamic
@options.imports
@options.guarded
@click.option("--plan", is_flag=True, help="Also show how the bundled executor runs it: fused steps, algorithms, cost.")
@options.json
def command(source: str, weights: str | None, plan: bool, as_json: bool, **given: Any) -> None:
    """Show the inputs, outputs, weights, operators and origin of SOURCE, what it costs to run, and the lowest opset that can
    express it.

    MACs (multiply-accumulate operations) and the memory of activations depend on dynamic sizes; give these by --dynamic N=4 or
    in --inputs. With bounds (N=1..64), the upper one is used.

    \b
      onnxbridge inspect net.onnx --dynamic N=1
      onnxbridge inspect net.pt2 --json
    """
    from onnxbridge import isolation, plugins
    from onnxbridge.api._arguments.example_inputs import parsed_dynamic, parsed_inputs
    from onnxbridge.api._load import to_hub

    settings = options.chosen(given)
    if "dynamic" in settings:
        settings["dynamic"] = [re.sub(r"^(\w+)=(\d+)$", r"\1=\2..\2", text) for text in settings["dynamic"]]
    both = (source, weights) if weights else source
    plugins.import_modules(settings.get("imports"))
    reader = isolation.frontend_for(both, given["frontend"])
    try:
        model = to_hub(reader, both, parsed_inputs(settings.get("inputs")), parsed_dynamic(settings.get("dynamic"))[0])
    except UsageError as e:
        outline = None if settings.get("inputs") else reader.outline(both)
        if outline is None:
            raise
        found = outlined(outline) | {"origin": dict(reader.origin(both))}
        shell.outcome.tell(**found)
        if not as_json:
            _show_outline(found)
        shell.note(f"note: {e}")
        return
    sizes = {name: high for name, (_, high) in _bounds(settings.get("dynamic")).items() if high is not None}
    found = describe(model) | cost(model, sizes) | {"origin": dict(reader.origin(both))}
    steps = plan_of(model) if plan else []
    if plan:
        found["plan"] = [asdict(step) for step in steps]
    shell.outcome.tell(**found)
    if not as_json:
        _show(found, steps)


def _show(found: dict[str, Any], steps: list[Planned]) -> None:
    for kind in ("inputs", "outputs"):
        for v in found[kind]:
            sizes = f"  sizes {v['sizes']}" if v["sizes"] else ""
            sizes += f"  keys {', '.join(map(str, v['keys']))}" if v["keys"] else ""
            shape = ", ".join("?" if d is None else str(d) for d in v["shape"])
            shell.say(one_line(f"{kind[:-1]:7} {v['name']}: {v['dtype']}[{shape}]{sizes}"))
    w = found["weights"]
    shell.say(f"weights {w['tensors']} tensors, {w['elements']:,} elements, {w['bytes']:,} bytes")
    for line in (*weights_text(found["parameters"]), *cost_text(found)):
        shell.say(one_line(line))
    own = f"{found['opset']} in the file; " if found["opset"] else ""
    shell.say(f"opset   {own}{found['lowest_opset']} is the lowest (from 18 up) that can express it")
    for problem in found["below_it"]:
        shell.say(one_line(f"        {problem}"))
    shell.say(one_line("nodes   " + ", ".join(f"{op} {n}" for op, n in found["operators"].items())))
    for key, value in found["metadata"].items():
        shell.say(one_line(f"        {key} = {value}"))
    origin = {key: value for key, value in found["origin"].items() if found["metadata"].get(key) != value}
    for label, (key, value) in zip(chain(["origin "], repeat(" " * 7)), origin.items(), strict=False):
        shell.say(one_line(f"{label} {key} = {value}"))
    for step in steps:
        made = " ".join("x".join(map(str, s)) or "scalar" for s in step.shapes)
        how = f"{step.runs}{', ' if step.algorithm else ''}{step.algorithm}"
        shell.say(f"step    {'+'.join(step.operators)} -> {made}: {how}; {step.bytes:,} bytes, {step.flops:,} flops")
    if steps:
        alone = sum(step.runs == "Python" for step in steps)
        shell.say(f"plan    {len(steps)} steps, {alone} of them in Python; {sum(s.flops for s in steps):,} flops")


def _bounds(dynamic: list[str] | None) -> dict[str, tuple[int, int | None]]:
    from onnxbridge.api._arguments.example_inputs import parsed_dynamic

    return parsed_dynamic(dynamic)[1]


def outlined(outline: Outline) -> dict[str, Any]:
    """The facts that `inspect` shows of a source whose shapes are not known; the operators are the source framework's own."""
    import numpy as np

    def named(names: Sequence[str]) -> list[dict[str, Any]]:
        return [{"name": name, "dtype": None, "shape": None} for name in names]

    weights = outline.weights.values()
    return {
        "inputs": named(outline.inputs), "outputs": named(outline.outputs),
        "weights": {
            "tensors": len(weights), "elements": sum(math.prod(shape) for _, shape in weights),
            "bytes": sum(math.prod(shape) * np.dtype(dtype).itemsize for dtype, shape in weights),
        },
        "operators": dict(sorted(outline.operators.items(), key=lambda item: (-item[1], item[0]))),
        "problems": [problem.as_dict() for problem in outline.problems],
    }  # fmt: skip


def _show_outline(found: dict[str, Any]) -> None:
    for kind in ("inputs", "outputs"):
        for v in found[kind]:
            shell.say(one_line(f"{kind[:-1]:7} {v['name']}: the shape is not known"))
    w = found["weights"]
    shell.say(f"weights {w['tensors']} tensors, {w['elements']:,} elements, {w['bytes']:,} bytes")
    shell.say(one_line("nodes   " + ", ".join(f"{op} {n}" for op, n in found["operators"].items())))
    for problem in found["problems"]:
        shell.say(one_line(f"        {problem['op']} x{problem['count']}: {problem['reason']}"))
    for label, (key, value) in zip(chain(["origin "], repeat(" " * 7)), found["origin"].items(), strict=False):
        shell.say(one_line(f"{label} {key} = {value}"))


def plan_of(model: Any) -> list[Planned]:
    """The bundled executor's steps on random inputs."""
    from onnxbridge.runtime import Executor

    return Executor(model).explain()


# The newest opsets of runtimes that are in use.
_STEPS = (21, 17, 13, 11)


def describe(model: Any) -> dict[str, Any]:
    """The facts that `inspect` shows, as a dictionary."""
    from onnxbridge.hub.ir.graphs import every_graph
    from onnxbridge.hub.ir.schemas import name_of
    from onnxbridge.hub.opset import opset_conversion

    def value(v: Any) -> dict[str, Any]:
        shape = [d if isinstance(d, int) else d.value for d in v.shape] if v.shape is not None else None
        sizes, keys = v.metadata_props.get("onnxbridge.sizes", ""), json.loads(v.metadata_props.get("onnxbridge.keys", "[]"))
        dtype = dtype_name(v.dtype) if v.dtype else None
        return {"name": v.name, "dtype": dtype, "shape": shape or [], "sizes": sizes, "keys": keys}

    lowest = opset_conversion.lowest_opset(model)
    initializers = (v for graph in every_graph(model) for v in graph.initializers.values())
    weights = [v.const_value for v in initializers if v.const_value is not None]
    operators = Counter(name_of(n.op_type, n.domain) for n in model.graph.all_nodes())
    return {
        "inputs": [value(v) for v in model.graph.inputs],
        "outputs": [value(v) for v in model.graph.outputs],
        "weights": {"tensors": len(weights), "elements": sum(w.size for w in weights), "bytes": sum(w.nbytes for w in weights)},
        "operators": dict(sorted(operators.items(), key=lambda item: (-item[1], item[0]))),
        "opset": model.meta.get(opset_conversion.SOURCE_OPSET),
        "lowest_opset": lowest,
        "below_it": [
            f"opset {v}: {p.reason}" for v in _STEPS if v < lowest for p in opset_conversion.conversion_problems(model, v)
        ],
        "metadata": dict(model.metadata_props),
    }
