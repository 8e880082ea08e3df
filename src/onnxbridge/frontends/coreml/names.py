"""The hub's names of a Core ML model's inputs, outputs and states."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from onnxbridge.formats.coreml.mil_program import Feature

INTERFACE = "onnxbridge.interface"
"""Under this key of a model's metadata our own backend tells the names of the source."""
OURS = ("onnxbridge.", "com.github.apple.coremltools.")


@dataclass
class Names:
    """Hub names by Core ML's. An output of an input's name has another one, unless it was that input in the source. `sizes` are
    those of the source's inputs, by the hub's names: what Core ML leaves open has a name there, which may tie it to another."""

    inputs: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    states: dict[str, tuple[str, str]] = field(default_factory=dict)
    sizes: dict[str, tuple[int | str | None, ...]] = field(default_factory=dict)

    def open_size(self, name: str, axis: int, rank: int) -> str:
        """What the size of an input's axis is called that the model leaves open."""
        known = self.sizes.get(name, ())
        label = known[axis] if len(known) == rank else None
        return label if isinstance(label, str) else f"{name}_{axis}"


def names(metadata: Mapping[str, str], inputs: list[Feature], outputs: list[Feature], states: list[str]) -> Names:
    """The names of the source of a model that our backend made, Core ML's own for any other."""
    held = json.loads(metadata.get(INTERFACE, "{}"))
    was = {p["coreml"]: p["hub"] for side in ("inputs", "outputs") for p in held.get(side, ())}
    kept = {p["coreml"]: (p["hub"], output) for p, output in held.get("states", ())}
    found = Names({f.name: was.get(f.name, f.name) for f in inputs})
    found.sizes = {p["hub"]: tuple(p["shape"]) for p in held.get("inputs", ()) if p["hub"] not in held["images"]}
    found.states = {name: kept.get(name, (name, f"{name}_out")) for name in states}
    taken = {*found.inputs.values(), *(first for first, _ in found.states.values())}
    for feature in outputs:
        name = was.get(feature.name, feature.name)
        same = feature.name in was and name in found.inputs.values()
        found.outputs[feature.name] = f"{name}_out" if name in taken and not same else name
    return found


def told(metadata: Mapping[str, str]) -> dict[str, str]:
    """What of a model's metadata goes with it: not what the tools that wrote it say of themselves."""
    return {key: value for key, value in metadata.items() if not key.startswith(OURS)}
