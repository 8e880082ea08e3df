"""Layers whose code is not in the file but in the app (`custom`): what a rule for one gets, and what is said without a rule."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxbridge.errors import UnsafeFileError, Unsupported
from onnxbridge.formats.coreml.neural_network import weights as stored
from onnxbridge.lowering import Call

PREFIX = "custom."
"""In front of the class name of a layer in the names of rules."""


def attributes(params: Any) -> dict[str, Any]:
    """The layer's parameters by their own names, and its weights, flat, as `weights`; what is left out is for people only.

    Raises:
        UnsafeFileError: if a parameter has the name of the weights.
    """
    found: dict[str, Any] = {}
    for name in sorted(params.parameters):
        value = params.parameters[name]
        found[name] = getattr(value, value.WhichOneof("value") or "intValue")
    if params.weights and "weights" in found:
        raise UnsafeFileError(f"the custom layer {params.className} has weights and a parameter of that name")
    if params.weights:
        found["weights"] = tuple(stored.flat(w) for w in params.weights)
    return found


def missing(call: Call) -> Unsupported:
    """What to say of a layer without a rule: what it has, and the head of the rule that it needs."""
    said = {k: v for k, v in call.attrs.items() if k != "weights"}
    arrays = call.attrs.get("weights", ())
    parts = [f"{k}={v!r}" for k, v in said.items()]
    if arrays:
        parts.append(f"weights of {', '.join(str(np.size(w)) for w in arrays)} numbers")
    names = [f"x{i}" for i in range(len(call.inputs))] if len(call.inputs) > 1 else ["x"]
    keywords = ", ".join([*(k for k in said if k.isidentifier()), *(["weights"] if arrays else [])])
    head = f"def layer(mil, {', '.join(names)}{', *, ' if keywords else ''}{keywords})"
    return Unsupported(
        f"no rule for the custom layer{', which has ' if parts else ''}{', '.join(parts)}",
        f'register one: from onnxbridge.formats.coreml.neural_network.ops import rule; @rule("{call.op}") {head}; '
        "docs/coreml.md shows one",
    )
