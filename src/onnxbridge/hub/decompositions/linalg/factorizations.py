"""Factorisations of matrices, batched, as loops of ONNX operators; for frontends whose sources have them as operators.

Every matrix is [..., rows, columns], float32 or float64, of known rank; sizes may be dynamic. Nothing is checked: of a matrix
without the factorisation the results hold NaN or infinity. Signs and pivots are those of LAPACK, but for the vectors of
`eigh` and `svd`, whose signs nothing determines.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

INT64, INT32 = ir.DataType.INT64, ir.DataType.INT32


def count(op: Any, n: Any) -> Any:
    """0, 1 ... below a size, a number or a value."""
    return op.Range(np.int64(0), n, np.int64(1)) if isinstance(n, ir.Value) else op.constant(np.arange(n, dtype=np.int64))


def upright(op: Any, v: Any) -> Any:
    """Vectors as columns."""
    return op.Unsqueeze(v, [-1])


def turned(op: Any, a: Any) -> Any:
    """The transposed matrices."""
    n = len(a.shape)
    return op.Transpose(a, perm=[*range(n - 2), n - 1, n - 2])


def identity(op: Any, n: Any, like: Any) -> Any:
    """One identity matrix in a dtype."""
    if not isinstance(n, ir.Value):
        return op.constant(np.eye(n, dtype=like.dtype.numpy()))
    places = count(op, n)
    return op.Cast(op.Equal(upright(op, places), places), to=like.dtype)


def together(op: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """Two batches of matrices with their leading axes broadcast against each other."""
    lead_a, lead_b = list(a.shape)[:-2], list(b.shape)[:-2]
    if lead_a == lead_b:
        return a, b
    ones = [1, 1]
    if all(isinstance(d, int) for d in lead_a + lead_b):
        lead = list(np.broadcast_shapes(tuple(lead_a), tuple(lead_b)))
        shape = op.constant(np.array(lead + ones, np.int64))
    else:
        flags = [op.Expand(False, op.Concat(op.Shape(x, end=-2), [1, 1], axis=0)) for x in (a, b)]
        shape = op.Shape(op.Or(*flags))
    return op.Expand(a, shape), op.Expand(b, shape)


def _entry(op: Any, a: Any, k: Any) -> tuple[Any, Any]:
    """Column k and what lies on the diagonal in it."""
    column = op.Gather(a, k, axis=-1)
    return column, op.Gather(column, k, axis=-1)


def _outer(op: Any, column: Any, row: Any) -> Any:
    return op.Mul(op.Unsqueeze(column, [-1]), op.Unsqueeze(row, [-2]))


def solve_triangular(op: Any, a: Any, b: Any, *, upper: bool, unit: bool = False) -> Any:
    """x with a @ x = b, of a's upper or lower triangle."""
    a, b = together(op, a, b)
    n = op.size(a, -1)
    places = count(op, n)

    def turn(iteration: Any, condition: Any, x: Any) -> Any:
        k = op.Sub(op.Sub(n, 1), iteration) if upper else iteration
        column, pivot = _entry(op, a, k)
        row = op.Gather(x, k, axis=-2)
        row = row if unit else op.Div(row, upright(op, pivot))
        behind = op.Less(places, k) if upper else op.Greater(places, k)
        x = op.Sub(x, _outer(op, op.Where(behind, column, 0.0), row))
        return condition, op.Where(upright(op, op.Equal(places, k)), op.Unsqueeze(row, [-2]), x)

    return op.Loop(n, True, b, body=turn)


def cholesky(op: Any, a: Any) -> tuple[Any, Any]:
    """The lower factor of a's lower triangle, and for each matrix the first leading minor that is not positive, 0 for none."""
    n = op.size(a, -1)
    places = count(op, n)

    def turn(k: Any, condition: Any, rest: Any, factor: Any, info: Any) -> Any:
        column, pivot = _entry(op, rest, k)
        found = op.Cast(op.And(op.Not(op.Greater(pivot, 0.0)), op.Equal(info, 0)), to=INT32)
        info = op.Add(info, op.Mul(found, op.Cast(op.Add(k, 1), to=INT32)))
        column = op.Where(op.Less(places, k), 0.0, op.Div(column, upright(op, op.Sqrt(pivot))))
        factor = op.Where(op.Equal(places, k), upright(op, column), factor)
        return condition, op.Sub(rest, _outer(op, column, column)), factor, info

    none = op.Cast(op.Mul(_first(op, a), 0.0), to=INT32)
    _, factor, info = op.Loop(n, True, a, op.Mul(a, 0.0), none, body=turn, outputs=3)
    return factor, info


