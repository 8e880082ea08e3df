"""Batched matrix factorizations written as ONNX loops, for frontends whose source framework has them as operators.

Every matrix is [..., rows, columns] in float32 or float64, of known rank; sizes may be dynamic. Inputs are not checked: for a
matrix that has no factorization the results contain NaN or infinity. Signs and pivots are LAPACK's, except for the singular
vectors and eigenvectors, whose signs are arbitrary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.ir.values import keep_shapes

INT64, INT32 = ir.DataType.INT64, ir.DataType.INT32


def arange(op: Any, n: Any) -> Any:
    """The indices 0 to n - 1; n is an integer or a scalar value."""
    return op.Range(np.int64(0), n, np.int64(1)) if isinstance(n, ir.Value) else op.constant(np.arange(n, dtype=np.int64))


def as_columns(op: Any, v: Any) -> Any:
    """Vectors [..., n] as columns [..., n, 1]."""
    return op.Unsqueeze(v, [-1])


def matrix_transpose(op: Any, a: Any) -> Any:
    """Transposes the last two axes."""
    n = len(a.shape)
    return op.Transpose(a, perm=[*range(n - 2), n - 1, n - 2])


def identity(op: Any, n: Any, like: Any) -> Any:
    """The n x n identity matrix in the dtype of `like`."""
    if not isinstance(n, ir.Value):
        return op.constant(np.eye(n, dtype=like.dtype.numpy()))
    indices = arange(op, n)
    return op.Cast(op.Equal(as_columns(op, indices), indices), to=like.dtype)


def broadcast_batches(op: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """Broadcasts the batch axes of two batches of matrices against each other."""
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
    """Column k and its diagonal element."""
    column = op.Gather(a, k, axis=-1)
    return column, op.Gather(column, k, axis=-1)


def _outer(op: Any, column: Any, row: Any) -> Any:
    return op.Mul(op.Unsqueeze(column, [-1]), op.Unsqueeze(row, [-2]))


def fixed_loop(op: Any, trip_count: Any, *states: Any, body: Callable[..., Any]) -> Any:
    """A Loop whose states keep their shapes; ONNX allows them to change, so that they would be unknown in the body."""

    def step(iteration: Any, condition: Any, *inner: Any) -> Any:
        keep_shapes(inner, states)
        return body(iteration, condition, *inner)

    return op.Loop(trip_count, True, *states, body=step, outputs=len(states))


def solve_triangular(op: Any, a: Any, b: Any, *, upper: bool, unit: bool = False) -> Any:
    """Solves a @ x = b with the upper or lower triangle of a; `unit` takes the diagonal as ones."""
    a, b = broadcast_batches(op, a, b)
    n = op.size(a, -1)
    indices = arange(op, n)

    def body(iteration: Any, condition: Any, x: Any) -> Any:
        k = op.Sub(op.Sub(n, 1), iteration) if upper else iteration
        column, pivot = _entry(op, a, k)
        row = op.Gather(x, k, axis=-2)
        row = row if unit else op.Div(row, as_columns(op, pivot))
        remaining = op.Less(indices, k) if upper else op.Greater(indices, k)
        x = op.Sub(x, _outer(op, op.Where(remaining, column, 0.0), row))
        return condition, op.Where(as_columns(op, op.Equal(indices, k)), op.Unsqueeze(row, [-2]), x)

    return fixed_loop(op, n, b, body=body)


def cholesky(op: Any, a: Any) -> tuple[Any, Any]:
    """The lower Cholesky factor, computed from a's lower triangle, and LAPACK's info.

    info is for each matrix the order of the first leading minor that is not positive, or 0 if all are.
    """
    n = op.size(a, -1)
    indices = arange(op, n)

    def body(k: Any, condition: Any, rest: Any, factor: Any, info: Any) -> Any:
        column, pivot = _entry(op, rest, k)
        is_first = op.Cast(op.And(op.Not(op.Greater(pivot, 0.0)), op.Equal(info, 0)), to=INT32)
        info = op.Add(info, op.Mul(is_first, op.Cast(op.Add(k, 1), to=INT32)))
        column = op.Where(op.Less(indices, k), 0.0, op.Div(column, as_columns(op, op.Sqrt(pivot))))
        factor = op.Where(op.Equal(indices, k), as_columns(op, column), factor)
        return condition, op.Sub(rest, _outer(op, column, column)), factor, info

    _, factor, info = fixed_loop(op, n, a, op.Mul(a, 0.0), _no_info(op, a), body=body)
    return factor, info


def _no_info(op: Any, a: Any) -> Any:
    """LAPACK's info of a success, 0, for each matrix."""
    return op.Expand(op.constant(np.int32(0)), op.Shape(a, end=-2))


