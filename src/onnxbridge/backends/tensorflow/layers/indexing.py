"""Embeddings and selections as Keras layers and calls of `keras.ops`."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.backends.tensorflow.functional.expressions import Expression
from onnxbridge.backends.tensorflow.functional.values import FLOATS, dims, dtype_config, is_weight, known, rank, weight
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
        return Expression(
            "Embedding", (indices,), {"input_dim": count, "output_dim": width, **dtype_config(data)}, (weight(data),)
        )
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
