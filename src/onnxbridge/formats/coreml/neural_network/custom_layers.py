"""Custom layers, whose code is in the app and not in the file: the attributes of their rules, and the error without a rule."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxbridge.errors import UnsafeFileError, Unsupported
from onnxbridge.formats.coreml.neural_network import weights as stored
from onnxbridge.lowering import Call

PREFIX = "custom."
"""Prefix of the rule name of a custom layer, followed by the layer's class name."""


def attributes(params: Any) -> dict[str, Any]:
    """The layer's parameters by name, and its flat weights as `weights`. The description, meant for readers, is omitted.

    Raises:
        UnsafeFileError: if a parameter is called `weights`, too.
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
    """The error for a layer without a rule, with its attributes and the signature of the rule to write."""
    parameters = {k: v for k, v in call.attrs.items() if k != "weights"}
    arrays = call.attrs.get("weights", ())
    details = [f"{k}={v!r}" for k, v in parameters.items()]
    if arrays:
        details.append(f"weights of {', '.join(str(np.size(w)) for w in arrays)} numbers")
    names = [f"x{i}" for i in range(len(call.inputs))] if len(call.inputs) > 1 else ["x"]
    keywords = ", ".join([*(k for k in parameters if k.isidentifier()), *(["weights"] if arrays else [])])
    signature = f"def layer(mil, {', '.join(names)}{', *, ' if keywords else ''}{keywords})"
    return Unsupported(
        f"no rule for the custom layer{' with ' if details else ''}{', '.join(details)}",
        f'register one: from onnxbridge.formats.coreml.neural_network.ops import rule; @rule("{call.op}") {signature}; '
        "see docs/coreml.md for an example",
    )
