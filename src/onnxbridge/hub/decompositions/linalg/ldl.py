"""LDL factorization of symmetric indefinite matrices with Bunch-Kaufman pivoting, as LAPACK's sytrf computes it.

As in `factorizations`, every matrix is [..., n, n] in float32 or float64, of known rank; sizes may be dynamic.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.decompositions.linalg.factorizations import (
    _outer,
    arange,
    as_columns,
    broadcast_batches,
    fixed_loop,
    matrix_transpose,
)

INT64, INT32 = ir.DataType.INT64, ir.DataType.INT32
_ALPHA = (1 + 17**0.5) / 8
"""The pivoting threshold of Bunch and Kaufman, which bounds element growth."""


def _pivot(op: Any, a: Any, k: Any, indices: Any) -> tuple[Any, Any, Any]:
    """The row that step k swaps with, whether the pivot is a 2x2 block, and whether the column is zero; each [..., 1]."""
    column = op.Gather(a, k, axis=-1)
    diagonal = op.Abs(_at(op, column, k))
    sizes = op.Where(op.Greater(indices, k), op.Abs(column), -1.0)
    best = op.ArgMax(sizes, axis=-1, keepdims=1)
    largest = op.Max(op.ReduceMax(sizes, [-1], keepdims=1), 0.0)
    at_best = op.Equal(indices, best)
    row = op.Abs(op.ReduceSum(op.Where(as_columns(op, at_best), a, 0.0), [-2], keepdims=0))
    best_diagonal = op.ReduceSum(op.Where(at_best, row, 0.0), [-1], keepdims=1)
    other = op.ReduceMax(op.Where(op.Or(at_best, op.Less(indices, k)), 0.0, row), [-1], keepdims=1)
    is_zero = op.Equal(op.Max(diagonal, largest), 0.0)
    ratio = op.Div(largest, op.Where(op.Equal(other, 0.0), 1.0, other))
    large = op.GreaterOrEqual(diagonal, op.Mul(largest, _ALPHA))
    large = op.Or(large, op.GreaterOrEqual(diagonal, op.Mul(op.Mul(largest, _ALPHA), ratio)))
    keep_diagonal = op.Or(large, is_zero)
    swap_diagonal = op.GreaterOrEqual(best_diagonal, op.Mul(other, _ALPHA))
    return op.Where(keep_diagonal, k, best), op.Not(op.Or(keep_diagonal, swap_diagonal)), is_zero


def ldl(op: Any, a: Any) -> tuple[Any, Any, Any]:
    """LDL factorization of the lower triangle, as (packed factor, pivots, info).

    The packed factor holds the 1x1 and 2x2 blocks of D, and below them the unit lower factor. The pivots are LAPACK's: the
    1-based row that a step swapped with, negated and repeated for a 2x2 block. info is the 1-based index of the first zero
    block, or 0.
    """
    n = op.size(a, -1)
    indices, last = arange(op, n), op.Sub(n, 1)
    low = op.Trilu(a, np.int64(0), upper=0)
    whole = op.Add(low, matrix_transpose(op, op.Trilu(a, np.int64(-1), upper=0)))

    def body(k: Any, condition: Any, a: Any, factor: Any, pivots: Any, second: Any, info: Any) -> Any:
        """`second`: column k is the second of a 2x2 block, which the previous iteration has processed."""
        source, double, is_zero = _pivot(op, a, k, indices)
        double = op.And(double, op.Not(second))
        next_row, next_column = op.Add(k, 1), op.Min(op.Add(k, 1), last)
        swapped = a if n == 1 else _swap_both(op, a, indices, op.Where(double, next_row, k), op.Where(second, k, source))
        one, two = op.Gather(swapped, k, axis=-1), op.Gather(swapped, next_column, axis=-1)
        d11, d22 = _at(op, one, k), _at(op, two, next_column)
        d21 = op.Where(double, _at(op, one, next_column), 1.0)
        below, below_block = op.Greater(indices, k), op.Greater(indices, next_row)
        single = op.Where(below, op.Div(one, op.Where(op.Equal(d11, 0.0), 1.0, d11)), 0.0)
        upper, lower = op.Div(d22, d21), op.Div(d11, d21)
        scale = op.Div(op.Reciprocal(op.Sub(op.Mul(upper, lower), 1.0)), d21)
        first = op.Where(below_block, op.Mul(scale, op.Sub(op.Mul(upper, one), two)), 0.0)
        then = op.Where(below_block, op.Mul(scale, op.Sub(op.Mul(lower, two), one)), 0.0)
        in_first, in_second = op.And(op.Equal(indices, k), op.Not(second)), op.And(op.Equal(indices, next_row), double)
        left = op.Where(double, first, single)
        rest = op.Sub(swapped, _outer(op, left, op.Where(op.And(below, op.Not(in_second)), one, 0.0)))
        rest = op.Where(as_columns(op, double), op.Sub(rest, _outer(op, then, op.Where(below_block, two, 0.0))), rest)
        left = op.Where(in_first, d11, op.Where(in_second, d21, left))
        right = op.Where(op.Equal(indices, next_row), d22, then)
        factor = op.Where(op.Unsqueeze(in_first, [-2]), as_columns(op, left), factor)
        factor = op.Where(op.Unsqueeze(in_second, [-2]), as_columns(op, right), factor)
        one_based = op.Cast(op.Add(source, 1), to=INT32)
        pivots = op.Where(op.Or(in_first, in_second), op.Where(double, op.Neg(one_based), one_based), pivots)
        is_first_zero = op.And(op.And(is_zero, op.Not(second)), op.Equal(info, 0))
        info = op.Where(is_first_zero, op.Cast(next_row, to=INT32), info)
        return condition, op.Where(as_columns(op, second), a, rest), factor, pivots, double, info

    zeros = op.Cast(op.Mul(op.Gather(a, np.int64(0), axis=-1), 0.0), to=INT32)
    one_zero = op.Gather(zeros, [0], axis=-1)
    states = whole, op.Mul(low, 0.0), zeros, op.Less(one_zero, 0), one_zero
    _, factor, pivots, _, info = fixed_loop(op, n, *states, body=body)
    return factor, pivots, op.Squeeze(info, [-1])


def _at(op: Any, vectors: Any, k: Any) -> Any:
    """Element k of each vector, [..., 1]."""
    return op.Gather(vectors, op.Unsqueeze(k, [0]), axis=-1)


def _swap_rows(op: Any, x: Any, indices: Any, a: Any, b: Any) -> Any:
    """x with rows a and b, given as [..., 1] for each matrix, exchanged."""
    order = op.Where(op.Equal(indices, a), b, op.Where(op.Equal(indices, b), a, indices))
    return op.GatherElements(x, op.Expand(as_columns(op, order), op.Shape(x)), axis=-2)


def _swap_both(op: Any, x: Any, indices: Any, a: Any, b: Any) -> Any:
    """x with rows a and b, and columns a and b, exchanged."""
    return matrix_transpose(op, _swap_rows(op, matrix_transpose(op, _swap_rows(op, x, indices, a, b)), indices, a, b))


def solve_ldl(op: Any, factor: Any, pivots: Any, b: Any) -> Any:
    """Solves a @ x = b from a's factor and pivots (int64) as `ldl` returns them."""
    batched_pivots, _ = broadcast_batches(op, as_columns(op, pivots), b)
    factor, b = broadcast_batches(op, factor, b)
    n = op.size(factor, -1)
    indices, last = arange(op, n), op.Sub(n, 1)
    batched_pivots = op.Squeeze(batched_pivots, [-1])

    def forward(k: Any, condition: Any, x: Any, second: Any) -> Any:
        next_row, pivot = op.Min(op.Add(k, 1), last), _at(op, batched_pivots, k)
        double = op.And(op.Less(pivot, 0), op.Not(second))
        target = op.Where(double, next_row, k)
        x = op.Where(as_columns(op, second), x, _swap_rows(op, x, indices, target, op.Sub(op.Abs(pivot), 1)))
        one, two = op.Gather(factor, k, axis=-1), op.Gather(factor, next_row, axis=-1)
        y, z = op.Gather(x, k, axis=-2), op.Gather(x, next_row, axis=-2)
        single = _outer(op, op.Where(op.Greater(indices, k), one, 0.0), y)
        below_block = op.Greater(indices, next_row)
        pair = op.Add(_outer(op, op.Where(below_block, one, 0.0), y), _outer(op, op.Where(below_block, two, 0.0), z))
        d11, d21, d22 = _at(op, one, k), op.Where(double, _at(op, one, next_row), 1.0), _at(op, two, next_row)
        upper, lower = op.Div(d22, d21), op.Div(d11, d21)
        scale = op.Sub(op.Mul(upper, lower), 1.0)
        y, z = op.Div(y, op.Where(double, d21, 1.0)), op.Div(z, op.Where(double, d21, 1.0))
        new_y = op.Where(double, op.Div(op.Sub(op.Mul(upper, y), z), scale), op.Div(y, op.Where(second, 1.0, d11)))
        new_z = op.Div(op.Sub(op.Mul(lower, z), y), scale)
        update = op.Where(as_columns(op, op.Or(double, second)), op.Where(as_columns(op, second), 0.0, pair), single)
        in_first = as_columns(op, op.And(op.Equal(indices, k), op.Not(second)))
        in_second = as_columns(op, op.And(op.Equal(indices, next_row), double))
        x = op.Where(in_second, op.Unsqueeze(new_z, [-2]), op.Where(in_first, op.Unsqueeze(new_y, [-2]), op.Sub(x, update)))
        return condition, x, double

    def backward(iteration: Any, condition: Any, x: Any, second: Any) -> Any:
        k = op.Sub(last, iteration)
        pivot = _at(op, batched_pivots, k)
        negative = op.Less(pivot, 0)
        double = op.And(negative, op.Not(second))  # k is the second row of a 2x2 block, k - 1 the first
        one = op.Gather(factor, k, axis=-1)
        # the rows below the diagonal; for the first column of a 2x2 block, below the block
        below_block = op.Greater(indices, op.Where(second, op.Add(k, 1), k))
        row = op.ReduceSum(op.Mul(as_columns(op, op.Where(below_block, one, 0.0)), x), [-2], keepdims=0)
        x = op.Sub(x, op.Where(as_columns(op, op.Equal(indices, k)), op.Unsqueeze(row, [-2]), 0.0))
        # the swap of a 2x2 block was of its second row; it is undone after both rows are solved
        target = op.Where(second, op.Add(k, 1), k)
        swapped = _swap_rows(op, x, indices, target, op.Sub(op.Abs(pivot), 1))
        return condition, op.Where(as_columns(op, double), x, swapped), double

    no_block = op.Less(op.Mul(op.Gather(batched_pivots, [0], axis=-1), 0), 0)
    x, _ = fixed_loop(op, n, b, no_block, body=forward)
    x, _ = fixed_loop(op, n, x, no_block, body=backward)
    return x