def lu(op: Any, a: Any, *, pivot: bool = True) -> tuple[Any, Any, Any, Any]:
    """LU factorization with partial pivoting, as (packed factors, swaps, row permutation, info).

    `swaps` holds the row that each step exchanged with its own (int64). Rows of a in the order of the permutation are L @ U.
    info is the 1-based index of the first zero pivot, or 0.
    """
    m, n = op.size(a, -2), op.size(a, -1)
    rows, columns = arange(op, m), arange(op, n)
    steps = min(m, n) if isinstance(m, int) and isinstance(n, int) else op.Min(m, n)
    step_indices = arange(op, steps)
    order, swaps = (op.Expand(i, op.Concat(op.Shape(a, end=-2), op.Shape(i), axis=0)) for i in (rows, step_indices))

    def body(k: Any, condition: Any, a: Any, order: Any, swaps: Any, info: Any) -> Any:
        if pivot:
            size = op.Where(op.Less(rows, k), -1.0, op.Abs(op.Gather(a, k, axis=-1)))
            best = op.ArgMax(size, axis=-1, keepdims=1)
            source = op.Where(op.Equal(rows, k), best, op.Where(op.Equal(rows, best), k, rows))
            a = op.GatherElements(a, op.Expand(as_columns(op, source), op.Shape(a)), axis=-2)
            order = op.GatherElements(order, source, axis=-1)
            swaps = op.Where(op.Equal(step_indices, k), best, swaps)
        column, entry = _entry(op, a, k)
        is_zero = op.Equal(entry, 0.0)
        is_first = op.Cast(op.And(is_zero, op.Equal(info, 0)), to=INT32)
        info = op.Add(info, op.Mul(is_first, op.Cast(op.Add(k, 1), to=INT32)))
        below = op.Greater(rows, k)
        column = op.Where(below, op.Div(column, as_columns(op, op.Where(is_zero, 1.0, entry))), 0.0)
        row = op.Where(op.Greater(columns, k), op.Gather(a, k, axis=-2), 0.0)
        here = op.And(as_columns(op, below), op.Equal(columns, k))
        return condition, op.Where(here, as_columns(op, column), op.Sub(a, _outer(op, column, row))), order, swaps, info

    packed, order, swaps, info = fixed_loop(op, steps, a, order, swaps, _no_info(op, a), body=body)
    return packed, swaps, order, info


def row_order(op: Any, swaps: Any, rows: Any) -> Any:
    """The row permutation that a sequence of swaps (int64; step k exchanges row k with swaps[k]) results in."""
    indices = arange(op, rows)
    start = op.Add(op.Mul(op.Gather(swaps, [0], axis=-1), 0), indices)

    def body(k: Any, condition: Any, order: Any) -> Any:
        best = op.Unsqueeze(op.Gather(swaps, k, axis=-1), [-1])
        source = op.Where(op.Equal(indices, k), best, op.Where(op.Equal(indices, best), k, indices))
        return condition, op.GatherElements(order, source, axis=-1)

    return fixed_loop(op, op.size(swaps, -1), start, body=body)


def permute_rows(op: Any, a: Any, order: Any) -> Any:
    """Permutes the rows of each matrix."""
    order, a = broadcast_batches(op, as_columns(op, order), a)
    return a if 0 in a.shape else op.GatherElements(a, op.Expand(order, op.Shape(a)), axis=-2)


def solve_factored(op: Any, packed: Any, order: Any, b: Any, *, adjoint: bool = False) -> Any:
    """Solves a @ x = b, or a.T @ x = b if `adjoint`, from the packed LU factors and the row permutation of a."""
    if not adjoint:
        y = solve_triangular(op, packed, permute_rows(op, b, order), upper=False, unit=True)
        return solve_triangular(op, packed, y, upper=True)
    flipped = matrix_transpose(op, packed)
    y = solve_triangular(op, flipped, b, upper=False)
    y = solve_triangular(op, flipped, y, upper=True, unit=True)
    inverse_order = op.TopK(order, op.dims([op.size(order, -1)]), axis=-1, largest=0, outputs=2)[1]
    return permute_rows(op, y, inverse_order)


