"""Finds the operators between small numbers and their logarithm, or squares and their root, which stay in float32.

The power of a quiet tone is the square of its amplitude: 1e-4 squared is 1e-8, which underflows in float16, and 1e-6 has only
four bits there. In decibels these errors are large. So operators between the one that makes numbers small (a square, an
exponential, a softmax) and the logarithm are computed in float32. The same holds from squares to the root in a norm: squares of
256 and more overflow in float16, and dividing by an infinite norm gives 0. Elsewhere small numbers are combined with larger
ones, and their errors do not matter.
"""

from __future__ import annotations

from typing import Any

from onnxbridge.backends.coreml.precision.fp16_selection import read_by, walk

LOG_OR_ROOT = frozenset({"log", "sqrt", "rsqrt"})
MAKES_SMALL = frozenset({"square", "pow", "exp", "exp2", "softmax", "sigmoid", "reduce_sum_square"})
# Operators whose results are small if their inputs are, such as the filters of a spectrogram.
# fmt: off
SMALL_PRESERVING = frozenset({
    "add", "mul", "real_div", "maximum", "minimum", "clip", "relu", "select", "sqrt", "matmul", "linear", "einsum",
    "reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod", "cumsum", "avg_pool", "max_pool", "concat", "stack",
    "reshape", "transpose", "slice_by_index", "slice_by_size", "split", "squeeze", "expand_dims", "gather",
    "gather_along_axis", "identity", "pad", "tile",
})
# fmt: on


def find(program: Any) -> set[str]:
    """The operators from those that make numbers small to their logarithm or root, by the names of their first outputs."""
    operators = list(walk(program.functions["main"].operations))
    small_values: set[int] = set()
    for op in operators:
        if _makes_small(op) or (op.op_type in SMALL_PRESERVING and any(id(v.op) in small_values for v in read_by(op))):
            small_values.add(id(op))
    feeds_log: set[int] = set()
    found = set()
    for op in reversed(operators):
        is_log = op.op_type in LOG_OR_ROOT and any(id(v.op) in small_values for v in read_by(op))
        if is_log or (id(op) in small_values and any(id(child) in feeds_log for v in op.outputs for child in v.child_ops)):
            feeds_log.add(id(op))
            found.add(op.outputs[0].name)
    return found


def _makes_small(op: Any) -> bool:
    return op.op_type in MAKES_SMALL or (op.op_type == "mul" and op.x is op.y)
