"""The factorisation of symmetric matrices that need not be positive, with the pivots of Bunch and Kaufman as LAPACK takes them.

As in `matrices`: every matrix is [..., n, n], float32 or float64, of known rank; sizes may be dynamic.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.decompositions.linalg.factorizations import _outer, count, together, turned, upright

INT64, INT32 = ir.DataType.INT64, ir.DataType.INT32
_ALPHA = (1 + 17**0.5) / 8
"""How much larger another entry must be than the diagonal's for it to be taken instead: it bounds the growth of the rest."""


def _pivot(op: Any, a: Any, k: Any, places: Any) -> tuple[Any, Any, Any]:
    """The row that step k swaps with, whether it takes a block of 2, and whether its column is 0; each [..., 1]."""
    column = op.Gather(a, k, axis=-1)
    own = op.Abs(_at(op, column, k))
    sizes = op.Where(op.Greater(places, k), op.Abs(column), -1.0)
    best = op.ArgMax(sizes, axis=-1, keepdims=1)
    most = op.Max(op.ReduceMax(sizes, [-1], keepdims=1), 0.0)
    at_best = op.Equal(places, best)
    row = op.Abs(op.ReduceSum(op.Where(upright(op, at_best), a, 0.0), [-2], keepdims=0))
    there = op.ReduceSum(op.Where(at_best, row, 0.0), [-1], keepdims=1)
    other = op.ReduceMax(op.Where(op.Or(at_best, op.Less(places, k)), 0.0, row), [-1], keepdims=1)
    nothing = op.Equal(op.Max(own, most), 0.0)
    ratio = op.Div(most, op.Where(op.Equal(other, 0.0), 1.0, other))
    large = op.GreaterOrEqual(own, op.Mul(most, _ALPHA))
    large = op.Or(large, op.GreaterOrEqual(own, op.Mul(op.Mul(most, _ALPHA), ratio)))
    stays = op.Or(large, nothing)
    moves = op.GreaterOrEqual(there, op.Mul(other, _ALPHA))
    return op.Where(stays, k, best), op.Not(op.Or(stays, moves)), nothing


def ldl(op: Any, a: Any) -> tuple[Any, Any, Any]:
    """Of the lower triangle: the unit lower factor below the blocks of 1 or 2 of the diagonal, the pivots, the first block of 0.

    The pivots are LAPACK's: counted from 1, the row that a step swapped with, negative and twice for a block of 2. The last
    result is 0 where no block is 0.
    """
    n = op.size(a, -1)
    places, last = count(op, n), op.Sub(n, 1)
    low = op.Trilu(a, np.int64(0), upper=0)
    whole = op.Add(low, turned(op, op.Trilu(a, np.int64(-1), upper=0)))

    def turn(k: Any, condition: Any, a: Any, factor: Any, pivots: Any, second: Any, info: Any) -> Any:
        """`second`: this step's place is the second one of a block of 2, which the last step has dealt with."""
        source, double, nothing = _pivot(op, a, k, places)
        double = op.And(double, op.Not(second))
        after, following = op.Add(k, 1), op.Min(op.Add(k, 1), last)
        swapped = a if n == 1 else _swapped(op, a, places, op.Where(double, after, k), op.Where(second, k, source))
        one, two = op.Gather(swapped, k, axis=-1), op.Gather(swapped, following, axis=-1)
        d11, d22 = _at(op, one, k), _at(op, two, following)
        d21 = op.Where(double, _at(op, one, following), 1.0)
        below, behind = op.Greater(places, k), op.Greater(places, after)
        single = op.Where(below, op.Div(one, op.Where(op.Equal(d11, 0.0), 1.0, d11)), 0.0)
        upper, lower = op.Div(d22, d21), op.Div(d11, d21)
        scale = op.Div(op.Reciprocal(op.Sub(op.Mul(upper, lower), 1.0)), d21)
        first = op.Where(behind, op.Mul(scale, op.Sub(op.Mul(upper, one), two)), 0.0)
        then = op.Where(behind, op.Mul(scale, op.Sub(op.Mul(lower, two), one)), 0.0)
        here, there = op.And(op.Equal(places, k), op.Not(second)), op.And(op.Equal(places, after), double)
        left = op.Where(double, first, single)
        rest = op.Sub(swapped, _outer(op, left, op.Where(op.And(below, op.Not(there)), one, 0.0)))
        rest = op.Where(upright(op, double), op.Sub(rest, _outer(op, then, op.Where(behind, two, 0.0))), rest)
        left = op.Where(here, d11, op.Where(there, d21, left))
        right = op.Where(op.Equal(places, after), d22, then)
        factor = op.Where(op.Unsqueeze(here, [-2]), upright(op, left), factor)
        factor = op.Where(op.Unsqueeze(there, [-2]), upright(op, right), factor)
        counted = op.Cast(op.Add(source, 1), to=INT32)
        pivots = op.Where(op.Or(here, there), op.Where(double, op.Neg(counted), counted), pivots)
        found = op.And(op.And(nothing, op.Not(second)), op.Equal(info, 0))
        info = op.Where(found, op.Cast(after, to=INT32), info)
        return condition, op.Where(upright(op, second), a, rest), factor, pivots, double, info

    numbers = op.Cast(op.Mul(op.Gather(a, np.int64(0), axis=-1), 0.0), to=INT32)
    start = op.Gather(numbers, [0], axis=-1)
    states = whole, op.Mul(low, 0.0), numbers, op.Less(start, 0), start
    _, factor, pivots, _, info = op.Loop(n, True, *states, body=turn, outputs=5)
    return factor, pivots, op.Squeeze(info, [-1])


