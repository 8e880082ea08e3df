"""Linear attention with a matrix state per head, and the operators that such models use with it."""

from __future__ import annotations

import math

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.microsoft import MICROSOFT, contrib, rank_of
from onnxbridge.hub.decompositions.microsoft.attention_heads import dim_size
from onnxbridge.rules import Outputs

UPDATE_RULES = ("linear", "gated", "delta", "gated_delta")


@contrib(MICROSOFT + "LinearAttention")
def linear_attention(
    op, query, key, value, past_state=None, decay=None, beta=None, *, chunk_size=64, kv_num_heads, q_num_heads, scale=0.0,
    state_window=0, update_rule="gated_delta", outputs: Outputs = (True,),
):  # fmt: skip
    """Loops over tokens: decays the state (batch, heads, keys, values), adds the token, and multiplies with the query.

    If there are fewer query or key heads than value heads, each is repeated for consecutive heads.
    """
    if update_rule not in UPDATE_RULES:
        raise Unsupported(f"update_rule={update_rule!r}")
    dtype, num_heads = query.dtype, max(q_num_heads, kv_num_heads)
    in_float32 = (op.Cast(x, to=1) for x in (query, key, value))
    counts = (q_num_heads, _heads_of(key, query, q_num_heads), kv_num_heads)
    q, k, v = (_by_token(op, x, n) for x, n in zip(in_float32, counts, strict=True))
    width, out = op.size(q, -1), op.size(v, -1)
    factor = scale or (1 / math.sqrt(width) if isinstance(width, int) else op.Reciprocal(op.Sqrt(op.Cast(width, to=1))))
    q, k = (_repeat_heads(op, x, kv_num_heads) if x.shape is None or x.shape[2] != kv_num_heads else x for x in (q, k))
    per_token = [k, v]
    if "gated" in update_rule:
        decay_by_token = _by_token(op, op.Cast(decay, to=1), kv_num_heads)  # one per head, or one per key dimension
        per_token.append(op.Unsqueeze(op.Exp(decay_by_token), [-1]))
    if "delta" in update_rule:
        learning_rate = op.Transpose(op.Cast(beta, to=1), perm=[1, 0, 2])  # (tokens, batch, heads or 1)
        per_token.append(op.Unsqueeze(learning_rate, [-1]))
    start = past_state
    if past_state is None:
        start = op.Expand(np.zeros((1, 1, 1, 1), np.float32), op.dims([op.size(query, 0), kv_num_heads, width, out]))
    elif state_window:
        start = op.Gather(past_state, state_window - 1, axis=0)
    start = op.Cast(start, to=1)

    def update_state(token, condition, state):
        key_, value_, *rest = (op.Gather(x, token, axis=0) for x in per_token)
        if "gated" in update_rule:
            state = op.Mul(state, rest.pop(0))
        column = op.Unsqueeze(key_, [-1])
        if "delta" in update_rule:
            predicted = op.Squeeze(op.MatMul(op.Unsqueeze(key_, [-2]), state), [-2])
            value_ = op.Mul(op.Sub(value_, predicted), rest.pop(0))
        new = op.Add(state, op.MatMul(column, op.Unsqueeze(value_, [-2])))
        return [condition, new, op.Identity(new)]

    final, states = op.Loop(dim_size(op, q, 0), True, start, body=update_state, outputs=2)  # (tokens, batch, heads, keys, values)
    if q_num_heads > kv_num_heads:
        groups = q_num_heads // kv_num_heads
        q = op.reshape(q, [op.size(q, 0), op.size(q, 1), kv_num_heads, groups, width])
        y = op.MatMul(q, states)
    else:
        y = op.MatMul(op.Unsqueeze(q, [-2]), states)
    y = op.Transpose(op.reshape(op.Mul(y, factor), [op.size(y, 0), op.size(y, 1), num_heads, out]), perm=[1, 0, 2, 3])
    state_dtype = dtype if past_state is None else past_state.dtype
    if state_window:  # the states after each of the last tokens, zero-padded at the start
        padded = op.Pad(states, [state_window, *[0] * 9])
        final = op.Slice(padded, [-state_window], [2**62], [0])
    return op.Cast(op.Reshape(y, np.array([0, 0, -1], np.int64)), to=dtype), op.Cast(final, to=state_dtype)


def _heads_of(key, query, q_num_heads):
    """The number of key heads; keys and queries have the same head size."""
    sizes = key.shape[-1], query.shape[-1]
    if not all(isinstance(s, int) for s in sizes):
        raise Unsupported("dynamic hidden sizes")
    return sizes[0] * q_num_heads // sizes[1]


def _by_token(op, x, heads):
    """(batch, tokens, heads * size) to (tokens, batch, heads, size)."""
    return op.Transpose(op.Reshape(x, np.array([0, 0, heads, -1], np.int64)), perm=[1, 0, 2, 3])