def _first(op: Any, a: Any) -> Any:
    """The first entry of each matrix: a number for each."""
    return op.Gather(op.Gather(a, np.int64(0), axis=-1), np.int64(0), axis=-1)


def lu(op: Any, a: Any, *, pivot: bool = True) -> tuple[Any, Any, Any, Any]:
    """Both factors in one matrix, the row that each step swapped with (int64), the order of the rows, the first zero pivot.

    The rows of a in that order are the product of the factors; the last result is 0 where no pivot is zero.
    """
    m, n = op.size(a, -2), op.size(a, -1)
    rows, columns = count(op, m), count(op, n)
    steps = min(m, n) if isinstance(m, int) and isinstance(n, int) else op.Min(m, n)
    step_places = count(op, steps)
    zero = op.Mul(op.Gather(a, np.int64(0), axis=-1), 0.0)
    order = op.Add(op.Cast(zero, to=INT64), rows)
    swaps = op.Add(op.Cast(upright(op, op.Gather(zero, np.int64(0), axis=-1)), to=INT64), step_places)
    none = op.Cast(op.Mul(_first(op, a), 0.0), to=INT32)

    def turn(k: Any, condition: Any, a: Any, order: Any, swaps: Any, info: Any) -> Any:
        if pivot:
            size = op.Where(op.Less(rows, k), -1.0, op.Abs(op.Gather(a, k, axis=-1)))
            best = op.ArgMax(size, axis=-1, keepdims=1)
            source = op.Where(op.Equal(rows, k), best, op.Where(op.Equal(rows, best), k, rows))
            a = op.GatherElements(a, op.Expand(upright(op, source), op.Shape(a)), axis=-2)
            order = op.GatherElements(order, source, axis=-1)
            swaps = op.Where(op.Equal(step_places, k), best, swaps)
        column, entry = _entry(op, a, k)
        nothing = op.Equal(entry, 0.0)
        found = op.Cast(op.And(nothing, op.Equal(info, 0)), to=INT32)
        info = op.Add(info, op.Mul(found, op.Cast(op.Add(k, 1), to=INT32)))
        below = op.Greater(rows, k)
        column = op.Where(below, op.Div(column, upright(op, op.Where(nothing, 1.0, entry))), 0.0)
        row = op.Where(op.Greater(columns, k), op.Gather(a, k, axis=-2), 0.0)
        here = op.And(upright(op, below), op.Equal(columns, k))
        return condition, op.Where(here, upright(op, column), op.Sub(a, _outer(op, column, row))), order, swaps, info

    packed, order, swaps, info = op.Loop(steps, True, a, order, swaps, none, body=turn, outputs=4)
    return packed, swaps, order, info


def row_order(op: Any, swaps: Any, rows: Any) -> Any:
    """The order of the rows that the swaps (int64, each from its own place) make."""
    places = count(op, rows)
    start = op.Add(op.Mul(op.Gather(swaps, [0], axis=-1), 0), places)

    def turn(k: Any, condition: Any, order: Any) -> Any:
        best = op.Unsqueeze(op.Gather(swaps, k, axis=-1), [-1])
        source = op.Where(op.Equal(places, k), best, op.Where(op.Equal(places, best), k, places))
        return condition, op.GatherElements(order, source, axis=-1)

    return op.Loop(op.size(swaps, -1), True, start, body=turn)


def permuted(op: Any, a: Any, order: Any) -> Any:
    """The rows of each matrix in an order."""
    order, a = together(op, upright(op, order), a)
    return op.GatherElements(a, op.Expand(order, op.Shape(a)), axis=-2)


def solve_factored(op: Any, packed: Any, order: Any, b: Any, *, adjoint: bool = False) -> Any:
    """x with a @ x = b, or with a's transpose, from a's factors in one matrix and the order of its rows."""
    if not adjoint:
        y = solve_triangular(op, packed, permuted(op, b, order), upper=False, unit=True)
        return solve_triangular(op, packed, y, upper=True)
    flipped = turned(op, packed)
    y = solve_triangular(op, flipped, b, upper=False)
    y = solve_triangular(op, flipped, y, upper=True, unit=True)
    back = op.TopK(order, op.dims([op.size(order, -1)]), axis=-1, largest=0, outputs=2)[1]
    return permuted(op, y, back)


