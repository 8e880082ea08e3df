"""The rules: ONNX operators as calls of TensorFlow."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping

from onnxbridge.rules import Rule, Rules

rule = Rules("backends.tensorflow", package=__name__)
channels_last = Rules("backends.tensorflow.channels_last")
"""Operators of the hub's domain `onnxbridge.channels_last`, by their names in ONNX."""


def all_rules() -> Mapping[str, Rule]:
    """The rules of ONNX's operators and of those with channels-last data, by the names that calls have."""
    from onnxbridge.hub.ir.schemas import name_of
    from onnxbridge.hub.passes.transposes.channels_last import DOMAIN

    rule.load()
    return ChainMap({name_of(op, DOMAIN): found for op, found in channels_last.items()}, rule)  # type: ignore[arg-type]
