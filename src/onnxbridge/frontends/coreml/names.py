"""Hub names of a Core ML model's inputs, outputs and states."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from onnxbridge.errors import UnsafeFileError
from onnxbridge.formats.coreml.mil_program import Feature

INTERFACE = "onnxbridge.interface"
"""Metadata key under which the Core ML backend stores the names of the source."""
TOOL_PREFIXES = ("onnxbridge.", "com.github.apple.coremltools.")


@dataclass
class Names:
    """Hub names by Core ML's names. An output with the name of an input is renamed, unless it was that input in the source.

    `sizes` are the shapes of the source's inputs, by hub name, which contain the names of their dynamic dimensions.
    """

    inputs: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    states: dict[str, tuple[str, str]] = field(default_factory=dict)
    sizes: dict[str, tuple[int | str | None, ...]] = field(default_factory=dict)

    def dim_name(self, name: str, axis: int, rank: int) -> str:
        """The name of a dynamic dimension of an input."""
        known = self.sizes.get(name, ())
        label = known[axis] if len(known) == rank else None
        return label if isinstance(label, str) else f"{name}_{axis}"


def names(metadata: Mapping[str, str], inputs: list[Feature], outputs: list[Feature], states: list[str]) -> Names:
    """The source's names if the Core ML backend wrote the model, else Core ML's own names."""
    try:
        return _names(json.loads(metadata.get(INTERFACE, "{}")), inputs, outputs, states)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise UnsafeFileError(f"the model's {INTERFACE} is damaged ({type(e).__name__}); convert the source again") from e


def _names(interface: Any, inputs: list[Feature], outputs: list[Feature], states: list[str]) -> Names:
    hub_names = {p["coreml"]: p["hub"] for key in ("inputs", "outputs") for p in interface.get(key, ())}
    hub_states = {p["coreml"]: (p["hub"], output) for p, output in interface.get("states", ())}
    found = Names({f.name: hub_names.get(f.name, f.name) for f in inputs})
    found.sizes = {p["hub"]: tuple(p["shape"]) for p in interface.get("inputs", ()) if p["hub"] not in interface["images"]}
    found.states = {name: hub_states.get(name, (name, f"{name}_out")) for name in states}
    input_names = {*found.inputs.values(), *(hub_name for hub_name, _ in found.states.values())}
    for feature in outputs:
        name = hub_names.get(feature.name, feature.name)
        was_input = feature.name in hub_names and name in found.inputs.values()
        found.outputs[feature.name] = f"{name}_out" if name in input_names and not was_input else name
    return found


def portable_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    """The metadata without the entries of the tools that wrote the model."""
    return {key: value for key, value in metadata.items() if not key.startswith(TOOL_PREFIXES)}