def householder(op: Any, a: Any) -> tuple[Any, Any]:
    """The triangular factor above the vectors of the reflections, in one matrix, and the reflections' factors."""
    m, n = op.size(a, -2), op.size(a, -1)
    rows, columns = count(op, m), count(op, n)
    steps = min(m, n) if isinstance(m, int) and isinstance(n, int) else op.Min(m, n)
    step_places = count(op, steps)

    def turn(k: Any, condition: Any, a: Any, factors: Any) -> Any:
        column, entry = _entry(op, a, k)
        below = op.Where(op.Greater(rows, k), column, 0.0)
        rest = op.ReduceSum(op.Mul(below, below), [-1], keepdims=0)
        norm = op.Sqrt(op.Add(op.Mul(entry, entry), rest))
        plain = op.Equal(rest, 0.0)
        beta = op.Where(plain, entry, op.Where(op.Less(entry, 0.0), norm, op.Neg(norm)))
        factor = op.Where(plain, 0.0, op.Div(op.Sub(beta, entry), op.Where(plain, 1.0, beta)))
        tail = op.Div(below, upright(op, op.Where(plain, 1.0, op.Sub(entry, beta))))
        v = op.Where(op.Equal(rows, k), 1.0, tail)
        row = op.ReduceSum(op.Mul(upright(op, v), a), [-2], keepdims=0)
        row = op.Where(op.Greater(columns, k), op.Mul(row, upright(op, factor)), 0.0)
        a = op.Sub(a, _outer(op, v, row))
        beside = op.Where(op.Less(rows, k), column, op.Where(op.Equal(rows, k), upright(op, beta), tail))
        a = op.Where(op.Equal(columns, k), upright(op, beside), a)
        return condition, a, op.Where(op.Equal(step_places, k), upright(op, factor), factors)

    one = op.Mul(_first(op, a), 0.0)
    start = op.Add(upright(op, one), op.Mul(op.Cast(step_places, to=a.dtype), 0.0))
    packed, factors = op.Loop(steps, True, a, start, body=turn, outputs=2)
    return packed, factors


def reflected(op: Any, packed: Any, factors: Any, x: Any, *, transposed: bool = False) -> Any:
    """Q @ x, or Q's transpose @ x, of the reflections that `householder` gives."""
    packed, x = together(op, packed, x)
    factors, _ = together(op, upright(op, factors), packed)
    steps = op.size(factors, -2)
    rows = count(op, op.size(packed, -2))

    def turn(iteration: Any, condition: Any, x: Any) -> Any:
        k = iteration if transposed else op.Sub(op.Sub(steps, 1), iteration)
        column = op.Gather(packed, k, axis=-1)
        v = op.Where(op.Equal(rows, k), 1.0, op.Where(op.Greater(rows, k), column, 0.0))
        row = op.ReduceSum(op.Mul(upright(op, v), x), [-2], keepdims=0)
        return condition, op.Sub(x, _outer(op, v, op.Mul(row, op.Gather(factors, k, axis=-2))))

    return op.Loop(steps, True, x, body=turn)


def qr(op: Any, a: Any, *, complete: bool = False) -> tuple[Any, Any]:
    """Orthonormal columns and the triangular factor."""
    m, n = op.size(a, -2), op.size(a, -1)
    packed, factors = householder(op, a)
    wide = m if complete else min(m, n) if isinstance(m, int) and isinstance(n, int) else op.Min(m, n)
    eye = identity(op, m, a)
    start = op.Slice(eye, [0], op.dims([wide]), [1])
    batch = op.Mul(op.Slice(packed, [0], [1], [-1]), 0.0)
    q = reflected(op, packed, factors, op.Add(start, batch))
    return q, op.Trilu(op.Slice(packed, [0], op.dims([wide]), [-2]), np.int64(0), upper=1)


def _partners(op: Any, n: Any, turn: Any) -> Any:
    """Whom each place meets in one round of a tournament in which all meet all: the places of one round add up alike."""
    places = count(op, n)
    odd = op.Add(op.Sub(n, 1), op.Mod(n, 2)) if isinstance(n, ir.Value) else n - 1 + n % 2
    half = op.Div(op.Add(odd, 1), 2) if isinstance(odd, ir.Value) else (odd + 1) // 2
    round_ = op.Mod(turn, odd)
    alone = op.Mod(op.Mul(round_, half), odd)  # twice this place is the round: it meets the last one
    met = op.Mod(op.Add(op.Sub(round_, places), odd), odd)
    met = op.Where(op.Equal(met, places), odd, met)
    met = op.Where(op.Equal(places, odd), alone, met)
    return places, op.Where(op.Less(met, n), met, places), odd


SWEEPS = 30


