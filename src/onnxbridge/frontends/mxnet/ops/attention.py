"""The products of multi-head attention, on projections interleaved by head."""

from __future__ import annotations

from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.frontends.mxnet.ops.linalg import transposed
from onnxbridge.hub.ir.values import static_shape


def heads_of(op, x, heads, parts, which):
    """One of the interleaved projections, [length, batch, heads * parts * size], as [batch * heads, length, size]."""
    size = static_shape(x, [2])[0] // (heads * parts)
    length, batch = op.size(x, 0), x.shape[1]
    if parts == 1:
        one = op.reshape(x, [length, batch * heads if isinstance(batch, int) else -1, size])
        return op.Transpose(one, perm=[1, 0, 2])
    one = op.Gather(op.Reshape(x, [0, 0, heads, parts, size]), which, axis=3)
    return op.reshape(op.Transpose(one, perm=[1, 2, 0, 3]), [batch * heads if isinstance(batch, int) else -1, length, size])


def scores(op, queries, keys):
    return op.MatMul(op.Div(queries, float(static_shape(queries, [2])[0]) ** 0.5), transposed(op, keys))


def joined(op, attention, values, heads):
    """Values weighted by attention, with concatenated heads: [length, batch, heads * size]."""
    both, length = attention.shape[0], op.size(attention, 1)
    (size,) = static_shape(values, [2])
    batch = both // heads if isinstance(both, int) else -1
    mixed = op.reshape(op.MatMul(attention, values), [batch, heads, length, size])
    return op.Reshape(op.Transpose(mixed, perm=[2, 0, 1, 3]), [0, 0, heads * size])


@rule("_contrib_interleaved_matmul_selfatt_qk")
def selfatt_qk(op, queries_keys_values, *, heads):
    return scores(op, *[heads_of(op, queries_keys_values, heads, 3, i) for i in (0, 1)])


@rule("_contrib_interleaved_matmul_selfatt_valatt")
def selfatt_valatt(op, queries_keys_values, attention, *, heads):
    return joined(op, attention, heads_of(op, queries_keys_values, heads, 3, 2), heads)


@rule("_contrib_interleaved_matmul_encdec_qk")
def encdec_qk(op, queries, keys_values, *, heads):
    return scores(op, heads_of(op, queries, heads, 1, 0), heads_of(op, keys_values, heads, 2, 0))


@rule("_contrib_interleaved_matmul_encdec_valatt")
def encdec_valatt(op, keys_values, attention, *, heads):
    return joined(op, attention, heads_of(op, keys_values, heads, 2, 1), heads)
