"""`onnxbridge inspect`."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click

from onnxbridge.cli import options, shell


@click.command("inspect")
@click.argument("source")
@click.argument("weights", required=False)
@options.frontend
@options.inputs
@options.dynamic
@options.json
def command(source: str, weights: str | None, as_json: bool, **given: Any) -> None:
    """Tell what SOURCE holds: inputs, outputs, operators, weights, where it comes from, the lowest opset that holds it."""
    from onnxbridge import api

    settings = options.chosen(given)
    found = describe(api.load((source, weights) if weights else source, **settings))
    if as_json:
        shell.say(shell.as_json(found))
        return
    for kind in ("inputs", "outputs"):
        for v in found[kind]:
            shell.say(f"{kind[:-1]:7} {v['name']}: {v['dtype']}[{', '.join(map(str, v['shape']))}]")
    w = found["weights"]
    shell.say(f"weights {w['tensors']} tensors, {w['elements']:,} elements, {w['bytes']:,} bytes")
    shell.say(f"opset   {found['lowest_opset']} is the lowest from 18 up that holds it")
    for problem in found["below_it"]:
        shell.say(f"        {problem}")
    shell.say("nodes   " + ", ".join(f"{op} {n}" for op, n in found["operators"].items()))
    for key, value in found["metadata"].items():
        shell.say(f"        {key} = {value}")


# The opsets that runtimes in use stop at.
_STEPS = (21, 17, 13, 11)


def describe(model: Any) -> dict[str, Any]:
    """What there is to tell about a hub model."""
    from onnxbridge.hub import opset
    from onnxbridge.hub.schemas import name_of

    def value(v: Any) -> dict[str, Any]:
        shape = [d if isinstance(d, int) else d.value for d in v.shape] if v.shape is not None else None
        return {"name": v.name, "dtype": v.dtype.name.lower() if v.dtype else None, "shape": shape or []}

    lowest = opset.lowest(model)
    weights = [v.const_value for v in model.graph.initializers.values() if v.const_value is not None]
    operators = Counter(name_of(n.op_type, n.domain) for n in model.graph.all_nodes())
    return {
        "inputs": [value(v) for v in model.graph.inputs],
        "outputs": [value(v) for v in model.graph.outputs],
        "weights": {"tensors": len(weights), "elements": sum(w.size for w in weights), "bytes": sum(w.nbytes for w in weights)},
        "operators": dict(sorted(operators.items(), key=lambda item: (-item[1], item[0]))),
        "lowest_opset": lowest,
        "below_it": [f"opset {v}: {p.reason}" for v in _STEPS if v < lowest for p in opset.in_the_way(model, v)],
        "metadata": dict(model.metadata_props),
    }
