"""The graph that is compiled for kernels, in which decomposed operators that have kernels are recognized."""

from __future__ import annotations

import onnx_ir as ir

from onnxbridge.hub.ir.inference import Contradiction
from onnxbridge.hub.passes import infer
from onnxbridge.hub.patterns import canonicalize

_KERNELS = frozenset(
    {"Attention", "Gelu", "GroupNormalization", "HardSwish", "InstanceNormalization", "LayerNormalization", "Mish", "Swish"}
)


def canonical(model: ir.Model) -> ir.Graph:
    """The graph of a copy of the model, which shares its weights."""
    copy = model.clone()
    try:
        infer(copy)
    except Contradiction:  # which is reported if the node runs
        return model.graph
    canonicalize(copy, _KERNELS.__contains__)
    return copy.graph