def householder(op: Any, a: Any) -> tuple[Any, Any]:
    """QR factorization as LAPACK's geqrf returns it: R above the Householder vectors in one matrix, and the factors tau."""
    m, n = op.size(a, -2), op.size(a, -1)
    rows, columns = arange(op, m), arange(op, n)
    steps = min(m, n) if isinstance(m, int) and isinstance(n, int) else op.Min(m, n)
    step_indices = arange(op, steps)

    def body(k: Any, condition: Any, a: Any, factors: Any) -> Any:
        column, entry = _entry(op, a, k)
        below = op.Where(op.Greater(rows, k), column, 0.0)
        rest = op.ReduceSum(op.Mul(below, below), [-1], keepdims=0)
        norm = op.Sqrt(op.Add(op.Mul(entry, entry), rest))
        plain = op.Equal(rest, 0.0)
        beta = op.Where(plain, entry, op.Where(op.Less(entry, 0.0), norm, op.Neg(norm)))
        factor = op.Where(plain, 0.0, op.Div(op.Sub(beta, entry), op.Where(plain, 1.0, beta)))
        reflector_tail = op.Div(below, as_columns(op, op.Where(plain, 1.0, op.Sub(entry, beta))))
        v = op.Where(op.Equal(rows, k), 1.0, reflector_tail)
        row = op.ReduceSum(op.Mul(as_columns(op, v), a), [-2], keepdims=0)
        row = op.Where(op.Greater(columns, k), op.Mul(row, as_columns(op, factor)), 0.0)
        a = op.Sub(a, _outer(op, v, row))
        new_column = op.Where(op.Less(rows, k), column, op.Where(op.Equal(rows, k), as_columns(op, beta), reflector_tail))
        a = op.Where(op.Equal(columns, k), as_columns(op, new_column), a)
        return condition, a, op.Where(op.Equal(step_indices, k), as_columns(op, factor), factors)

    start = op.Expand(op.CastLike(0.0, a), op.Concat(op.Shape(a, end=-2), op.dims([steps]), axis=0))
    packed, factors = fixed_loop(op, steps, a, start, body=body)
    return packed, factors


def apply_reflections(op: Any, packed: Any, factors: Any, x: Any, *, transposed: bool = False) -> Any:
    """Q @ x, or Q.T @ x, where Q is given by the reflections that `householder` returns."""
    packed, x = broadcast_batches(op, packed, x)
    factors, _ = broadcast_batches(op, as_columns(op, factors), packed)
    steps = op.size(factors, -2)
    rows = arange(op, op.size(packed, -2))

    def body(iteration: Any, condition: Any, x: Any) -> Any:
        k = iteration if transposed else op.Sub(op.Sub(steps, 1), iteration)
        column = op.Gather(packed, k, axis=-1)
        v = op.Where(op.Equal(rows, k), 1.0, op.Where(op.Greater(rows, k), column, 0.0))
        row = op.ReduceSum(op.Mul(as_columns(op, v), x), [-2], keepdims=0)
        return condition, op.Sub(x, _outer(op, v, op.Mul(row, op.Gather(factors, k, axis=-2))))

    return fixed_loop(op, steps, x, body=body)


def qr(op: Any, a: Any, *, complete: bool = False) -> tuple[Any, Any]:
    """QR factorization: Q with orthonormal columns, and R."""
    m, n = op.size(a, -2), op.size(a, -1)
    packed, factors = householder(op, a)
    wide = m if complete else min(m, n) if isinstance(m, int) and isinstance(n, int) else op.Min(m, n)
    eye = identity(op, m, a)
    start = op.Slice(eye, [0], op.dims([wide]), [1])
    batch = op.Mul(op.Slice(packed, [0], [1], [-1]), 0.0)
    q = apply_reflections(op, packed, factors, op.Add(start, batch))
    return q, op.Trilu(op.Slice(packed, [0], op.dims([wide]), [-2]), np.int64(0), upper=1)


def _jacobi_pairs(op: Any, n: Any, iteration: Any) -> Any:
    """The pairs of columns that one round of a Jacobi sweep rotates, by round-robin scheduling.

    The indices of a pair add up to the same sum modulo the number of rounds. Returns the column indices, the partner of each
    (itself if it has none), and the number of rounds.
    """
    indices = arange(op, n)
    odd = op.Add(op.Sub(n, 1), op.Mod(n, 2)) if isinstance(n, ir.Value) else n - 1 + n % 2
    half = op.Div(op.Add(odd, 1), 2) if isinstance(odd, ir.Value) else (odd + 1) // 2
    round_ = op.Mod(iteration, odd)
    unpaired = op.Mod(op.Mul(round_, half), odd)  # twice this index is the round: it is paired with the last one
    partners = op.Mod(op.Add(op.Sub(round_, indices), odd), odd)
    partners = op.Where(op.Equal(partners, indices), odd, partners)
    partners = op.Where(op.Equal(indices, odd), unpaired, partners)
    return indices, op.Where(op.Less(partners, n), partners, indices), odd


