"""Matrix products, Einsum and determinants."""

from itertools import combinations

import numpy as np
from coremltools.converters.mil import Builder as mb

from onnxbridge.backends.coreml.element_types import is_float, like
from onnxbridge.backends.coreml.ops import rule
from onnxbridge.backends.coreml.sizes import broadcast, numbers, product, reshaped, sizes
from onnxbridge.errors import Unsupported


@rule("MatMul")
def mat_mul(A, B):
    """MIL's matmul needs operands of rank 2 or more."""
    if A.rank == 1 and B.rank == 1:
        return mb.reduce_sum(x=mb.mul(x=A, y=B), axes=[0], keep_dims=False)
    if A.rank == 1:
        y = mb.matmul(x=mb.expand_dims(x=A, axes=[0]), y=B)
        return mb.squeeze(x=y, axes=[-2])
    if B.rank == 1:
        return mb.squeeze(x=mb.matmul(x=A, y=mb.expand_dims(x=B, axes=[1])), axes=[-1])
    return mb.matmul(x=A, y=B)


@rule("Gemm")
def gemm(A, B, C=None, *, alpha=1.0, beta=1.0, transA=0, transB=0):
    """MIL's `linear` if weights and bias are constant, as Apple's converters write a dense layer."""
    stored = transB and B.op is not None and B.op.op_type.startswith("constexpr_")
    if alpha == 1 and beta == 1 and not transA and is_float(A) and (B.val is not None or stored):
        bias = None if C is None else C.val
        row = bias is not None and bias.size == B.shape[0 if transB else 1] and bias.ndim <= 2 and bias.shape[-1:] == (bias.size,)
        if C is None or row:
            weight = B if stored else B.val if transB else np.ascontiguousarray(B.val.T)
            return mb.linear(x=A, weight=weight, bias=None if bias is None else bias.reshape(-1))
    y = mb.matmul(x=A, y=B, transpose_x=bool(transA), transpose_y=bool(transB))
    if alpha != 1:
        y = mb.mul(x=y, y=like(y, alpha))
    if C is None or beta == 0:
        return y
    return mb.add(x=y, y=C if beta == 1 else mb.mul(x=C, y=like(C, beta)))


@rule("Einsum", limits="diagonals need fixed sizes")
def einsum(*Inputs, equation):
    """Contracts operands pairwise from the left, each by one matmul that sums the axes not used later."""
    text = equation.replace(" ", "")
    given, _, result = text.partition("->")
    terms = given.split(",")
    if "->" not in text:
        letters = sorted({c for c in given if c.isalpha()})
        result = ("..." if "..." in given else "") + "".join(c for c in letters if given.count(c) == 1)
    terms, result = _expand_ellipsis(terms, result, Inputs)
    operands = [_diagonal(x, term) for x, term in zip(Inputs, terms, strict=True)]
    while len(operands) > 1:
        (x, xs), (y, ys) = operands[:2]
        later = result + "".join(t for _, t in operands[2:])
        remaining = "".join(dict.fromkeys(c for c in xs + ys if c in later))
        operands = [(_contract(x, xs, y, ys, remaining), remaining), *operands[2:]]
    x, term = operands[0]
    summed_axes = [i for i, c in enumerate(term) if c not in result]
    x = mb.reduce_sum(x=x, axes=summed_axes, keep_dims=False) if summed_axes else x
    term = "".join(c for c in term if c in result)
    perm = [term.index(c) for c in result]
    return mb.transpose(x=x, perm=perm) if perm != sorted(perm) else x


def _expand_ellipsis(terms, result, operands):
    """Replace the ellipsis by unused letters."""
    free = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" if not any(c in t for t in (*terms, result))]
    longest = max((x.rank - len(t) + 3 for x, t in zip(operands, terms, strict=True) if "..." in t), default=0)
    dots = "".join(free[:longest])

    def spelled(term, count):
        return term.replace("...", dots[len(dots) - count :] if count else "")

    made = [spelled(t, x.rank - len(t) + 3 if "..." in t else 0) for x, t in zip(operands, terms, strict=True)]
    return made, spelled(result, longest)


