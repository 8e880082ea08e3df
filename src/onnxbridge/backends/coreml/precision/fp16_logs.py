"""Logarithms of small numbers: what float16 takes from the numbers is as large in the logarithm as any other step.

The power of a quiet tone is the square of its amplitude: 1e-4 squared is 1e-8, which float16 tells from 0 no more, and of 1e-6 it
keeps four bits. In decibels all of them count alike. So between what makes small numbers of ordinary ones (a square, an
exponential, a share) and the logarithm that spreads them out again, float32 is kept. So it is up to the root of squares, in a
norm: those of 256 and more are infinite in float16, and what is divided by the root of infinity is 0. Everywhere else small
numbers stand beside large ones, and what they lose is not seen.
"""

from __future__ import annotations

from typing import Any

from onnxbridge.backends.coreml.precision.fp16_selection import read_by, walk

SPREADING = frozenset({"log", "sqrt", "rsqrt"})
SHRINKING = frozenset({"square", "pow", "exp", "exp2", "softmax", "sigmoid", "reduce_sum_square"})
# What computes with small numbers and leaves them small, the filters of a spectrogram too.
# fmt: off
KEEPING = frozenset({
    "add", "mul", "real_div", "maximum", "minimum", "clip", "relu", "select", "sqrt", "matmul", "linear", "einsum",
    "reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod", "cumsum", "avg_pool", "max_pool", "concat", "stack",
    "reshape", "transpose", "slice_by_index", "slice_by_size", "split", "squeeze", "expand_dims", "gather",
    "gather_along_axis", "identity", "pad", "tile",
})
# fmt: on


def of(program: Any) -> set[str]:
    """The names of operators, as their first results have them, from what makes small numbers to their logarithm or root."""
    operators = list(walk(program.functions["main"].operations))
    small: set[int] = set()
    for op in operators:
        if _shrinks(op) or (op.op_type in KEEPING and any(id(v.op) in small for v in read_by(op))):
            small.add(id(op))
    spread: set[int] = set()
    found = set()
    for op in reversed(operators):
        logarithm = op.op_type in SPREADING and any(id(v.op) in small for v in read_by(op))
        if logarithm or (id(op) in small and any(id(child) in spread for v in op.outputs for child in v.child_ops)):
            spread.add(id(op))
            found.add(op.outputs[0].name)
    return found


def _shrinks(op: Any) -> bool:
    return op.op_type in SHRINKING or (op.op_type == "mul" and op.x is op.y)
