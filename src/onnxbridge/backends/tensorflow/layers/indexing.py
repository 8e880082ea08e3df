"""Embeddings and selections as Keras layers and calls of `keras.ops`."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.backends.tensorflow.functional.expressions import Expression
from onnxbridge.backends.tensorflow.functional.values import (
    FLOATS,
    dims,
    dtype_config,
    ints,
    is_weight,
    known,
    rank,
    weight,
)
from onnxbridge.backends.tensorflow.layers import layer

_INTEGERS = (ir.DataType.INT32, ir.DataType.INT64)


@layer("Gather")
def gather(node: ir.Node, data: ir.Value, indices: ir.Value, *, axis: int = 0) -> Expression | None:
    if data.dtype not in FLOATS or indices.dtype not in _INTEGERS or rank(data) < 1 or rank(indices) < 0:
        return None
    if data.const_value is not None:
        if rank(data) != 2 or axis % 2 != 0 or not is_weight(data) or indices.const_value is not None or rank(indices) < 1:
            return None
        count, width = dims(data)
        config = {"input_dim": count, "output_dim": width, **dtype_config(data)}
        return Expression("Embedding", (_of_any_sign(indices, count),), config, (weight(data),))
    chosen, axis = known(indices), axis % rank(data)
    size = dims(data)[axis]
    if chosen is None:
        return None
    if chosen.ndim == 0:
        cuts: list[Any] = [slice(None)] * rank(data)
        cuts[axis] = int(chosen)
        return Expression("getitem", (data, tuple(cuts)))
    if size is None and chosen.size and chosen.min() < 0:
        return None
    return Expression("ops.take", (data, np.where(chosen < 0, chosen + (size or 0), chosen).astype(np.int32)), {"axis": axis})


def _of_any_sign(indices: ir.Value, count: int | None) -> ir.Value:
    """Indices before negative ones were counted from the end, as Keras writes it; the layer counts them so, too."""
    where = indices.producer()
    if where is None or where.op_type != "Where":
        return indices
    less, added, plain = where.inputs
    compared, total = (v.producer() if v is not None else None for v in (less, added))
    if plain is None or compared is None or total is None or (compared.op_type, total.op_type) != ("Less", "Add"):
        return indices
    operands = [list(n.inputs) for n in (compared, total)]
    if operands[0][0] is not plain or ints(operands[0][1]) != [0] or plain not in operands[1]:
        return indices
    other = next((v for v in operands[1] if v is not plain), None)
    return plain if ints(other) == [count] else indices