SWEEPS = 30


def _jacobi(op: Any, a: Any, symmetric: bool) -> tuple[Any, Any]:
    """Jacobi rotations of symmetric matrices until they are diagonal, or of columns until they are orthogonal.

    Returns the rotated matrices and the product of the rotations. The disjoint pairs of a round are rotated in one iteration.
    """
    n, m = op.size(a, -1), a.shape[-2]
    limits = np.finfo(a.dtype.numpy())
    rounding = float(limits.eps) * (4 + (m if isinstance(m, int) else 64) ** 0.5)
    tiny = float(limits.tiny)

    def body(iteration: Any, condition: Any, a: Any, v: Any, idle_rounds: Any) -> Any:
        indices, partners, rounds = _jacobi_pairs(op, n, iteration)
        g = a if symmetric else op.MatMul(matrix_transpose(op, a), a)
        pair_mask = op.Equal(as_columns(op, indices), partners)  # [i, j]: i is the partner of j
        diagonal = op.ReduceSum(op.Where(op.Equal(as_columns(op, indices), indices), g, 0.0), [-2], keepdims=0)
        other_diagonal = op.Gather(diagonal, partners, axis=-1)
        cross = op.ReduceSum(op.Where(pair_mask, g, 0.0), [-2], keepdims=0)
        # both columns of a pair need the same angle, but a matrix product is symmetric only up to rounding
        cross = op.Mul(op.Add(cross, op.Gather(cross, partners, axis=-1)), 0.5)
        cross = op.Where(op.Equal(indices, partners), 0.0, cross)
        largest = op.ReduceMax(op.Abs(diagonal), [-1], keepdims=1)
        scale = (
            op.Mul(largest, 0.25) if symmetric else op.Max(op.Sqrt(op.Mul(diagonal, other_diagonal)), op.Mul(largest, rounding))
        )
        above_rounding = op.Greater(op.Abs(cross), op.Add(op.Mul(scale, rounding), tiny))
        tau = op.Div(op.Sub(other_diagonal, diagonal), op.Mul(op.Where(above_rounding, cross, 1.0), 2.0))
        side = op.Where(
            op.Or(op.Less(tau, 0.0), op.And(op.Equal(tau, 0.0), op.Greater(indices, partners))), -1.0, op.CastLike(1.0, a)
        )
        t = op.Div(side, op.Add(op.Abs(tau), op.Sqrt(op.Add(op.Mul(tau, tau), 1.0))))
        t = op.Where(above_rounding, t, 0.0)
        c = op.Reciprocal(op.Sqrt(op.Add(op.Mul(t, t), 1.0)))
        s = op.Unsqueeze(op.Neg(op.Mul(t, c)), [-2])
        rotation = op.Where(op.Equal(as_columns(op, indices), indices), op.Unsqueeze(c, [-2]), op.Where(pair_mask, s, 0.0))
        rotated = op.Greater(op.ReduceMax(op.Cast(op.reshape(above_rounding, [-1]), to=INT32), keepdims=0), 0)
        idle_rounds = op.Where(rotated, 0, op.Add(idle_rounds, 1))
        a = op.MatMul(op.MatMul(matrix_transpose(op, rotation), a) if symmetric else a, rotation)
        return op.Less(idle_rounds, rounds), a, op.MatMul(v, rotation), idle_rounds

    square = op.Mul(op.MatMul(matrix_transpose(op, a), a), 0.0)
    eye = op.Add(op.Where(op.IsNaN(square), 0.0, square), identity(op, n, a))
    max_iterations = op.Mul(n, SWEEPS) if isinstance(n, ir.Value) else n * SWEEPS
    result, v, _ = fixed_loop(op, max_iterations, a, eye, op.constant(np.int64(0)), body=body)
    return result, v


def _sorted(op: Any, keys: Any, *matrices: Any, largest: int) -> tuple[Any, ...]:
    """Sorts values, and the columns of matrices in the same order."""
    values, order = op.TopK(keys, op.dims([op.size(keys, -1)]), axis=-1, largest=largest, outputs=2)
    across = [op.GatherElements(m, op.Expand(op.Unsqueeze(order, [-2]), op.Shape(m)), axis=-1) for m in matrices]
    return values, *across


