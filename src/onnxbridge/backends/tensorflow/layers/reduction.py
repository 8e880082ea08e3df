"""Reductions as pools and calls of `keras.ops`."""

from __future__ import annotations

import onnx_ir as ir

from onnxbridge.backends.tensorflow.functional.expressions import Expression
from onnxbridge.backends.tensorflow.functional.values import dims, dtype_config, ints, is_float, rank
from onnxbridge.backends.tensorflow.layers import layer

_FUNCTIONS = {"ReduceMean": "mean", "ReduceSum": "sum", "ReduceMax": "max", "ReduceMin": "min", "ReduceProd": "prod"}

_POOLS = {"ReduceMean": "Average", "ReduceMax": "Max"}


@layer(*_FUNCTIONS)
def reduce(
    node: ir.Node, data: ir.Value, axes: ir.Value | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Expression | None:
    chosen = ints(axes)
    if not is_float(data) or data.dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16) or rank(data) < 1 or not chosen:
        return None
    if 0 in dims(data):  # Keras has no maximum of an empty tensor
        return None
    spatial, where = tuple(range(1, rank(data) - 1)), tuple(sorted(a % rank(data) for a in chosen))
    if where == spatial and 1 <= len(spatial) <= 3 and node.op_type in _POOLS and dims(data)[-1] is not None:
        kept = {"keepdims": True} if keepdims else {}
        return Expression(f"Global{_POOLS[node.op_type]}Pooling{len(spatial)}D", (data,), {**kept, **dtype_config(data)})
    config = {"axis": tuple(a % rank(data) for a in chosen), "keepdims": bool(keepdims)}
    return Expression(f"ops.{_FUNCTIONS[node.op_type]}", (data,), config)
