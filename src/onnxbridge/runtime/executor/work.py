"""The work of a step, from the shapes of its inputs and results: the same number on every machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

PER_SECOND = 20_000_000_000
"""Operations that NumPy does in a second on one core, within a factor of three for the models that were measured."""
ELEMENT = 12
"""Reading or writing an element takes as long as so many multiplications and additions of a matrix product."""
STEP = 200_000
"""What Python does for a step, however small: about 10 microseconds."""

Arrays = Sequence[Any]
Count = Callable[[Arrays, Any, Mapping[str, Any]], int]


def _windows(weight: int) -> Count:
    return lambda args, result, attrs: int(result.size * math.prod(args[weight].shape[1:]))


def _transposed(args: Arrays, result: Any, attrs: Mapping[str, Any]) -> int:
    return int(args[0].size * math.prod(args[1].shape[1:]))


def _product(args: Arrays, result: Any, attrs: Mapping[str, Any]) -> int:
    return int(result.size * args[0].shape[0 if attrs.get("transA") else -1])


def _contracted(args: Arrays, result: Any, attrs: Mapping[str, Any]) -> int:
    return math.isqrt(math.prod(a.size for a in args) * result.size)  # what it is for a product of two matrices


def _attention(args: Arrays, result: Any, attrs: Mapping[str, Any]) -> int:
    rows = result.size // max(result.shape[-1], 1)
    return int(rows * args[1].shape[-2] * (args[0].shape[-1] + result.shape[-1]))


def _recurrent(args: Arrays, result: Any, attrs: Mapping[str, Any]) -> int:
    return int(math.prod(args[0].shape[:2]) * (args[1].size + args[2].size))


def _pooled(args: Arrays, result: Any, attrs: Mapping[str, Any]) -> int:
    return int(result.size * math.prod(attrs.get("kernel_shape") or ()))


def _regions(args: Arrays, result: Any, attrs: Mapping[str, Any]) -> int:
    return int(args[1].shape[0] * math.prod(args[0].shape[1:]))


def _trees(args: Arrays, result: Any, attrs: Mapping[str, Any]) -> int:
    nodes = attrs.get("nodes_modes")
    return int(args[0].shape[0] * (0 if nodes is None else len(nodes)))


_PRODUCTS: Mapping[str, Count] = {
    **dict.fromkeys(("Conv", "ConvInteger", "DeformConv"), _windows(1)), "QLinearConv": _windows(3), "ConvTranspose": _transposed,
    **dict.fromkeys(("MatMul", "Gemm", "MatMulInteger", "QLinearMatMul"), _product), "Einsum": _contracted,
    "Attention": _attention, **dict.fromkeys(("LSTM", "GRU", "RNN"), _recurrent),
}  # fmt: skip
"""Operators that multiply each element several times."""
_PASSES: Mapping[str, Count] = {
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool"), _pooled), "RoiAlign": _regions,
    **dict.fromkeys(("TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor"), _trees),
}  # fmt: skip
"""Operators that read each element several times."""


def multiply_adds(op: str, args: Arrays, results: Arrays, attrs: Mapping[str, Any]) -> int:
    """The multiplications with an addition of a matrix product or the like; 0 for other operators."""
    return _counted(_PRODUCTS, op, args, results, attrs)


def operations(op: str, args: Arrays, results: Arrays, attrs: Mapping[str, Any]) -> int:
    """What a step takes, in multiplications with an addition."""
    found = STEP + multiply_adds(op, args, results, attrs)
    if results and args and _shares(results[0], args[0]):
        return found  # a view
    seen = sum(a.size for a in (*args, *results) if isinstance(a, np.ndarray))
    return found + ELEMENT * (seen + _counted(_PASSES, op, args, results, attrs))


def _counted(counts: Mapping[str, Count], op: str, args: Arrays, results: Arrays, attrs: Mapping[str, Any]) -> int:
    count = counts.get(op.rpartition(":")[2])
    if count is None or not results:
        return 0
    try:
        return count(args, results[0], attrs)
    except (AttributeError, IndexError, TypeError):  # an omitted operand, or one that is not an array
        return 0


def _shares(result: Any, source: Any) -> bool:
    return isinstance(result, np.ndarray) and isinstance(source, np.ndarray) and np.may_share_memory(result, source)
