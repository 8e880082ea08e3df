"""Pools as Keras layers."""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir

from onnxbridge.backends.tensorflow.functional.expressions import Expression
from onnxbridge.backends.tensorflow.functional.values import dims, dtype_config, is_float
from onnxbridge.backends.tensorflow.layers import last, layer
from onnxbridge.backends.tensorflow.layers.conv import one, padding_of, zeros_around


@layer(last("MaxPool"), last("AveragePool"))
def pool(
    node: ir.Node, X: ir.Value, *, kernel_shape: Any, auto_pad: str = "NOTSET", ceil_mode: int = 0, count_include_pad: int = 0,
    dilations: Any = None, pads: Any = None, storage_order: int = 0, strides: Any = None,
) -> Expression | None:  # fmt: skip
    spatial = len(kernel_shape)
    strides = strides or (1,) * spatial
    if not is_float(X) or set(dilations or (1,)) != {1}:
        return None
    if spatial == 3 and X.dtype != ir.DataType.FLOAT:  # TensorFlow has no other kernel on the CPU
        return None
    sizes = dims(X)[1:-1]
    if ceil_mode and not auto_pad.startswith("SAME") and not _ends_exactly(sizes, kernel_shape, strides, pads):
        return None
    padding = padding_of(auto_pad, pads, sizes, kernel_shape, strides, (1,) * spatial)
    if padding is None:
        return None
    is_max = node.op_type == "MaxPool"
    kind, how, amounts = f"{'Max' if is_max else 'Average'}Pooling{spatial}D", *padding
    if not is_max and count_include_pad and how == "same" and max(kernel_shape) > 1:
        if pads is None:
            return None
        how, amounts = "valid", list(zip(pads[:spatial], pads[spatial:], strict=True))
    if not is_max and amounts and not count_include_pad:
        return None
    if is_max and amounts and not _is_positive(X):
        pairs = [[0, 0], *map(list, amounts), [0, 0]]
        x: Any = Expression("ops.pad", (X,), {"pad_width": pairs, "constant_values": -math.inf})
    else:
        x = zeros_around(X, amounts, X)
    config = {"pool_size": one(kernel_shape), "strides": one(strides), **dtype_config(X)}
    if tuple(kernel_shape) == tuple(strides):
        del config["strides"]  # the default of a pool
    return Expression(kind, (x,), config if how == "valid" else {**config, "padding": how})


def _ends_exactly(sizes: Any, kernel: Any, strides: Any, pads: Any) -> bool:
    """Whether the last window ends at the end of the padded input, so that rounding up changes nothing."""
    pads = pads or (0,) * (2 * len(kernel))
    totals = zip(sizes, pads[: len(kernel)], pads[len(kernel) :], kernel, strides, strict=True)
    return all(n is not None and (n + a + b - k) % s == 0 for n, a, b, k, s in totals)


def _is_positive(x: ir.Value) -> bool:
    """Whether no element is negative, so that padding with zeros does not change a maximum."""
    node = x.producer()
    return node is not None and node.op_type in ("Relu", "Sigmoid", "HardSigmoid", "Abs", "Exp", "Softplus")


@layer(last("GlobalAveragePool"), last("GlobalMaxPool"))
def global_pool(node: ir.Node, X: ir.Value) -> Expression | None:
    spatial = len(dims(X)) - 2
    if not is_float(X) or not 1 <= spatial <= 3 or 0 in dims(X):  # Keras has no maximum of an empty tensor
        return None
    kind = "GlobalAveragePooling" if node.op_type == "GlobalAveragePool" else "GlobalMaxPooling"
    return Expression(f"{kind}{spatial}D", (X,), {"keepdims": True, **dtype_config(X)})
