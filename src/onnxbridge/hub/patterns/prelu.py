"""Pattern of PRelu as Keras writes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.ir.fold import constant_array
from onnxbridge.hub.patterns.forms import form
from onnxbridge.hub.patterns.match import Number, Op, Product, Value

X = Value("x")
_BELOW_ZERO = Op("Relu", Op("Neg", X))


@form(
    "PRelu",
    Op("Add", Op("Relu", X), Product(-1.0, Value("slope"), _BELOW_ZERO)),
    Op("Add", Op("Relu", X), Op("Mul", Value("negative"), _BELOW_ZERO)),
    Op("Add", Op("Relu", X), Product(Number("number"), _BELOW_ZERO)),
)
def prelu(
    op: Builder, x: ir.Value, slope: ir.Value | None = None, negative: ir.Value | None = None, number: float | None = None
) -> Any:
    """max(x, 0) - slope max(-x, 0), where the slope has one element, or one for each element along axes of x."""
    if number is not None and x.dtype is not None:
        slope = op.constant(np.array([-number], x.dtype.numpy()))
    elif slope is None:
        if negative is None or constant_array(negative) is None:
            return None
        slope = op.Neg(negative)
    if x.shape is None or slope.shape is None or len(slope.shape) > len(x.shape) or x.dtype != slope.dtype:
        return None
    sizes = zip(reversed(list(slope.shape)), reversed(list(x.shape)), strict=False)
    return op.PRelu(x, slope) if all(own == 1 or (isinstance(own, int) and own == size) for own, size in sizes) else None