def eigh(op: Any, a: Any) -> tuple[Any, Any]:
    """The eigenvalues of symmetric matrices, ascending, and the eigenvectors as columns, by Jacobi rotations."""
    n = op.size(a, -1)
    if n == 1:
        return op.Squeeze(a, [-1]), op.Add(op.Mul(a, 0.0), 1.0)
    if n == 0:
        return op.Expand(op.CastLike(0.0, a), op.Shape(a, end=-1)), a
    result, v = _jacobi(op, a, symmetric=True)
    values = op.ReduceSum(op.Mul(result, identity(op, n, a)), [-1], keepdims=0)
    values, v = _sorted(op, values, v, largest=0)
    return values, v


def jacobi_svd(op: Any, a: Any) -> tuple[Any, Any, Any]:
    """Singular value decomposition by one-sided Jacobi rotations.

    Returns the singular values in descending order, one for each column; a @ v, whose columns are orthogonal; and v.
    """
    n = op.size(a, -1)
    if n == 1:
        return op.ReduceL2(a, [-2], keepdims=0), a, op.Add(op.Mul(op.Slice(a, [0], [1], [-2]), 0.0), 1.0)
    if n == 0:
        none = op.Slice(a, [0], [0], [-2])
        return op.Expand(op.CastLike(0.0, a), op.Shape(none, end=-1)), a, none
    result, v = _jacobi(op, a, symmetric=False)
    values, result, v = _sorted(op, op.ReduceL2(result, [-2], keepdims=0), result, v, largest=1)
    return values, result, v


def is_wide(a: Any) -> bool:
    """Whether a matrix has more columns than rows; if not known, it is assumed to be tall."""
    m, n = a.shape[-2:]
    return isinstance(m, int) and (not isinstance(n, int) or m < n)


def svd(op: Any, a: Any, *, full: bool, compute_uv: bool = True) -> tuple[Any, Any, Any]:
    """Singular value decomposition a = u @ diag(values) @ v.T, as (u, values, v); u and v are None unless `compute_uv`.

    With `full`, u and v are square. The signs of their columns are not unique.
    """
    if 0 in a.shape[-2:] and not full:
        u, v = (op.Slice(x, [0], [0], [-1]) for x in (a, matrix_transpose(op, a)))
        return u, op.Expand(op.CastLike(0.0, a), op.Shape(op.Slice(u, [0], [0], [-2]), end=-1)), v
    wide = is_wide(a)
    values, left, right = jacobi_svd(op, matrix_transpose(op, a) if wide else a)
    if not all(isinstance(d, int) for d in a.shape[-2:]):  # it may be wider than assumed: zeros come last
        min_dim = op.dims([op.Min(op.size(a, -2), op.size(a, -1))])
        values, left = (op.Slice(x, [0], min_dim, [-1]) for x in (values, left))
        right = right if full else op.Slice(right, [0], min_dim, [-1])
    if not compute_uv:
        return None, values, None
    # orthonormal even for zero singular values; the diagonal of r has the signs of the rotations
    q, r = qr(op, left, complete=full)
    eye = identity(op, op.size(r, -1), a)
    signs = op.ReduceSum(op.Mul(op.Slice(r, [0], op.dims([op.size(r, -1)]), [-2]), eye), [-1], keepdims=0)
    signs = op.Where(op.Less(signs, 0.0), -1.0, op.CastLike(1.0, a))
    u = op.Mul(op.Slice(q, [0], op.dims([op.size(r, -1)]), [-1]), op.Unsqueeze(signs, [-2]))
    if full:
        u = op.Concat(u, op.Slice(q, op.dims([op.size(r, -1)]), [2**63 - 1], [-1]), axis=-1)
    return (right, values, u) if wide else (u, values, right)


def slogdet(op: Any, a: Any) -> tuple[Any, Any, Any, Any]:
    """The sign of the determinant, the logarithm of its size, and the packed LU factors and swaps that it is computed from."""
    packed, swaps, _, _ = lu(op, a)
    last = len(a.shape) - 1  # of empty matrices ONNX Runtime reduces only axes that are not negative
    diagonal = op.ReduceSum(op.Mul(packed, identity(op, op.size(a, -1), a)), [last], keepdims=0)
    moved = op.Not(op.Equal(swaps, arange(op, op.size(swaps, -1))))
    signs = op.Mul(op.Sign(diagonal), op.Where(moved, -1.0, op.CastLike(1.0, a)))
    size = op.ReduceSum(op.Log(op.Abs(diagonal)), [last - 1], keepdims=0)
    return op.ReduceProd(signs, [last - 1], keepdims=0), size, packed, swaps