def _repeat_heads(op, x, heads):
    """Repeats the heads of (tokens, batch, heads, size) to `heads`; unchanged if there are more."""
    head_count = x.shape[2] if x.shape is not None else None
    if not isinstance(head_count, int):
        raise Unsupported("a dynamic number of heads")
    return x if head_count >= heads else op.Gather(x, np.arange(heads) // (heads // head_count), axis=2)


@contrib(MICROSOFT + "CausalConvWithState")
def causal_conv_with_state(
    op, input, weight, bias=None, past_state=None, *, activation="none", channels_last=0, dilation=1, ndim=1, state_window=0,
    outputs: Outputs = (True,),
):  # fmt: skip
    """A causal depthwise convolution whose left context starts with `past_state`."""
    if ndim != 1 or channels_last and rank_of(input) != 3:
        raise Unsupported("more than one spatial axis", "convolve along one axis, with the others as channels")
    channels, _, kernel_size = weight.shape or (None,) * 3
    if not isinstance(kernel_size, int) or not isinstance(channels, int):
        raise Unsupported("weights of dynamic size")
    context = (kernel_size - 1) * dilation

    def swap_layout(x):
        return op.Transpose(x, perm=[0, 2, 1]) if channels_last else x

    x = swap_layout(input)
    if past_state is None:
        extended = op.Pad(x, [0, 0, context, 0, 0, 0])
    else:
        before = op.Gather(past_state, state_window - 1, axis=0) if state_window else past_state
        extended = op.Concat(swap_layout(op.CastLike(before, x)), x, axis=2)
    y = op.Conv(extended, weight, bias, dilations=[dilation], group=channels)
    if activation in ("silu", "swish"):
        y = op.Mul(y, op.Sigmoid(y))
    elif activation != "none":
        raise Unsupported(f"activation {activation!r}")
    length = op.Unsqueeze(dim_size(op, x, 2), [0])

    def state_after(skipped):
        """The state after all but the last `skipped` tokens; zero if there are fewer tokens than that."""
        start = op.Sub(length, np.array([skipped], np.int64))
        begin = op.Max(start, np.array([0], np.int64))
        result = swap_layout(op.Slice(extended, begin, op.Add(begin, np.array([context], np.int64)), [2]))
        return op.Mul(result, op.CastLike(op.Greater(start, np.array([0], np.int64)), result)) if skipped else result

    if not state_window:
        return swap_layout(y), state_after(0)
    return swap_layout(y), op.Concat(*(op.Unsqueeze(state_after(n), [0]) for n in reversed(range(state_window))), axis=0)


def _split_branches(op, x, branches):
    """(..., branches * features) to (..., branches, features); unchanged if `branches` is 0."""
    if not branches:
        return x
    return op.Reshape(x, np.array([0] * (rank_of(x) - 1) + [branches, -1], np.int64))


@contrib(MICROSOFT + "HyperConnectionPreMix")
def hyper_connection_pre_mix(op, streams, pre_mix, *, num_branches=0, reduction_scale=1.0):
    x = _split_branches(op, streams, num_branches)
    weight = op.CastLike(_gates(op, pre_mix, x), x)
    y = op.ReduceSum(op.Mul(x, weight), [-2], keepdims=0)
    return op.Mul(y, reduction_scale) if reduction_scale != 1.0 else y


def _gates(op, gates, x):
    """The gates as (..., branches, features or 1); the last axis may be missing or merged with the branches."""
    if rank_of(gates) == rank_of(x):
        return gates
    branches = x.shape[-2]
    if gates.shape[-1] == branches:
        return op.Unsqueeze(gates, [-1])
    if not isinstance(branches, int):
        raise Unsupported("a dynamic number of branches")
    return op.Reshape(gates, np.array([0] * (rank_of(gates) - 1) + [branches, -1], np.int64))


@contrib(MICROSOFT + "HyperConnectionPostMix")
def hyper_connection_post_mix(op, streams, block_output, post_mix, stream_mix=None, *, num_branches=0):
    x = _split_branches(op, streams, num_branches)
    mixed = x
    if stream_mix is not None:
        perm = list(range(rank_of(stream_mix)))
        perm[-2:] = perm[:-3:-1]
        mixed = op.MatMul(op.Transpose(op.CastLike(stream_mix, x), perm=perm), x)
    y = op.Add(mixed, op.Mul(op.CastLike(_gates(op, post_mix, x), x), op.Unsqueeze(block_output, [-2])))
    return op.Reshape(y, op.Shape(streams)) if num_branches else y


@contrib(MICROSOFT + "EngramGate")
def engram_gate(
    op, key, query, value, key_norm_scale, query_norm_scale, conv_norm_scale=None, *, epsilon=1e-5, outputs: Outputs = (True,)
):  # fmt: skip
    """A value shared by all streams, gated by the similarity of the normalized keys and queries."""
    normalized = (_rms_norm(op, x, s, epsilon) for x, s in ((key, key_norm_scale), (query, query_norm_scale)))
    dot = op.ReduceSum(op.Mul(next(normalized), next(normalized)), [-1], keepdims=1)
    size = op.size(key, -1)
    if not isinstance(size, int):
        raise Unsupported("a dynamic hidden size")
    dot = op.Mul(dot, 1 / math.sqrt(size))
    gate = op.Sigmoid(op.Mul(op.Sign(dot), op.Sqrt(op.Max(op.Abs(dot), 1e-6))))
    y = op.Mul(gate, op.Unsqueeze(op.Cast(value, to=1), [2]))
    normalized_y = None if conv_norm_scale is None else op.CastLike(_rms_norm(op, y, conv_norm_scale, epsilon), key)
    return op.CastLike(y, key), normalized_y


def _rms_norm(op, x, scale, epsilon):
    """RMS normalization in float32; the scale has a row per stream."""
    x = op.Cast(x, to=1)
    mean = op.ReduceMean(op.Mul(x, x), [-1], keepdims=1)
    return op.Mul(op.Div(x, op.Sqrt(op.Add(mean, epsilon))), op.Cast(scale, to=1))
