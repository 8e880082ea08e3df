"""Dynamic range quantization: float inputs that TensorFlow Lite's kernels quantize to eight bits when they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.frontends.tflite.quantized import Quantized
from onnxbridge.rules import Rule

_F = np.float32
# by operator, the indices of the input and of its weights, and whether each row of the input has its own scale; else each
# image has
OPERATORS = {
    "BATCH_MATMUL": (0, 1, True), "CONV_2D": (0, 1, False), "DEPTHWISE_CONV_2D": (0, 1, False), "FULLY_CONNECTED": (0, 1, True),
    "TRANSPOSE_CONV": (2, 1, False),
}  # fmt: skip
# by recurrent operator, the index of weights; they round their input and their state in every step, each row on its own
RECURRENT = {
    "BIDIRECTIONAL_SEQUENCE_LSTM": 2, "BIDIRECTIONAL_SEQUENCE_RNN": 1, "LSTM": 2, "RNN": 1, "SVDF": 1,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": 2, "UNIDIRECTIONAL_SEQUENCE_RNN": 1,
}  # fmt: skip
_ALWAYS_ASYMMETRIC = frozenset({"DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"})
_WEIGHTS = frozenset({ir.DataType.INT8, ir.DataType.INT4, ir.DataType.INT2})


def quantized_inputs(op: Any, rule: Rule, args: list[Any], attrs: Mapping[str, Any], asymmetric: bool) -> list[Any]:
    """The arguments of a rule, with its float input rounded as the kernel rounds it if the weights are integers.

    Convolutions by channel always use the asymmetric range; the others where the operator's option says so.
    """
    if rule.op not in OPERATORS:
        return args
    position, at, by_row = OPERATORS[rule.op]
    if len(args) <= max(position, at):
        return args
    x, weights = args[position], args[at]
    if not isinstance(weights, Quantized) or weights.dtype not in _WEIGHTS or not isinstance(x, ir.Value):
        return args
    if x.dtype != ir.DataType.FLOAT or x.shape is None:
        return args
    if rule.op in _ALWAYS_ASYMMETRIC or (rule.op == "CONV_2D" and len(weights.parameters.scale) > 1):
        asymmetric = True
    rank = len(x.shape)
    row = rank - 2 if attrs.get("adj_x") else rank - 1
    axes = [row] if by_row else list(range(1, rank))
    return [*args[:position], (_asymmetric if asymmetric else _symmetric)(op, x, axes), *args[position + 1 :]]


def rounding_of_rows(rule: Rule, args: list[Any], asymmetric: bool) -> Callable[[Any, Any], Any] | None:
    """How a recurrent operator rounds a row before the product with its weights; None if the weights are not integers, or the
    input is quantized."""
    if rule.op not in RECURRENT or len(args) <= RECURRENT[rule.op]:
        return None
    x, weights = args[0], args[RECURRENT[rule.op]]
    if not isinstance(weights, Quantized) or weights.dtype not in _WEIGHTS or not isinstance(x, ir.Value):
        return None
    return lambda op, row: (_asymmetric if asymmetric else _symmetric)(op, row, [-1])


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
