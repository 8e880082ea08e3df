"""What `inspect` shows of a model's weights and of its cost at given sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any


def cost(model: Any, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Parameters of a hub model, and its MACs and activation memory at sizes of its dynamic dimensions, as a dictionary.

    Raises:
        UsageError: for a size that the model does not have, or that contradicts it.
    """
    from onnxbridge.hub.analysis.cost.activation_memory import activation_memory
    from onnxbridge.hub.analysis.cost.fixed_sizes import at_sizes, dynamic_sizes
    from onnxbridge.hub.analysis.cost.macs import count_macs
    from onnxbridge.hub.analysis.cost.parameters import parameters

    sized = at_sizes(model, sizes)
    macs = count_macs(sized.graph)
    return {
        "parameters": asdict(parameters(model)),
        "sizes": dict(sizes),
        "sizes_not_given": dynamic_sizes(sized),
        "macs": {
            "total": macs.total, "by_operator": dict(macs.by_operator.most_common()), "unknown": dict(macs.unknown),
            "loops_of_unknown_length": macs.loops,
        },
        "activations": asdict(activation_memory(sized.graph)),
    }  # fmt: skip


def weights_text(found: Mapping[str, Any]) -> Iterator[str]:
    """The lines below the number of weights."""
    if len(found["by_dtype"]) > 1:
        for dtype, t in found["by_dtype"].items():
            yield f"        {dtype} {t['tensors']} tensors, {t['elements']:,} elements, {t['bytes']:,} bytes"
    if t := found["trained"]:
        yield f"        {t['elements']:,} elements in {t['tensors']} trained parameters"
    for label, w in zip(["largest", *["       "] * len(found["largest"])], found["largest"], strict=False):
        yield f"{label} {w['name']} {w['dtype']}{list(w['shape'])}, {w['bytes']:,} bytes"


def cost_text(found: Mapping[str, Any]) -> Iterator[str]:
    """MACs and memory, and what is missing to know them."""
    macs, memory, missing = found["macs"], found["activations"], found["sizes_not_given"]
    at = ", ".join(f"{name}={size}" for name, size in found["sizes"].items())
    known = f"{_least(macs['unknown'])}{macs['total']:,}" + (f" at {at}" if at else "")
    parts = ", ".join(f"{op} {count:,}" for op, count in macs["by_operator"].items() if count)
    yield f"macs    {known}{': ' if parts else ''}{parts}"
    if unknown := ", ".join(f"{op} {count}" for op, count in macs["unknown"].items()):
        yield f"        without those of {unknown}, whose sizes are unknown{_advice(missing)}"
    if macs["loops_of_unknown_length"]:
        yield f"        the bodies of {macs['loops_of_unknown_length']} loops are counted for one iteration"
    peak = f"{_least(memory['unknown'])}{memory['peak']:,} bytes of activations at the peak"
    yield f"memory  {peak}, {memory['total']:,} in total" + (f" at {at}" if at else "")
    if memory["unknown"]:
        yield f"        without those of {memory['unknown']} values, whose sizes are unknown{_advice(missing)}"


def _least(unknown: object) -> str:
    return "at least " if unknown else ""


def _advice(missing: list[str]) -> str:
    names = [name for name in missing if name.isidentifier()]
    if names:
        return f"; give {', '.join(names)} (--dynamic {names[0]}=4)"
    return f"; give the shapes of the inputs ({', '.join(missing)}) by --inputs" if missing else ""