def _at(op: Any, vectors: Any, k: Any) -> Any:
    """One entry of each vector, [..., 1]."""
    return op.Gather(vectors, op.Unsqueeze(k, [0]), axis=-1)


def _rows(op: Any, x: Any, places: Any, a: Any, b: Any) -> Any:
    """x with two of each matrix's rows, given as [..., 1], in each other's place."""
    order = op.Where(op.Equal(places, a), b, op.Where(op.Equal(places, b), a, places))
    return op.GatherElements(x, op.Expand(upright(op, order), op.Shape(x)), axis=-2)


def _swapped(op: Any, x: Any, places: Any, a: Any, b: Any) -> Any:
    """x with two rows, and the columns of these places, in each other's place."""
    return turned(op, _rows(op, turned(op, _rows(op, x, places, a, b)), places, a, b))


def solve_ldl(op: Any, factor: Any, pivots: Any, b: Any) -> Any:
    """x with a @ x = b from a's factor and pivots (int64) as `ldl` gives them."""
    marks, _ = together(op, upright(op, pivots), b)
    factor, b = together(op, factor, b)
    n = op.size(factor, -1)
    places, last = count(op, n), op.Sub(n, 1)
    marks = op.Squeeze(marks, [-1])

    def down(k: Any, condition: Any, x: Any, second: Any) -> Any:
        after, pivot = op.Min(op.Add(k, 1), last), _at(op, marks, k)
        double = op.And(op.Less(pivot, 0), op.Not(second))
        target = op.Where(double, after, k)
        x = op.Where(upright(op, second), x, _rows(op, x, places, target, op.Sub(op.Abs(pivot), 1)))
        one, two = op.Gather(factor, k, axis=-1), op.Gather(factor, after, axis=-1)
        y, z = op.Gather(x, k, axis=-2), op.Gather(x, after, axis=-2)
        single = _outer(op, op.Where(op.Greater(places, k), one, 0.0), y)
        behind = op.Greater(places, after)
        pair = op.Add(_outer(op, op.Where(behind, one, 0.0), y), _outer(op, op.Where(behind, two, 0.0), z))
        d11, d21, d22 = _at(op, one, k), op.Where(double, _at(op, one, after), 1.0), _at(op, two, after)
        upper, lower = op.Div(d22, d21), op.Div(d11, d21)
        scale = op.Sub(op.Mul(upper, lower), 1.0)
        y, z = op.Div(y, op.Where(double, d21, 1.0)), op.Div(z, op.Where(double, d21, 1.0))
        new_y = op.Where(double, op.Div(op.Sub(op.Mul(upper, y), z), scale), op.Div(y, op.Where(second, 1.0, d11)))
        new_z = op.Div(op.Sub(op.Mul(lower, z), y), scale)
        less = op.Where(upright(op, op.Or(double, second)), op.Where(upright(op, second), 0.0, pair), single)
        here = upright(op, op.And(op.Equal(places, k), op.Not(second)))
        there = upright(op, op.And(op.Equal(places, after), double))
        x = op.Where(there, op.Unsqueeze(new_z, [-2]), op.Where(here, op.Unsqueeze(new_y, [-2]), op.Sub(x, less)))
        return condition, x, double

    def up(iteration: Any, condition: Any, x: Any, second: Any) -> Any:
        k = op.Sub(last, iteration)
        pivot = _at(op, marks, k)
        negative = op.Less(pivot, 0)
        double = op.And(negative, op.Not(second))  # k is the lower of a pair; then the next one is its upper
        one = op.Gather(factor, k, axis=-1)
        # below the diagonal, and in a pair's upper column below the pair
        behind = op.Greater(places, op.Where(second, op.Add(k, 1), k))
        row = op.ReduceSum(op.Mul(upright(op, op.Where(behind, one, 0.0)), x), [-2], keepdims=0)
        x = op.Sub(x, op.Where(upright(op, op.Equal(places, k)), op.Unsqueeze(row, [-2]), 0.0))
        # a pair's swap was of its lower row and is undone once both are solved
        target = op.Where(second, op.Add(k, 1), k)
        swapped = _rows(op, x, places, target, op.Sub(op.Abs(pivot), 1))
        return condition, op.Where(upright(op, double), x, swapped), double

    no = op.Less(op.Mul(op.Gather(marks, [0], axis=-1), 0), 0)
    x, _ = op.Loop(n, True, b, no, body=down, outputs=2)
    x, _ = op.Loop(n, True, x, no, body=up, outputs=2)
    return x