def _jacobi(op: Any, a: Any, symmetric: bool) -> tuple[Any, Any]:
    """a or, where it is not symmetric, its columns, turned until they are diagonal or orthogonal, and the product of the turns.

    All disjoint pairs of a round turn at once.
    """
    n, m = op.size(a, -1), a.shape[-2]
    limits = np.finfo(a.dtype.numpy())
    rounding = float(limits.eps) * (4 + (m if isinstance(m, int) else 64) ** 0.5)
    tiny = float(limits.tiny)

    def turn(iteration: Any, condition: Any, a: Any, v: Any, quiet: Any) -> Any:
        places, met, rounds = _partners(op, n, iteration)
        g = a if symmetric else op.MatMul(turned(op, a), a)
        index = op.Equal(upright(op, places), met)  # [i, j]: i is whom j meets
        own = op.ReduceSum(op.Where(op.Equal(upright(op, places), places), g, 0.0), [-2], keepdims=0)
        theirs = op.Gather(own, met, axis=-1)
        cross = op.ReduceSum(op.Where(index, g, 0.0), [-2], keepdims=0)
        # both of a pair must turn by one angle, though a product of matrices is symmetric only up to its rounding
        cross = op.Mul(op.Add(cross, op.Gather(cross, met, axis=-1)), 0.5)
        cross = op.Where(op.Equal(places, met), 0.0, cross)
        largest = op.ReduceMax(op.Abs(own), [-1], keepdims=1)
        scale = op.Mul(largest, 0.25) if symmetric else op.Max(op.Sqrt(op.Mul(own, theirs)), op.Mul(largest, rounding))
        busy = op.Greater(op.Abs(cross), op.Add(op.Mul(scale, rounding), tiny))
        tau = op.Div(op.Sub(theirs, own), op.Mul(op.Where(busy, cross, 1.0), 2.0))
        side = op.Where(op.Or(op.Less(tau, 0.0), op.And(op.Equal(tau, 0.0), op.Greater(places, met))), -1.0, op.CastLike(1.0, a))
        t = op.Div(side, op.Add(op.Abs(tau), op.Sqrt(op.Add(op.Mul(tau, tau), 1.0))))
        t = op.Where(busy, t, 0.0)
        c = op.Reciprocal(op.Sqrt(op.Add(op.Mul(t, t), 1.0)))
        s = op.Unsqueeze(op.Neg(op.Mul(t, c)), [-2])
        turned_by = op.Where(op.Equal(upright(op, places), places), op.Unsqueeze(c, [-2]), op.Where(index, s, 0.0))
        moved = op.Greater(op.ReduceMax(op.Cast(op.reshape(busy, [-1]), to=INT32), keepdims=0), 0)
        quiet = op.Where(moved, 0, op.Add(quiet, 1))
        a = op.MatMul(op.MatMul(turned(op, turned_by), a) if symmetric else a, turned_by)
        return op.Less(quiet, rounds), a, op.MatMul(v, turned_by), quiet

    square = op.Mul(op.MatMul(turned(op, a), a), 0.0)
    eye = op.Add(op.Where(op.IsNaN(square), 0.0, square), identity(op, n, a))
    most = op.Mul(n, SWEEPS) if isinstance(n, ir.Value) else n * SWEEPS
    found, v, _ = op.Loop(most, True, a, eye, op.constant(np.int64(0)), body=turn, outputs=3)
    return found, v


def _sorted(op: Any, keys: Any, *matrices: Any, largest: int) -> tuple[Any, ...]:
    """Numbers in order, and the matrices' columns with them."""
    values, order = op.TopK(keys, op.dims([op.size(keys, -1)]), axis=-1, largest=largest, outputs=2)
    across = [op.GatherElements(m, op.Expand(op.Unsqueeze(order, [-2]), op.Shape(m)), axis=-1) for m in matrices]
    return values, *across


def eigh(op: Any, a: Any) -> tuple[Any, Any]:
    """The eigenvalues of symmetric matrices, ascending, and the eigenvectors as columns, by Jacobi's rotations."""
    n = op.size(a, -1)
    if n == 1:
        return op.Squeeze(a, [-1]), op.Add(op.Mul(a, 0.0), 1.0)
    found, v = _jacobi(op, a, symmetric=True)
    values = op.ReduceSum(op.Mul(found, identity(op, n, a)), [-1], keepdims=0)
    values, v = _sorted(op, values, v, largest=0)
    return values, v


def singular(op: Any, a: Any) -> tuple[Any, Any, Any]:
    """Singular values, descending, as many as columns; a @ v, whose columns are orthogonal; and v. By one-sided rotations."""
    n = op.size(a, -1)
    if n == 1:
        return op.ReduceL2(a, [-2], keepdims=0), a, op.Add(op.Mul(op.Slice(a, [0], [1], [-2]), 0.0), 1.0)
    found, v = _jacobi(op, a, symmetric=False)
    values, found, v = _sorted(op, op.ReduceL2(found, [-2], keepdims=0), found, v, largest=1)
    return values, found, v
