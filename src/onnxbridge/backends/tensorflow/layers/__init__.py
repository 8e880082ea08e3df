"""The rules by which ONNX operators become Keras layers and calls of `keras.ops`.

A rule gets the node and the operator's own parameters: inputs are hub values, attributes keyword-only. It returns the call, or
None where Keras has none that computes the same; the operator then runs by the rules in `ops`.
"""

from __future__ import annotations

from onnxbridge.hub.ir.schemas import name_of
from onnxbridge.hub.passes.transposes.channels_last import DOMAIN
from onnxbridge.rules import Rules

layer = Rules("backends.tensorflow.layers", package=__name__, writer=True)
around = Rules("backends.tensorflow.layers_around", package=__name__, writer=True)
"""Rules for operators whose layer computes what is around them, too. They come first."""


def last(op: str) -> str:
    """The name of an operator with channels-last data."""
    return name_of(op, DOMAIN)
