"""Attention whose past is one matrix a head, not a growing list of keys, and the convolutions and mixes that go with it."""

from __future__ import annotations

import math

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.microsoft import MICROSOFT, contrib, rank_of
from onnxbridge.hub.decompositions.microsoft.attention_heads import count
from onnxbridge.rules import Outputs

RULES = ("linear", "gated", "delta", "gated_delta")


@contrib(MICROSOFT + "LinearAttention")
def linear_attention(
    op, query, key, value, past_state=None, decay=None, beta=None, *, chunk_size=64, kv_num_heads, q_num_heads, scale=0.0,
    state_window=0, update_rule="gated_delta", outputs: Outputs = (True,),
):  # fmt: skip
    """One token after the other: the state (batch, heads, keys, values) fades, learns the token, and is asked.

    Heads that are fewer than others are repeated for those beside each other.
    """
    if update_rule not in RULES:
        raise Unsupported(f"the update rule {update_rule!r}")
    dtype, number = query.dtype, max(q_num_heads, kv_num_heads)
    wide = (op.Cast(x, to=1) for x in (query, key, value))
    counts = (q_num_heads, _heads_of(key, query, q_num_heads), kv_num_heads)
    q, k, v = (_by_token(op, x, n) for x, n in zip(wide, counts, strict=True))
    width, out = op.size(q, -1), op.size(v, -1)
    factor = scale or (1 / math.sqrt(width) if isinstance(width, int) else op.Reciprocal(op.Sqrt(op.Cast(width, to=1))))
    q, k = (_repeated(op, x, kv_num_heads) if x.shape is None or x.shape[2] != kv_num_heads else x for x in (q, k))
    each = [k, v]
    if "gated" in update_rule:
        fade = _by_token(op, op.Cast(decay, to=1), kv_num_heads)  # one number a head, or one for each of its keys
        each.append(op.Unsqueeze(op.Exp(fade), [-1]))
    if "delta" in update_rule:
        rate = op.Transpose(op.Cast(beta, to=1), perm=[1, 0, 2])  # (tokens, batch, heads or 1)
        each.append(op.Unsqueeze(rate, [-1]))
    start = past_state
    if past_state is None:
        start = op.Expand(np.zeros((1, 1, 1, 1), np.float32), op.dims([op.size(query, 0), kv_num_heads, width, out]))
    elif state_window:
        start = op.Gather(past_state, state_window - 1, axis=0)
    start = op.Cast(start, to=1)

    def learn(step, going, state):
        key_, value_, *rest = (op.Gather(x, step, axis=0) for x in each)
        if "gated" in update_rule:
            state = op.Mul(state, rest.pop(0))
        column = op.Unsqueeze(key_, [-1])
        if "delta" in update_rule:
            known = op.Squeeze(op.MatMul(op.Unsqueeze(key_, [-2]), state), [-2])
            value_ = op.Mul(op.Sub(value_, known), rest.pop(0))
        new = op.Add(state, op.MatMul(column, op.Unsqueeze(value_, [-2])))
        return [going, new, op.Identity(new)]

    final, states = op.Loop(count(op, q, 0), True, start, body=learn, outputs=2)  # (tokens, batch, heads, keys, values)
    if q_num_heads > kv_num_heads:
        groups = q_num_heads // kv_num_heads
        q = op.reshape(q, [op.size(q, 0), op.size(q, 1), kv_num_heads, groups, width])
        y = op.MatMul(q, states)
    else:
        y = op.MatMul(op.Unsqueeze(q, [-2]), states)
    y = op.Transpose(op.reshape(op.Mul(y, factor), [op.size(y, 0), op.size(y, 1), number, out]), perm=[1, 0, 2, 3])
    kept = dtype if past_state is None else past_state.dtype
    if state_window:  # those after each of the last tokens, zeros where there were fewer
        padded = op.Pad(states, [state_window, *[0] * 9])
        final = op.Slice(padded, [-state_window], [2**62], [0])
    return op.Cast(op.Reshape(y, np.array([0, 0, -1], np.int64)), to=dtype), op.Cast(final, to=kept)


def _heads_of(key, query, q_num_heads):
    """How many heads the keys have, whose size is that of the queries'."""
    sizes = key.shape[-1], query.shape[-1]
    if not all(isinstance(s, int) for s in sizes):
        raise Unsupported("hidden sizes that are not known")
    return sizes[0] * q_num_heads // sizes[1]


def _by_token(op, x, heads):
    """(batch, tokens, heads * size) as (tokens, batch, heads, size)."""
    return op.Transpose(op.Reshape(x, np.array([0, 0, heads, -1], np.int64)), perm=[1, 0, 2, 3])


