"""Negative axes, which many operators support from opset 11 on."""

from __future__ import annotations

from onnxbridge.hub.opset.adapters import down
from onnxbridge.hub.opset.known_values import rank_of
from onnxbridge.rules import Outputs

_ONE = ("ArgMax", "ArgMin", "Concat", "Flatten", "Hardmax", "LogSoftmax", "Softmax", "Split")
_SEVERAL = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
    "ReduceSumSquare", "Squeeze", "Unsqueeze",
)  # fmt: skip


def _non_negative_axes(name):
    def positive(op, *inputs, outputs: Outputs, axis=None, axes=None, **attrs):
        if axis is not None:
            attrs["axis"] = axis + rank_of(inputs[0]) if axis < 0 else axis
        if axes is not None:
            rank = rank_of(inputs[0]) + (len(axes) if name == "Unsqueeze" else 0) if any(a < 0 for a in axes) else 0
            attrs["axes"] = [a + rank if a < 0 else a for a in axes]
        return op.call(name, *inputs, outputs=len(outputs), **attrs)

    return positive


for _name in _ONE + _SEVERAL:
    down(_name, to=10)(_non_negative_axes(_name))
