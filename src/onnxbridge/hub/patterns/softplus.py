"""Pattern of Softplus with a threshold above which the input is returned, as in PyTorch."""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir

from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.patterns.forms import form
from onnxbridge.hub.patterns.match import Number, Op, Value, epsilon

X = Value("x")


@form("Softplus", Op("Where", Op("Greater", X, Number("threshold")), X, Op("Softplus", X)))
def softplus(op: Builder, x: ir.Value, threshold: float) -> Any:
    """log(1 + exp(x)), if above the threshold it equals x up to rounding."""
    if x.dtype is None or not x.dtype.is_floating_point() or threshold <= 1:
        return None
    # exp(-threshold) is the error of the result at the threshold
    return op.Softplus(x) if threshold + math.log(threshold) >= -math.log(epsilon(x.dtype)) else None
