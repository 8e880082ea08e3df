"""Patterns of BatchNormalization with constant statistics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.ir.fold import constant_array
from onnxbridge.hub.ir.provenance import VIEWS
from onnxbridge.hub.patterns.forms import form
from onnxbridge.hub.patterns.match import Call, Either, Number, Op, Pattern, Power, Product, Value, formula

X, MEAN, VARIANCE, SCALE, SHIFT = (Value(name) for name in ("x", "mean", "variance", "scale", "shift"))
_DEVIATION = Power(Op("Add", VARIANCE, Number("epsilon")), -0.5)


def _forms() -> Iterator[Call | Product]:
    """(x - mean) f + shift, and as in tf.nn.batch_normalization x f + (shift - mean f).

    f is scale / sqrt(variance + epsilon). The scale and the shift may be missing.
    """
    for factors in ((SCALE, _DEVIATION), (_DEVIATION,)):
        centered, scaled, moved = (Product(of, *factors) for of in (Op("Sub", X, MEAN), X, MEAN))
        negative = Product(-1.0, MEAN, *factors)
        rest: Pattern = Either((Op("Sub", SHIFT, moved), Op("Add", SHIFT, negative)))
        yield from (Op("Add", centered, SHIFT), Op("Add", scaled, rest))
        yield from (Op("Sub", scaled, moved), Op("Add", scaled, negative), centered)


@form("BatchNormalization", *_forms())
def batch_norm(
    op: Builder, x: ir.Value, mean: ir.Value, variance: ir.Value, epsilon: float, scale: ir.Value | None = None,
    shift: ir.Value | None = None,
) -> Any:  # fmt: skip
    """Normalization with statistics of each channel; channels on another axis than the second are transposed to it and back."""
    rank = 0 if x.shape is None else len(x.shape)
    given = [v for v in (mean, variance, scale, shift) if v is not None]
    axes = {_channel_axis(v, x) for v in given}
    axis = axes.pop()
    if axes or axis is None or epsilon <= 0 or x.const_value is not None or any(v.dtype != x.dtype for v in given):
        return None
    count, dtype = int(mean.const_value.size), mean.const_value.dtype.numpy()  # type: ignore[union-attr]  # it has numbers
    gamma = np.ones(count, dtype) if scale is None else _weight(op, scale, count)
    beta = np.zeros(count, dtype) if shift is None else _weight(op, shift, count)
    perm = [0, axis, *(a for a in range(1, rank) if a != axis)]
    first = x if axis == 1 else op.Transpose(x, perm=perm)
    y = op.BatchNormalization(first, gamma, beta, _weight(op, mean, count), _weight(op, variance, count), epsilon=epsilon)
    return y if axis == 1 else op.Transpose(y, perm=[perm.index(a) for a in range(rank)])


def _channel_axis(value: ir.Value, x: ir.Value) -> int | None:
    """The axis of x for each of whose positions a constant has an element; None if there is none but the first."""
    array = constant_array(value)
    if array is None or x.shape is None or array.ndim > len(x.shape):
        return None
    dims = [1] * (len(x.shape) - array.ndim) + list(array.shape)
    axes = [a for a, d in enumerate(x.shape) if a and d == array.size == dims[a]]
    last = len(x.shape) - 1
    return None if not axes else last if last in axes and array.ndim == 1 else axes[0]


def _weight(op: Builder, value: ir.Value, count: int) -> ir.Value:
    """The weight that a constant is a view of, as a vector."""
    source: ir.Value | None = value
    while source is not None and (view := formula(source)) is not None and view.op_type in VIEWS:
        source = view.inputs[0]
    if source is not None and (array := constant_array(source)) is not None and array.shape == (count,):
        return source
    reshaped: ir.Value = op.Reshape(value, [count])
    return reshaped
