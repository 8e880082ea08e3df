"""Einsum as pairwise matrix products, Gemm, and Det by Gaussian elimination."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.standard import decompose
from onnxbridge.hub.decompositions.standard.dynamic_axis import arange, product, scalar
from onnxbridge.hub.ir.values import rank


@decompose("Einsum")
def einsum(op, *Inputs, equation):
    terms, result = _subscripts(equation, [v.shape for v in Inputs])
    values = [_diagonal(op, v, t) for v, t in zip(Inputs, terms, strict=True)]
    value, letters = _sum_out(op, *values[0], set("".join(t for _, t in values[1:]) + result))
    for i, (other, others) in enumerate(values[1:], 1):
        later = set("".join(t for _, t in values[i + 1 :]) + result)
        value, letters = _contract(op, value, letters, other, others, later)
    value, letters = _sum_out(op, value, letters, set(result))
    order = [letters.index(c) for c in result]
    return op.Transpose(value, perm=order) if order != sorted(order) else op.Identity(value)


def _subscripts(equation, shapes):
    """The subscripts of each operand and of the result; an ellipsis becomes letters, an implicit result is made explicit."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if any(s is None for s in shapes) or len(terms) != len(shapes):
        raise Unsupported("Einsum of operands of unknown rank")
    ellipsis_ranks = [len(s) - len(t.replace("...", "")) if "..." in t else 0 for t, s in zip(terms, shapes, strict=True)]
    ellipsis_letters = "".join(chr(0x3B1 + i) for i in range(max(ellipsis_ranks)))
    full = [t.replace("...", ellipsis_letters[len(ellipsis_letters) - n :]) for t, n in zip(terms, ellipsis_ranks, strict=True)]
    if len(set(ellipsis_ranks) - {0}) > 1:
        raise Unsupported("Einsum with ellipses of different ranks")
    all_letters = "".join(full)
    if not arrow:
        return full, ellipsis_letters + "".join(
            sorted(c for c in set(all_letters) - set(ellipsis_letters) if all_letters.count(c) == 1)
        )
    return full, right.replace("...", ellipsis_letters)


def _diagonal(op, value, letters):
    """Takes the diagonal over repeated letters, so that each letter occurs once."""
    for c in dict.fromkeys(letters):
        while letters.count(c) > 1:
            a, b = letters.index(c), letters.rindex(c)
            n = value.shape[a]
            if not isinstance(n, int):
                raise Unsupported("Einsum with a diagonal of dynamic length")
            rest = [i for i in range(len(letters)) if i not in (a, b)]
            last = op.Transpose(value, perm=[*rest, a, b])
            flat = op.Reshape(last, [*([0] * len(rest)), n * n])
            value = op.Gather(flat, [i * (n + 1) for i in range(n)], axis=len(rest))
            letters = "".join(letters[i] for i in rest) + c
    return value, letters


def _sum_out(op, value, letters, remaining):
    summed_axes = [i for i, c in enumerate(letters) if c not in remaining]
    if not summed_axes:
        return value, letters
    return op.ReduceSum(value, summed_axes, keepdims=0), "".join(c for c in letters if c in remaining)


def _contract(op, a, la, b, lb, later):
    """Contracts two operands: MatMul if a common letter is summed, else a broadcasting product.

    MatMul takes the operands transposed and reshaped to (batch, own, summed) and (batch, summed, own).
    """
    a, la = _sum_out(op, a, la, later | set(lb))
    b, lb = _sum_out(op, b, lb, later | set(la))
    batch = [c for c in la if c in lb and c in later]
    summed = [c for c in la if c in lb and c not in later]
    own_a, own_b = [c for c in la if c not in lb], [c for c in lb if c not in la]
    if not summed:
        letters = batch + summed + own_a + own_b
        outer = op.Mul(_aligned(op, a, la, letters), _aligned(op, b, lb, letters))
        return _sum_out(op, outer, "".join(letters), later)
    sizes = _sizes(op, a, la, b, lb)
    empty = 1 if 0 in [n for n in sizes.values() if isinstance(n, int)] else None

    def matrix(v, letters, first, second):
        v = op.Transpose(v, perm=[letters.index(c) for c in batch + first + second])
        batch_sizes = [op.size(v, i) for i in range(len(batch))]
        if any(v.shape[len(batch) + i] == 1 and sizes[c] != 1 for i, c in enumerate(first + second) if c in summed):
            v = op.Expand(v, op.dims([*batch_sizes, *(sizes[c] for c in first + second)]))
        if len(first) == len(second) == 1:
            return v
        both = (product(op, [sizes[c] for c in part]) for part in (first, second))
        return op.Reshape(v, op.dims([*batch_sizes, *both]), allowzero=empty)

    result = op.MatMul(matrix(a, la, own_a, summed), matrix(b, lb, summed, own_b))
    letters = batch + own_a + own_b
    if len(own_a) != 1 or len(own_b) != 1:
        result = op.Reshape(result, op.dims([sizes[c] for c in letters]), allowzero=empty)
    return result, "".join(letters)