def _diagonal(x, term):
    """Take the diagonal of repeated letters, so that the operand's letters are distinct."""
    for letter in dict.fromkeys(term):
        while term.count(letter) > 1:
            first = term.index(letter)
            second = term.index(letter, first + 1)
            n = numbers(x)[first]
            perm = [a for a in range(x.rank) if a not in (first, second)]
            x = mb.transpose(x=x, perm=[*perm, first, second])
            eye = like(x, np.eye(n))
            x = mb.reduce_sum(x=mb.mul(x=x, y=eye), axes=[-1], keep_dims=False)
            term = "".join(term[a] for a in perm) + letter
    return x, term


def _contract(x, xs, y, ys, remaining):
    """Contract two operands: (batch, left, summed) by (batch, summed, right)."""
    x, xs = _sum_unshared(x, xs, ys, remaining)
    y, ys = _sum_unshared(y, ys, xs, remaining)
    batch = [c for c in xs if c in ys and c in remaining]
    summed = [c for c in xs if c in ys and c not in remaining]
    left, right = [c for c in xs if c not in ys], [c for c in ys if c not in xs]
    if not summed:  # no contraction: broadcast and multiply
        order = batch + left + right
        x, y = (_broadcast_axes(v, t, order) for v, t in ((x, xs), (y, ys)))
        z = mb.mul(x=x, y=y)
    else:
        dims = {c: n for v, t in ((x, xs), (y, ys)) for c, n in zip(t, sizes(v), strict=True) if n != 1 or c not in xs}
        dims = dict.fromkeys(xs + ys, 1) | dims
        a = _as_matrices(x, xs, batch, left, summed, dims)
        b = _as_matrices(y, ys, batch, summed, right, dims)
        z = reshaped(mb.matmul(x=a, y=b), [dims[c] for c in batch + left + right])
        order = batch + left + right
    perm = [order.index(c) for c in remaining]
    return mb.transpose(x=z, perm=perm) if perm != sorted(perm) else z


def _sum_unshared(x, term, other, remaining):
    summed_axes = [i for i, c in enumerate(term) if c not in other and c not in remaining]
    if not summed_axes:
        return x, term
    return mb.reduce_sum(x=x, axes=summed_axes, keep_dims=False), "".join(c for c in term if c in other or c in remaining)


def _broadcast_axes(x, term, order):
    perm = [term.index(c) for c in order if c in term]
    x = mb.transpose(x=x, perm=perm) if perm != sorted(perm) else x
    missing = [i for i, c in enumerate(order) if c not in term]
    return mb.expand_dims(x=x, axes=missing) if missing else x


def _as_matrices(x, term, batch, first, second, dims):
    order = batch + first + second
    perm = [term.index(c) for c in order]
    x = mb.transpose(x=x, perm=perm) if perm != sorted(perm) else x
    x = broadcast(x, [dims[c] for c in order]) if any(n == 1 != dims[c] for n, c in zip(sizes(x), order, strict=True)) else x
    return reshaped(x, [*(dims[c] for c in batch), product([dims[c] for c in first]), product([dims[c] for c in second])])


@rule("Det", limits="matrices of fixed size up to 6 x 6")
def det(X):
    """Laplace expansion along rows; each minor is computed once."""
    n = numbers(X)[-1]
    if n > 6:
        raise Unsupported(f"a {n} x {n} matrix")

    def element(row, column):
        begin, end = [0] * (X.rank - 2) + [row, column], [0] * (X.rank - 2) + [row + 1, column + 1]
        outer = [a < X.rank - 2 for a in range(X.rank)]
        return mb.slice_by_index(x=X, begin=begin, end=end, begin_mask=outer, end_mask=outer, squeeze_mask=[not o for o in outer])

    minors = {(c,): element(n - 1, c) for c in range(n)}
    for row in range(n - 2, -1, -1):
        larger = {}
        for columns in combinations(range(n), n - row):
            total = None
            for i, c in enumerate(columns):
                part = mb.mul(x=element(row, c), y=minors[columns[:i] + columns[i + 1 :]])
                total = part if total is None else (mb.sub if i % 2 else mb.add)(x=total, y=part)
            larger[columns] = total
        minors = larger
    return minors[tuple(range(n))]
