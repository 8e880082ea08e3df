"""Patterns of Attention: a scaled product of queries and keys, an additive mask, Softmax, and a product with the values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.ir.fold import constant_array
from onnxbridge.hub.patterns.forms import form
from onnxbridge.hub.patterns.match import Either, Number, Op, Pattern, Product, Value, producer

_SCORES = Product(
    Number("scale"), Op("MatMul", Product(Value("q"), Number("of_q")), Product(Value("transposed"), Number("of_k")))
)
_V = Value("v")
_TYPES = (ir.DataType.FLOAT, ir.DataType.DOUBLE)
_LAYOUT_OPS = frozenset({"Expand", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Tile", "Transpose", "Unsqueeze"})


def _any(axis: Any) -> bool:
    return True


_UNMASKED = Op("Softmax", _SCORES, axis=_any, node="softmax")
_MASKED = Op("Softmax", Op("Add", _SCORES, Value("mask")), axis=_any, node="softmax")


def _safe(softmax: Pattern) -> Pattern:
    """Zeros for queries whose keys are all masked, as PyTorch decomposes it."""
    return Op("Where", Op("IsNaN", softmax), 0.0, softmax, node="safe")


@form("Attention", *(Op("MatMul", weights, _V) for weights in (_UNMASKED, _MASKED, _safe(_UNMASKED), _safe(_MASKED))))
def attention(
    op: Builder, q: ir.Value, of_q: float, transposed: ir.Value, of_k: float, scale: float, softmax: ir.Node, v: ir.Value,
    mask: ir.Value | None = None, safe: ir.Node | None = None,
) -> Any:  # fmt: skip
    """softmax(scale q k' + mask) v for rank 4, or rank 3 with a single head."""
    dims = [None if x.shape is None else list(x.shape) for x in (q, transposed, v)]
    rank, factor = len(dims[0] or ()), scale * of_q * of_k
    if any(d is None or len(d) != rank for d in dims) or rank not in (3, 4) or not _is_last_axis(softmax, rank):
        return None
    queries, keys, values = (d or [] for d in dims)
    if not _shapes_match(queries, [*keys[:-2], keys[-1], keys[-2]], values, mask, safe) or not _is_supported(
        q, transposed, v, factor
    ):
        return None
    if mask is not None and rank == 3 and mask.shape is not None and len(mask.shape) == 3:
        mask = op.Unsqueeze(mask, [1])
    heads = {"q_num_heads": 1, "kv_num_heads": 1} if rank == 3 else {}
    return op.Attention(q, _swap_last_axes(op, transposed, rank), v, mask, scale=factor, **heads)


_PRODUCT = Product(
    Number("scale"),
    Op("Einsum", Product(Value("a"), Number("of_a")), Product(Value("b"), Number("of_b")), node="scores", equation=_any),
)
_SOFTMAX = Op("Softmax", _PRODUCT, axis=_any, node="softmax")
_SOFTMAX_MASKED = Op("Softmax", Op("Add", _PRODUCT, Value("mask")), axis=_any, node="softmax")



def _where(scores: Pattern) -> Pattern:
    return Op("Softmax", Op("Where", Value("mask"), scores, Number("masked")), axis=_any, node="softmax")


MASKED_BY_WHERE = Either((Op("MatMul", _where(_SCORES), _V), Op("Einsum", _where(_PRODUCT), _V, node="result", equation=_any)))
"""Attention as Keras masks it: with the same score for all keys that are masked, and so the same weights where all are."""


@form("Attention", *(Op("Einsum", weights, _V, node="result", equation=_any) for weights in (_SOFTMAX, _SOFTMAX_MASKED)))
def einsum_attention(
    op: Builder, a: ir.Value, of_a: float, b: ir.Value, of_b: float, scores: ir.Node, scale: float, softmax: ir.Node,
    v: ir.Value, result: ir.Node, mask: ir.Value | None = None,
) -> Any:  # fmt: skip
    """The same with Einsum, in any order of axes, as Keras decomposes it."""
    found = einsum_heads(a, b, v, scores, result)
    if found is None or not _is_last_axis(softmax, 4):
        return None
    inputs, order = found
    dims = [[x.shape[i] for i in perm] for x, perm in inputs if x.shape is not None]
    (q, _), (k, _), _ = inputs
    factor = scale * of_a * of_b
    if not _shapes_match(dims[0], dims[1], dims[2], mask, None) or not _is_supported(q, k, v, factor):
        return None
    y = op.Attention(*(op.Transpose(x, perm=perm) for x, perm in inputs), mask, scale=factor)
    return op.Transpose(y, perm=order)


def einsum_heads(
    a: ir.Value, b: ir.Value, v: ir.Value, scores: ir.Node, result: ir.Node
) -> tuple[list[tuple[ir.Value, list[int]]], list[int]] | None:
    """Queries, keys and values of attention by two Einsums, each with the permutation to (batch, heads, time, depth), and the
    permutation from that to the result; None if the Einsums are not those of attention."""
    terms, ends = (_einsum_terms(n.attributes["equation"].as_string()) for n in (scores, result))
    if terms is None or ends is None:
        return None
    batch, head, query, key = list(terms[2])
    second = [t.translate(str.maketrans(ends[0], terms[2])) for t in ends]  # in the letters of the first equation
    depth = "".join(set(terms[0]) & set(terms[1]) - set(terms[2]))
    width = "".join(set(second[1]) - set(terms[2]))
    orders = [batch + head + query + depth, batch + head + key + depth, batch + head + key + width]
    result_order = batch + head + query + width
    parts = [(t, x) for order in orders[:2] for t, x in ((terms[0], a), (terms[1], b)) if sorted(t) == sorted(order)]
    parts += [(second[1], v)] if sorted(second[1]) == sorted(orders[2]) and sorted(second[2]) == sorted(result_order) else []
    if len(parts) != 3 or any(x.shape is None or len(x.shape) != 4 for _, x in parts):
        return None
    inputs = [(x, [t.index(letter) for letter in order]) for (t, x), order in zip(parts, orders, strict=True)]
    return inputs, [result_order.index(letter) for letter in second[2]]


def _einsum_terms(equation: str) -> tuple[str, str, str] | None:
    """The axes of the operands and the result of an Einsum; None unless it has two operands and everything has rank 4."""
    left, _, last = equation.replace(" ", "").partition("->")
    operands = left.split(",")
    if len(operands) != 2 or not all(len(t) == len(set(t)) == 4 and t.isalpha() for t in (*operands, last)):
        return None
    return operands[0], operands[1], last


def _is_last_axis(softmax: ir.Node, rank: int) -> bool:
    axis = softmax.attributes.get("axis")
    return axis is None or axis.as_int() % rank == rank - 1


def _is_supported(q: ir.Value, k: ir.Value, v: ir.Value, factor: float) -> bool:
    return 0 < factor < math.inf and q.dtype in _TYPES and all(x.const_value is None for x in (q, k, v))


def _shapes_match(queries: list[Any], keys: list[Any], values: list[Any], mask: ir.Value | None, safe: ir.Node | None) -> bool:
    """Whether the shapes of queries, keys and values match, and the operator treats the mask as the pattern does."""
    heads = _same_sizes(queries[:-2], keys[:-2]) and _same_sizes(queries[:-2], values[:-2])
    if not heads or not _same_sizes(keys[-2:-1], values[-2:-1]):
        return False
    return mask is None or (_mask_covers_keys(mask, queries, keys[-2]) and (safe is not None or _no_query_fully_masked(mask)))


def _same_sizes(a: list[Any], b: list[Any]) -> bool:
    """Whether sizes are equal, as integers or as named dimensions."""
    return len(a) == len(b) and all(_size(x) is not None and _size(x) == _size(y) for x, y in zip(a, b, strict=True))


def _size(dim: Any) -> int | str | None:
    return dim if isinstance(dim, int) else dim.value


def _swap_last_axes(op: Builder, keys: ir.Value, rank: int) -> Any:
    """The keys with their last two axes swapped, merged with a Transpose before them."""
    order = [*range(rank - 2), rank - 1, rank - 2]
    node = producer(keys, "Transpose")
    if node is not None and node.inputs[0] is not None and "perm" in node.attributes:
        before = node.attributes["perm"].as_ints()
        perm = [before[i] for i in order]
        return node.inputs[0] if perm == list(range(rank)) else op.Transpose(node.inputs[0], perm=perm)
    if (source := _before_reshape(keys)) is not None:
        lead = list(keys.shape or ())[: rank - 2]
        return op.Reshape(source, lead + list(source.shape or ())[-2:])
    return op.Transpose(keys, perm=order)


def _before_reshape(keys: ir.Value) -> ir.Value | None:
    """The input of a Transpose followed by a Reshape that only changes the leading axes, as torch.onnx writes it."""
    reshape = producer(keys, "Reshape")
    swapped = None if reshape is None else producer(reshape.inputs[0], "Transpose")
    source = None if swapped is None else swapped.inputs[0]
    if swapped is None or source is None or source.shape is None or keys.shape is None or "perm" not in swapped.attributes:
        return None
    axes, dims = list(range(len(source.shape))), list(keys.shape)
    swaps = list(swapped.attributes["perm"].as_ints()) == [*axes[:-2], *axes[:-3:-1]]
    fixed = all(isinstance(d, int) for d in (*dims, *source.shape))
    return source if swaps and fixed and list(source.shape[-2:]) == dims[:-3:-1] else None


def _mask_covers_keys(mask: ir.Value, queries: list[Any], keys: Any) -> bool:
    """Whether a mask broadcasts to the scores and has an element for each key: the operator masks keys beyond its length."""
    dims = [] if mask.shape is None else list(mask.shape)
    if not 2 <= len(dims) <= len(queries) or not _same_sizes(dims[-1:], [keys]):
        return False
    return all(d == 1 or _same_sizes([d], [n]) for d, n in zip(dims[-2::-1], queries[-2::-1], strict=False))


def _no_query_fully_masked(mask: ir.Value, depth: int = 16) -> bool:
    """Whether no query has all keys masked, for which the operator gives zeros but Softmax gives NaN."""
    array = constant_array(mask)
    if array is not None:
        return bool(np.isfinite(array).any(-1).all()) if array.size else False
    return _is_finite(mask, depth)


def _is_finite(value: ir.Value | None, depth: int) -> bool:
    """Whether a value is computed only from finite numbers, integers and booleans, so that it has no infinities."""
    if value is None or depth == 0:
        return False
    array = constant_array(value)
    if array is not None:
        return bool(np.isfinite(array).all())
    if value.dtype is not None and not value.dtype.is_floating_point():
        return True
    node = value.producer()
    if node is None or node.domain:
        return False
    if node.op_type in _LAYOUT_OPS or node.op_type == "Cast":
        return _is_finite(node.inputs[0], depth - 1)
    if node.op_type == "Where":
        return all(_is_finite(v, depth - 1) for v in node.inputs[1:])
    return node.op_type in ("Add", "Sub", "Mul") and all(_is_finite(v, depth - 1) for v in node.inputs)
