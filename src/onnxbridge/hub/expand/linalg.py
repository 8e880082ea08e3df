"""Einsum in products of matrices: each operand transposed to (batch, own, summed), two at a time."""

from __future__ import annotations

from onnxbridge.errors import Unsupported
from onnxbridge.hub.expand import expand


@expand("Einsum")
def einsum(op, *Inputs, equation):
    terms, result = _letters(equation, [v.shape for v in Inputs])
    values = [_diagonal(op, v, t) for v, t in zip(Inputs, terms, strict=True)]
    value, letters = _summed(op, *values[0], set("".join(t for _, t in values[1:]) + result))
    for i, (other, others) in enumerate(values[1:], 1):
        later = set("".join(t for _, t in values[i + 1 :]) + result)
        value, letters = _multiplied(op, value, letters, other, others, later)
    value, letters = _summed(op, value, letters, set(result))
    order = [letters.index(c) for c in result]
    return op.Transpose(value, perm=order) if order != sorted(order) else op.Identity(value)


def _letters(equation, shapes):
    """The letters of each operand and of the result, an ellipsis as letters of its own; without "->" the single ones in order."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if any(s is None for s in shapes) or len(terms) != len(shapes):
        raise Unsupported("operands of unknown rank")
    hidden = [len(s) - len(t.replace("...", "")) if "..." in t else 0 for t, s in zip(terms, shapes, strict=True)]
    dots = "".join(chr(0x3B1 + i) for i in range(max(hidden)))
    full = [t.replace("...", dots[len(dots) - n :]) for t, n in zip(terms, hidden, strict=True)]
    if len(set(hidden) - {0}) > 1:
        raise Unsupported("ellipses of different ranks")
    every = "".join(full)
    if not arrow:
        return full, dots + "".join(sorted(c for c in set(every) - set(dots) if every.count(c) == 1))
    return full, right.replace("...", dots)


def _diagonal(op, value, letters):
    """One axis for each letter: of a letter that stands twice only the elements at equal places count."""
    for c in dict.fromkeys(letters):
        while letters.count(c) > 1:
            a, b = letters.index(c), letters.rindex(c)
            n = value.shape[a]
            if not isinstance(n, int):
                raise Unsupported("a diagonal of unknown length")
            rest = [i for i in range(len(letters)) if i not in (a, b)]
            last = op.Transpose(value, perm=[*rest, a, b])
            flat = op.Reshape(last, [*([0] * len(rest)), n * n])
            value = op.Gather(flat, [i * (n + 1) for i in range(n)], axis=len(rest))
            letters = "".join(letters[i] for i in rest) + c
    return value, letters


def _summed(op, value, letters, kept):
    gone = [i for i, c in enumerate(letters) if c not in kept]
    if not gone:
        return value, letters
    return op.ReduceSum(value, gone, keepdims=0), "".join(c for c in letters if c in kept)


def _multiplied(op, a, la, b, lb, later):
    """MatMul where a letter of both is summed, otherwise a product that broadcasts."""
    a, la = _summed(op, a, la, later | set(lb))
    b, lb = _summed(op, b, lb, later | set(la))
    batch = [c for c in la if c in lb and c in later]
    summed = [c for c in la if c in lb and c not in later]
    own_a, own_b = [c for c in la if c not in lb], [c for c in lb if c not in la]
    if not summed or not all(isinstance(v.shape[ls.index(c)], int) for v, ls in ((a, la), (b, lb)) for c in ls):
        letters = batch + summed + own_a + own_b
        product = op.Mul(_placed(op, a, la, letters), _placed(op, b, lb, letters))
        return _summed(op, product, "".join(letters), later)
    sizes = {c: max(v.shape[ls.index(c)] for v, ls in ((a, la), (b, lb)) if c in ls) for c in la + lb}
    empty = 1 if 0 in sizes.values() else None

    def matrix(v, letters, first, second):
        v = op.Transpose(v, perm=[letters.index(c) for c in batch + first + second])
        wide = [v.shape[i] for i in range(len(batch))]
        if any(v.shape[i] != sizes[c] for i, c in enumerate(batch + first + second) if c in summed):
            v = op.Expand(v, [*wide, *(sizes[c] for c in first + second)])
        return op.Reshape(v, [*wide, _product(sizes, first), _product(sizes, second)], allowzero=empty)

    product = op.MatMul(matrix(a, la, own_a, summed), matrix(b, lb, summed, own_b))
    letters = batch + own_a + own_b
    return op.Reshape(product, [sizes[c] for c in letters], allowzero=empty), "".join(letters)


def _product(sizes, letters):
    total = 1
    for c in letters:
        total *= sizes[c]
    return total


def _placed(op, value, letters, wanted):
    """The axes in the wanted order, with new ones of size 1 for letters that the value lacks."""
    order = [letters.index(c) for c in wanted if c in letters]
    value = op.Transpose(value, perm=order) if order != sorted(order) else value
    missing = [i for i, c in enumerate(wanted) if c not in letters]
    return op.Unsqueeze(value, missing) if missing else value
