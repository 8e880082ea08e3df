"""Normalizations as Keras layers."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from onnxbridge.backends.tensorflow.functional.expressions import Expression
from onnxbridge.backends.tensorflow.functional.values import dims, dtype_config, is_float, is_weight, rank, weight
from onnxbridge.backends.tensorflow.layers import last, layer
from onnxbridge.rules import Outputs


def _channel_axis(node: ir.Node, x: ir.Value) -> int:
    return -1 if node.domain or rank(x) == 2 else 1


@layer("BatchNormalization", last("BatchNormalization"))
def batch_normalization(
    node: ir.Node, X: ir.Value, scale: ir.Value, B: ir.Value, input_mean: ir.Value, input_var: ir.Value, *,
    epsilon: float = 9.999999747378752e-06, momentum: float = 0.8999999761581421, training_mode: int = 0,
) -> Expression | None:  # fmt: skip
    given = (scale, B, input_mean, input_var)
    if training_mode or rank(X) < 2 or not is_float(X, *given) or not all(map(is_weight, given)):
        return None
    axis = _channel_axis(node, X)
    if dims(X)[axis] is None:
        return None
    config = {"axis": axis, "epsilon": short(epsilon, X), "momentum": short(momentum, X), **dtype_config(X)}
    return Expression("BatchNormalization", (X,), config, tuple(map(weight, given)))


def short(number: float, x: ir.Value) -> float:
    """The shortest decimal number that is the same in float32: 1e-05, not 9.999999747378752e-06; the number itself in float64."""
    if x.dtype == ir.DataType.DOUBLE:
        return number
    return next(n for digits in range(1, 18) if _close(n := float(f"{number:.{digits}g}"), number))


def _close(a: float, b: float) -> bool:
    return abs(a - b) <= 6e-8 * abs(b)


@layer("LayerNormalization")
def layer_normalization(
    node: ir.Node, X: ir.Value, Scale: ir.Value, B: ir.Value | None = None, *, axis: int = -1,
    epsilon: float = 9.999999747378752e-06, stash_type: int = 1, outputs: Outputs,
) -> Expression | None:  # fmt: skip
    if any(outputs[1:]) or rank(X) < 2 or not is_float(X, Scale) or not is_weight(Scale) or stash_type != 1:
        return None
    axes = list(range(axis % rank(X), rank(X)))
    sizes = [dims(X)[a] for a in axes]
    if None in sizes or dims(Scale) != sizes or axes[0] == 0 or (B is not None and (not is_weight(B) or dims(B) != sizes)):
        return None
    config = {"axis": -1 if len(axes) == 1 else axes, "epsilon": short(epsilon, X), **dtype_config(X)}
    if B is None:
        return Expression("LayerNormalization", (X,), {**config, "center": False}, (weight(Scale),))
    return Expression("LayerNormalization", (X,), config, (weight(Scale), weight(B)))


@layer("RMSNormalization")
def rms_normalization(
    node: ir.Node, X: ir.Value, scale: ir.Value, *, axis: int = -1, epsilon: float = 9.999999747378752e-06, stash_type: int = 1
) -> Expression | None:
    if rank(X) < 2 or axis % rank(X) != rank(X) - 1 or not is_float(X, scale) or not is_weight(scale):
        return None
    if dims(X)[-1] is None or dims(scale) != dims(X)[-1:]:
        return None
    return Expression("RMSNormalization", (X,), {"epsilon": short(epsilon, X), **dtype_config(X)}, (weight(scale),))


@layer("GroupNormalization", last("GroupNormalization"))
def group_normalization(
    node: ir.Node, X: ir.Value, scale: ir.Value, bias: ir.Value, *, num_groups: int, epsilon: float = 9.999999747378752e-06,
    stash_type: int = 1,
) -> Expression | None:  # fmt: skip
    return _groups(node, X, scale, bias, num_groups, epsilon)


@layer("InstanceNormalization", last("InstanceNormalization"))
def instance_normalization(
    node: ir.Node, input: ir.Value, scale: ir.Value, B: ir.Value, *, epsilon: float = 9.999999747378752e-06
) -> Expression | None:
    return _groups(node, input, scale, B, -1, epsilon)


def _groups(node: ir.Node, x: ir.Value, scale: Any, bias: Any, groups: int, epsilon: float) -> Expression | None:
    if rank(x) < 3 or not is_float(x, scale, bias) or not is_weight(scale) or not is_weight(bias) or node.domain == "":
        return None
    if dims(x)[-1] is None or dims(scale) != dims(x)[-1:]:
        return None
    config = {"groups": groups, "axis": -1, "epsilon": short(epsilon, x), **dtype_config(x)}
    return Expression("GroupNormalization", (x,), config, (weight(scale), weight(bias)))
