"""Dynamic range quantization: float inputs that TensorFlow Lite's kernels quantize to eight bits when they run."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.frontends.tflite.quantized import Quantized
from onnxbridge.rules import Rule

_F = np.float32
# by operator, the index of its weights, and whether each row along the last axis has its own scale; else each image has
OPERATORS = {"CONV_2D": (1, False), "DEPTHWISE_CONV_2D": (1, False), "FULLY_CONNECTED": (1, True)}
_WEIGHTS = frozenset({ir.DataType.INT8, ir.DataType.INT4, ir.DataType.INT2})


def quantized_inputs(op: Any, rule: Rule, args: list[Any], asymmetric: bool) -> list[Any]:
    """The arguments of a rule, with its float input rounded as the kernel rounds it if the weights are integers.

    Convolutions by channel always use the asymmetric range; the others where the operator's option says so.
    """
    position, by_row = OPERATORS.get(rule.op, (0, False))
    weights = args[position] if 0 < position < len(args) else None
    x = args[0] if args else None
    if not isinstance(weights, Quantized) or weights.dtype not in _WEIGHTS or not isinstance(x, ir.Value):
        return args
    if x.dtype != ir.DataType.FLOAT or x.shape is None:
        return args
    if rule.op != "FULLY_CONNECTED":
        asymmetric = asymmetric or rule.op == "DEPTHWISE_CONV_2D" or len(weights.parameters.scale) > 1
    axes = [len(x.shape) - 1] if by_row else list(range(1, len(x.shape)))
    return [(_asymmetric if asymmetric else _symmetric)(op, x, axes), *args[1:]]


def _symmetric(op: Any, x: Any, axes: list[int]) -> Any:
    """Rounded to 255 values from -m to m, where m is the largest magnitude."""
    most = op.ReduceMax(op.Abs(x), axes, keepdims=1)
    scale = op.Where(op.Equal(most, _F(0)), _F(1), op.Div(most, _F(127)))
    return op.Mul(op.Round(op.Div(x, scale)), scale)


def _asymmetric(op: Any, x: Any, axes: list[int]) -> Any:
    """Rounded to 256 values that reach from the smallest to the largest element and include 0."""
    least, most = op.Min(op.ReduceMin(x, axes, keepdims=1), _F(0)), op.Max(op.ReduceMax(x, axes, keepdims=1), _F(0))
    span = op.Sub(most, least)
    scale = op.Where(op.Equal(span, _F(0)), _F(1), op.Div(span, _F(255)))
    zero = op.Clip(op.Round(op.Sub(_F(-128), op.Div(least, scale))), _F(-128), _F(127))
    stored = op.Clip(op.Add(op.Round(op.Div(x, scale)), zero), _F(-128), _F(127))
    return op.Mul(op.Sub(stored, zero), scale)
