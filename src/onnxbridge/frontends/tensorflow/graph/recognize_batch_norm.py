"""Recognizes decomposed batch normalization (tf.nn.batch_normalization, which Keras calls)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

_LAST = {2: "NC", 3: "NWC", 4: "NHWC", 5: "NDHWC"}
_SECOND = {3: "NCW", 4: "NCHW", 5: "NCDHW"}
VIEWS = frozenset({"Reshape", "Squeeze", "ExpandDims"})


@dataclass(frozen=True)
class BatchNorm:
    """The operands of a batch normalization and its data format; a missing `gain` is 1 and a missing `shift` 0."""

    x: Any
    gain: Any
    shift: Any
    mean: Any
    variance: Any
    epsilon: float
    data_format: str

    @property
    def channels(self) -> int:
        return int(self.mean.shape[0])


def match_batch_norm(op: Any, is_stored: Callable[[Any], bool]) -> BatchNorm | None:
    """Match x (rsqrt(variance + epsilon) gain) + (shift - mean (rsqrt(variance + epsilon) gain)), ending in an addition."""
    rank = op.outputs[0].shape.rank
    if op.type not in ("AddV2", "Add") or rank not in _LAST:
        return None
    for scaled, moved in _orders(op, "Mul"):
        for x, factor in _orders(scaled, ""):
            mean = _mean(moved, factor) if x.shape.rank == rank else None
            if mean is None:
                continue
            match = _factor(factor)
            if match is None:
                continue
            gain, variance, epsilon = match
            operands = (gain, moved.inputs[0] if moved.type == "Sub" else None, mean, variance)
            weights = [None if t is None else _viewed(t) for t in operands]
            formats = {_data_format(t, rank) for t in operands if t is not None}
            known = all(t is None or (is_stored(t) and t.shape.rank == 1) for t in weights)
            if known and len(formats) == 1 and (data_format := formats.pop()) is not None:
                return BatchNorm(x, weights[0], weights[1], weights[2], weights[3], epsilon, data_format)
    return None


def _mean(moved: Any, factor: Any) -> Any:
    """The mean in shift - mean factor, or in -mean factor."""
    product = moved if moved.type == "Mul" else moved.inputs[1].op if moved.type == "Sub" else None
    if product is None or product.type != "Mul":
        return None
    mean = next((first for first, second in _orders(product, "") if second is factor), None)
    if mean is None or moved.type == "Sub":
        return mean
    return mean.op.inputs[0] if mean.op.type == "Neg" else None


def _viewed(tensor: Any) -> Any:
    """The weight that a tensor is a view of."""
    while tensor.op.type in VIEWS:
        tensor = tensor.op.inputs[0]
    return tensor


def _data_format(tensor: Any, rank: int) -> str | None:
    """The data format in which a tensor broadcasts one number per channel."""
    shape = tensor.shape.as_list() if tensor.shape.is_fully_defined() else []
    if len(shape) not in (1, rank) or math.prod(shape) != max(shape, default=0):
        return None
    axis = rank - 1 if shape[-1] != 1 or len(shape) == 1 else next((i for i, n in enumerate(shape) if n != 1), None)
    return _LAST[rank] if axis == rank - 1 else _SECOND.get(rank) if axis == 1 else None


def _orders(op: Any, type_: str) -> Iterator[tuple[Any, Any]]:
    """The two inputs in both orders: as operators if the first must have a type, otherwise as tensors."""
    a, b = op.inputs
    for first, second in ((a, b), (b, a)):
        if not type_:
            yield first, second
        elif first.op.type == type_:
            yield first.op, second.op


def _factor(factor: Any) -> tuple[Any, Any, float] | None:
    from tensorflow.python.framework import tensor_util

    op, gain = factor.op, None
    if op.type == "Mul":
        root = next((t for t in op.inputs if t.op.type == "Rsqrt"), None)
        gain = next((t for t in op.inputs if t is not root), None)
        op = root.op if root is not None else op
    if op.type != "Rsqrt" or op.inputs[0].op.type not in ("AddV2", "Add"):
        return None
    for variance, small in _orders(op.inputs[0].op, ""):
        epsilon = tensor_util.constant_value(small)
        if epsilon is not None and epsilon.size == 1 and small.shape.rank == 0:
            return gain, variance, float(epsilon)
    return None