def _sizes(op, a, la, b, lb):
    """The size of each letter after broadcasting."""
    sizes = {}
    for v, letters in ((a, la), (b, lb)):
        for i, c in enumerate(letters):
            size = op.size(v, i)
            if sizes.get(c, 1) == 1 if isinstance(sizes.get(c, 1), int) else False:
                sizes[c] = size
    return sizes


def _aligned(op, value, letters, wanted):
    """Transposes to the order of `wanted`, with axes of size 1 for missing letters."""
    order = [letters.index(c) for c in wanted if c in letters]
    value = op.Transpose(value, perm=order) if order != sorted(order) else value
    missing = [i for i, c in enumerate(wanted) if c not in letters]
    return op.Unsqueeze(value, missing) if missing else value


@decompose("Gemm")
def gemm(op, A, B, C=None, *, alpha=1.0, beta=1.0, transA=0, transB=0):
    a, b = (op.Transpose(v, perm=[1, 0]) if transposed else v for v, transposed in ((A, transA), (B, transB)))
    y = op.MatMul(a, b)
    y = y if alpha == 1.0 else op.Mul(y, alpha)
    return y if C is None or beta == 0 else op.Add(y, C if beta == 1.0 else op.Mul(C, beta))


_UNROLLED = 8


@decompose("Det")
def det(op, X):
    """The product of the pivots of Gaussian elimination with partial pivoting, with a sign change for each row exchange."""
    size, order = op.size(X, -1), rank(X)
    matrix = op.Reshape(X, op.dims([-1, size, size]))
    index = op.Reshape(arange(op, size), [1, -1])
    result = op.Expand(op.constant(1, dtype=X.dtype), op.dims([op.size(matrix, 0)]))

    def step(k, matrix, result):
        column = op.Gather(matrix, k, axis=2)
        best = op.ArgMax(op.Where(op.GreaterOrEqual(index, k), op.Abs(column), -1.0), axis=1, keepdims=1)
        row_order = op.Where(op.Equal(index, k), best, op.Where(op.Equal(index, best), k, index))
        matrix = op.GatherElements(matrix, op.Expand(op.Unsqueeze(row_order, [2]), op.Shape(matrix)), axis=1)
        row = op.Gather(matrix, k, axis=1)
        pivot = op.Gather(row, k, axis=1)
        below = op.Where(op.Greater(index, k), op.Gather(matrix, k, axis=2), 0.0)
        safe = op.Where(op.Equal(pivot, 0.0), 1.0, pivot)
        update = op.Mul(op.Unsqueeze(op.Div(below, op.Unsqueeze(safe, [1])), [2]), op.Unsqueeze(row, [1]))
        signed = op.Where(op.Equal(op.Squeeze(best, [1]), k), pivot, op.Neg(pivot))
        return op.Sub(matrix, update), op.Mul(result, signed)

    if isinstance(size, int) and size <= _UNROLLED:
        for k in range(size):
            matrix, result = step(np.int64(k), matrix, result)
    else:
        _, result = op.Loop(
            scalar(op, size), True, matrix, result, body=lambda k, condition, *state: [condition, *step(k, *state)], outputs=2
        )
    return op.reshape(result, [op.size(X, d) for d in range(order - 2)])
