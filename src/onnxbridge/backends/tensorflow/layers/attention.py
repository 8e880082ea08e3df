"""Attention as Keras layers: `MultiHeadAttention` with the projections around it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.backends.tensorflow.functional.expressions import Expression
from onnxbridge.backends.tensorflow.functional.multi_head import Heads, multi_head
from onnxbridge.backends.tensorflow.functional.values import dims, dtype_config, is_float, known, only_user, rank
from onnxbridge.backends.tensorflow.layers import around, layer
from onnxbridge.backends.tensorflow.layers.arithmetic import adds_right
from onnxbridge.hub.patterns.attention import MASKED_BY_WHERE, einsum_heads
from onnxbridge.hub.patterns.match import Found
from onnxbridge.rules import Outputs

_MASKED = -1e9
"""What is added to a score that counts as masked."""


@around("Attention")
def attention(
    node: ir.Node, Q: ir.Value, K: ir.Value, V: ir.Value, attn_mask: ir.Value | None = None, past_key: ir.Value | None = None,
    past_value: ir.Value | None = None, nonpad_kv_seqlen: ir.Value | None = None, *, is_causal: int = 0,
    kv_num_heads: int | None = None, q_num_heads: int | None = None, qk_matmul_output_mode: int = 0, scale: float | None = None,
    softcap: float = 0.0, softmax_precision: int | None = None, outputs: Outputs,
) -> Expression | None:  # fmt: skip
    states = (past_key, past_value, nonpad_kv_seqlen)
    if any(outputs[1:]) or any(s is not None for s in states) or softcap or softmax_precision not in (None, ir.DataType.FLOAT):
        return None
    if q_num_heads != kv_num_heads or rank(Q) not in (3, 4) or (rank(Q) == 3) != bool(q_num_heads):
        return None
    causal = bool(is_causal) and attn_mask is None or not is_causal and _is_causal(attn_mask)
    if not causal and (attn_mask is not None or is_causal):
        return None
    if q_num_heads:
        inputs = [Heads(x, lambda a: a.reshape(*a.shape[:2], q_num_heads, -1).transpose(0, 2, 1, 3)) for x in (Q, K, V)]
        result = Heads(node.outputs[0], lambda a: a.reshape(*a.shape[:2], -1))
    else:
        inputs = [Heads(x, lambda a: a) for x in (Q, K, V)]
        result = Heads(node.outputs[0], lambda a: a.transpose(0, 2, 1, 3))
    named = {"use_causal_mask": True} if causal else {}
    return multi_head(inputs, result, (node,), scale, named)


@layer("Attention")
def plain_attention(
    node: ir.Node, Q: ir.Value, K: ir.Value, V: ir.Value, attn_mask: ir.Value | None = None, past_key: ir.Value | None = None,
    past_value: ir.Value | None = None, nonpad_kv_seqlen: ir.Value | None = None, *, is_causal: int = 0,
    kv_num_heads: int | None = None, q_num_heads: int | None = None, qk_matmul_output_mode: int = 0, scale: float | None = None,
    softcap: float = 0.0, softmax_precision: int | None = None, outputs: Outputs,
) -> Expression | None:  # fmt: skip
    """softmax(scale q k' + mask) v as Keras computes it."""
    states = (past_key, past_value, nonpad_kv_seqlen)
    if any(outputs[1:]) or any(s is not None for s in states) or softcap or softmax_precision not in (None, ir.DataType.FLOAT):
        return None
    if is_causal or any(rank(x) != 4 for x in (Q, K, V)) or not is_float(Q, K, V):
        return None
    depth, heads = dims(Q)[3], {dims(x)[1] for x in (Q, K, V)}
    if depth is None or None in heads or len(heads) > 1 or Q.dtype not in (ir.DataType.FLOAT, ir.DataType.DOUBLE):
        return None
    factor = 1 / math.sqrt(depth) if scale is None else scale
    keys = Expression("ops.transpose", (K, (0, 1, 3, 2)))
    scores = Expression("ops.matmul", (Expression("ops.multiply", (Q, factor)), keys))
    if attn_mask is not None:
        assert Q.shape is not None and K.shape is not None
        like = ir.Value(type=Q.type, shape=ir.Shape([*Q.shape[:3], K.shape[2]]))
        mask = known(attn_mask) if attn_mask.const_value is not None else attn_mask
        if not is_float(Q, attn_mask) or mask is None or not 2 <= rank(attn_mask) <= 4:
            return None
        if adds_right(like, attn_mask):
            scores = Expression("ops.add", (scores, mask))
        elif adds_right(attn_mask, like):
            scores = Expression("ops.add", (mask, scores))
        else:
            return None
    return Expression("ops.matmul", (Expression("Softmax", (scores,), dtype_config(Q)), V))


def _is_causal(mask: ir.Value | None) -> bool:
    """Whether a constant mask hides from each query the keys after it, and nothing else."""
    array = None if mask is None else known(mask)
    if array is None or array.ndim < 2 or array.shape[-1] != array.shape[-2] or array.dtype.kind not in "fb":
        return False
    shown = array if array.dtype.kind == "b" else array == 0
    hidden = ~shown if array.dtype.kind == "b" else array <= _MASKED
    causal = np.tri(array.shape[-1], dtype=bool)
    return bool((shown == causal).all() and (hidden == ~causal).all())


@around("Where")
def masked_attention(node: ir.Node, condition: ir.Value, X: ir.Value, Y: ir.Value) -> Expression | None:
    """Attention whose scores are the same number where they are masked."""
    softmax = only_user(node.outputs[0])
    last = None if softmax is None or softmax.op_type != "Softmax" or rank(X) != 4 else only_user(softmax.outputs[0])
    found = None if last is None else next(MASKED_BY_WHERE.match(last.outputs[0], Found()), None)
    if last is None or found is None or found.named["softmax"].attributes.get_int("axis", -1) not in (-1, 3):
        return None
    if not -math.inf < found.named["masked"] <= _MASKED:
        return None
    inputs, result = _heads(last, found)
    mask, causal = _without_causal(condition)
    mask = None if mask is None else _without_heads(mask)
    if not inputs or (mask is not None and (mask.const_value is not None or rank(mask) < 3)):
        return None
    named: dict[str, Any] = {} if mask is None else {"attention_mask": mask}
    if causal:
        named["use_causal_mask"] = True
    scale = math.prod(found.named[name] for name in ("scale", "of_q", "of_k", "of_a", "of_b") if name in found.named)
    nodes = [n for n in found.nodes if n is not last]
    return multi_head(inputs, result, (*nodes, last), scale, named, condition)


def _heads(last: ir.Node, found: Found) -> tuple[list[Heads], Heads]:
    """Queries, keys and values, and the result."""
    named = found.named
    if last.op_type == "MatMul":
        keys = Heads(named["transposed"], lambda a: a.transpose(0, 1, 3, 2))
        inputs = [Heads(named["q"], lambda a: a), keys, Heads(named["v"], lambda a: a)]
        return inputs, Heads(last.outputs[0], lambda a: a.transpose(0, 2, 1, 3))
    scores = next(n for n in found.nodes if n.op_type == "Einsum" and n is not last)
    parts = einsum_heads(named["a"], named["b"], named["v"], scores, last)
    if parts is None:
        return [], Heads(last.outputs[0], lambda a: a)
    order = [(0, 2, 1, 3)[i] for i in parts[1]]
    return [_permuted(x, perm) for x, perm in parts[0]], Heads(last.outputs[0], lambda a: a.transpose(order))


def _permuted(x: ir.Value, perm: Sequence[int]) -> Heads:
    return Heads(x, lambda a: a.transpose(perm))


def _without_causal(mask: ir.Value) -> tuple[ir.Value | None, bool]:
    """A mask without what hides from each query the keys after it, and whether it hides them; None if nothing else is hidden."""
    if _is_true(mask) or _is_causal_mask(mask):
        return None, not _is_true(mask)
    node = mask.producer()
    if node is not None and node.op_type == "And":
        parts = [_without_causal(v) for v in node.inputs if v is not None]
        rest = [m for m, _ in parts if m is not None]
        if len(rest) < 2:
            return (rest[0] if rest else None), any(causal for _, causal in parts)
    elif (inner := _without_heads(mask)) is not mask and (found := _without_causal(inner))[0] is not inner:
        return found
    return mask, False


def _is_true(mask: ir.Value | None) -> bool:
    """Whether all elements are true, however many there are."""
    node = None if mask is None else mask.producer()
    if node is not None and node.op_type in ("Expand", "Unsqueeze", "Reshape", "Cast"):
        return _is_true(node.inputs[0])
    array = None if mask is None else known(mask)
    return array is not None and array.size > 0 and bool((array == 1).all())


def _is_causal_mask(mask: ir.Value) -> bool:
    """Whether a mask hides from each query the keys after it, and nothing else."""
    node = mask.producer()
    while node is not None and node.op_type == "Unsqueeze" and node.inputs[0] is not None:
        mask, node = node.inputs[0], node.inputs[0].producer()
    if node is None or node.op_type not in ("Trilu", "GreaterOrEqual"):
        return _is_causal(mask)
    if node.op_type == "GreaterOrEqual":  # the number of the query and that of the key, counted along the last axes
        return [_counted_axis(v) for v in node.inputs] == [-2, -1]
    diagonal = known(node.inputs[1]) if len(node.inputs) > 1 else np.zeros(1)
    upper = node.attributes.get_int("upper", 1)
    return not upper and diagonal is not None and not diagonal.any() and rank(mask) == 2 and _is_true(node.inputs[0])


def _counted_axis(value: ir.Value | None) -> int | None:
    """The axis, negative, along which a sum counts ones."""
    node = None if value is None else value.producer()
    if value is None or node is None or node.op_type != "CumSum" or not _is_true(node.inputs[0]):
        return None
    axis, plain = known(node.inputs[1]), not any(node.attributes.get_int(a, 0) for a in ("exclusive", "reverse"))
    return int(axis.item()) % rank(value) - rank(value) if axis is not None and plain else None


def _without_heads(mask: ir.Value) -> ir.Value:
    """A mask of (batch, 1, queries, keys) without the axis of the heads."""
    node = mask.producer()
    axes = None if node is None or node.op_type != "Unsqueeze" else known(node.inputs[1])
    one = axes is not None and axes.reshape(-1).tolist() in ([1], [-3]) and rank(mask) == 4
    return node.inputs[0] if one and node is not None and node.inputs[0] is not None else mask