def _repeated(op, x, heads):
    """Each head of (tokens, batch, heads, size) as often as makes `heads`; more of them stay as they are."""
    there = x.shape[2] if x.shape is not None else None
    if not isinstance(there, int):
        raise Unsupported("an unknown number of heads")
    return x if there >= heads else op.Gather(x, np.arange(heads) // (heads // there), axis=2)


@contrib(MICROSOFT + "CausalConvWithState")
def causal_conv_with_state(
    op, input, weight, bias=None, past_state=None, *, activation="none", channels_last=0, dilation=1, ndim=1, state_window=0,
    outputs: Outputs = (True,),
):  # fmt: skip
    """A convolution of each channel by itself that sees what is before a place only, and at first what was kept."""
    if ndim != 1 or channels_last and rank_of(input) != 3:
        raise Unsupported("more than one axis", "convolve along one, with the others as channels")
    channels, _, taps = weight.shape or (None,) * 3
    if not isinstance(taps, int) or not isinstance(channels, int):
        raise Unsupported("weights of an unknown size")
    reach = (taps - 1) * dilation

    def turned(x):
        return op.Transpose(x, perm=[0, 2, 1]) if channels_last else x

    x = turned(input)
    if past_state is None:
        whole = op.Pad(x, [0, 0, reach, 0, 0, 0])
    else:
        before = op.Gather(past_state, state_window - 1, axis=0) if state_window else past_state
        whole = op.Concat(turned(op.CastLike(before, x)), x, axis=2)
    y = op.Conv(whole, weight, bias, dilations=[dilation], group=channels)
    if activation in ("silu", "swish"):
        y = op.Mul(y, op.Sigmoid(y))
    elif activation != "none":
        raise Unsupported(f"activation {activation!r}")
    length = op.Unsqueeze(count(op, x, 2), [0])

    def after(places):
        """What is kept when all but the last `places` have been seen, zeros where there were fewer."""
        start = op.Sub(length, np.array([places], np.int64))
        begin = op.Max(start, np.array([0], np.int64))
        kept = turned(op.Slice(whole, begin, op.Add(begin, np.array([reach], np.int64)), [2]))
        return op.Mul(kept, op.CastLike(op.Greater(start, np.array([0], np.int64)), kept)) if places else kept

    if not state_window:
        return turned(y), after(0)
    return turned(y), op.Concat(*(op.Unsqueeze(after(n), [0]) for n in reversed(range(state_window))), axis=0)


def _streams(op, x, branches):
    """(..., branches, features), which may come in one dimension."""
    if not branches:
        return x
    return op.Reshape(x, np.array([0] * (rank_of(x) - 1) + [branches, -1], np.int64))


@contrib(MICROSOFT + "HyperConnectionPreMix")
def hyper_connection_pre_mix(op, streams, pre_mix, *, num_branches=0, reduction_scale=1.0):
    x = _streams(op, streams, num_branches)
    weight = op.CastLike(_gates(op, pre_mix, x), x)
    y = op.ReduceSum(op.Mul(x, weight), [-2], keepdims=0)
    return op.Mul(y, reduction_scale) if reduction_scale != 1.0 else y


def _gates(op, gates, x):
    """(..., branches, features or 1) of gates for each branch, which may lack the last dimension, or have both in one."""
    if rank_of(gates) == rank_of(x):
        return gates
    branches = x.shape[-2]
    if gates.shape[-1] == branches:
        return op.Unsqueeze(gates, [-1])
    if not isinstance(branches, int):
        raise Unsupported("an unknown number of branches")
    return op.Reshape(gates, np.array([0] * (rank_of(gates) - 1) + [branches, -1], np.int64))


@contrib(MICROSOFT + "HyperConnectionPostMix")
def hyper_connection_post_mix(op, streams, block_output, post_mix, stream_mix=None, *, num_branches=0):
    x = _streams(op, streams, num_branches)
    kept = x
    if stream_mix is not None:
        turned = list(range(rank_of(stream_mix)))
        turned[-2:] = turned[:-3:-1]
        kept = op.MatMul(op.Transpose(op.CastLike(stream_mix, x), perm=turned), x)
    y = op.Add(kept, op.Mul(op.CastLike(_gates(op, post_mix, x), x), op.Unsqueeze(block_output, [-2])))
    return op.Reshape(y, op.Shape(streams)) if num_branches else y


@contrib(MICROSOFT + "EngramGate")
def engram_gate(
    op, key, query, value, key_norm_scale, query_norm_scale, conv_norm_scale=None, *, epsilon=1e-5, outputs: Outputs = (True,)
):  # fmt: skip
    """A value shared by all streams, let through by how alike the normalized keys and queries are."""
    normed = (_normed(op, x, s, epsilon) for x, s in ((key, key_norm_scale), (query, query_norm_scale)))
    dot = op.ReduceSum(op.Mul(next(normed), next(normed)), [-1], keepdims=1)
    size = op.size(key, -1)
    if not isinstance(size, int):
        raise Unsupported("an unknown hidden size")
    dot = op.Mul(dot, 1 / math.sqrt(size))
    gate = op.Sigmoid(op.Mul(op.Sign(dot), op.Sqrt(op.Max(op.Abs(dot), 1e-6))))
    y = op.Mul(gate, op.Unsqueeze(op.Cast(value, to=1), [2]))
    normal = None if conv_norm_scale is None else op.CastLike(_normed(op, y, conv_norm_scale, epsilon), key)
    return op.CastLike(y, key), normal


def _normed(op, x, scale, epsilon):
    """RMS normalization in float32; the scale has one row for each stream."""
    x = op.Cast(x, to=1)
    mean = op.ReduceMean(op.Mul(x, x), [-1], keepdims=1)
    return op.Mul(op.Div(x, op.Sqrt(op.Add(mean, epsilon))), op.Cast(scale, to=1))
