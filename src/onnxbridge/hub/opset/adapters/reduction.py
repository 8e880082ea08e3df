"""Reductions: `axes` was an attribute at first, later an input."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.opset.adapters import down, up
from onnxbridge.hub.opset.known_values import dtype_of
from onnxbridge.rules import Ints

_REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSumSquare",
)  # fmt: skip


def _up(name):
    def reduce(op, data, *, axes=None, keepdims=1):
        return op.call(name, data, None if axes is None else list(axes), keepdims=keepdims)

    return reduce


def _of_one(op, name, data):
    """The reduction of a single element."""
    if name in ("ReduceL1", "ReduceL2"):
        return op.Abs(data)
    if name == "ReduceSumSquare":
        return op.Mul(data, data)
    return op.Log(data) if name == "ReduceLogSum" else op.Identity(data)


def _down(name):
    def reduce(op, data, axes: Ints | None = None, *, keepdims=1, noop_with_empty_axes=0):
        if not axes and noop_with_empty_axes:
            return _of_one(op, name, data)
        return op.call(name, data, axes=list(axes) if axes else None, keepdims=keepdims)

    return reduce


for _name in _REDUCTIONS:
    up(_name, to=18)(_up(_name))
    down(_name, to=17)(_down(_name))
up("ReduceSum", to=13)(_up("ReduceSum"))
down("ReduceSum", to=12)(_down("ReduceSum"))


def _of_booleans(name):
    def reduce(op, data, axes=None, *, keepdims=1, noop_with_empty_axes=0):
        """Booleans as int32; an empty reduction gives the smallest or largest integer, which the comparison maps correctly."""
        attrs = {"keepdims": keepdims, "noop_with_empty_axes": noop_with_empty_axes}
        if dtype_of(data) != ir.DataType.BOOL:
            return op.call(name, data, axes, **attrs)
        numbers = op.call(name, op.Cast(data, to=ir.DataType.INT32), axes, **attrs)
        return op.Greater(numbers, np.array(0, np.int32))

    return reduce


for _name in ("ReduceMax", "ReduceMin"):
    down(_name, to=19)(_of_booleans(_name))


def _first_of_reversed(op, name, data, axis, keepdims):
    """The last index of equal elements is the first one of the reversed axis."""
    backwards = op.Slice(data, [-1], [np.iinfo(np.int64).min], [axis], [-1])
    last = op.Sub(op.Gather(op.Shape(data), np.array(axis, np.int64)), np.array(1, np.int64))
    return op.Sub(last, op.call(name, backwards, axis=axis, keepdims=keepdims))


@down("ArgMax", to=11)
def arg_max(op, data, *, axis=0, keepdims=1, select_last_index=0):
    if select_last_index:
        return _first_of_reversed(op, "ArgMax", data, axis, keepdims)
    return op.ArgMax(data, axis=axis, keepdims=keepdims)


@down("ArgMin", to=11)
def arg_min(op, data, *, axis=0, keepdims=1, select_last_index=0):
    if select_last_index:
        return _first_of_reversed(op, "ArgMin", data, axis, keepdims)
    return op.ArgMin(data, axis=axis, keepdims=keepdims)
