"""Decompositions of ONNX Runtime's attention operators, with and without KV cache, compared with ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxbridge.runtime import Executor
from tests.hub.decompositions.rounding import assert_within_rounding
from tests.hub.decompositions.test_microsoft import (
    BIAS,
    PAST,
    QKV,
    WEIGHTS,
    Constant,
    model,
    randint,
    run_onnxruntime,
)

RNG = np.random.default_rng(5)
BATCH, KEYS = 2, 5
STARTS = np.array([4, 5, 1, 0], np.int32)
SCALE, BY_COLUMN = np.array(0.02, np.float32), (RNG.random(24) / 50 + 0.01).astype(np.float32)
ZERO, NONE = np.array(120, np.uint8), np.zeros(24, np.int8)
COUNT, LONG = np.array([3, 5], np.int32), np.array([1], np.int64)


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def rand_mask(*shape: int) -> np.ndarray:
    seen = (RNG.random(shape) > 0.4).astype(np.int32)
    seen[..., 0] = 1
    return seen


def rotary_tables(positions: int, half: int) -> tuple[np.ndarray, np.ndarray]:
    at = np.arange(positions)[:, None] * 0.7 ** np.arange(half)
    return np.cos(at).astype(np.float32), np.sin(at).astype(np.float32)


HEADS = normal(2, 2, 4, 4)
PAST_K = normal(2, 2, 3, 4)

CASES: list[tuple[str, list[Any], int, dict[str, Any]]] = [
    ("Attention", [QKV, WEIGHTS, BIAS, rand_mask(2, 5, 5)], 1, {"num_heads": 2}),
    ("Attention", [QKV, WEIGHTS, BIAS, STARTS], 1, {"num_heads": 2, "mask_filter_value": -500.0}),
    ("Attention", [QKV, WEIGHTS, BIAS, rand_mask(2, 8), PAST], 2, {"num_heads": 2}),
    ("Attention", [QKV, WEIGHTS, BIAS, rand_mask(2, 5)], 1, {"num_heads": 2, "unidirectional": 1}),
    ("QAttention", [randint(2, 5, 8), randint(8, 24), BIAS, SCALE, SCALE, None, ZERO, ZERO], 1, {"num_heads": 2}),
    ("QAttention", [randint(2, 5, 8), randint(8, 24, dtype=np.int8), BIAS, SCALE, BY_COLUMN, COUNT, ZERO, Constant(NONE)], 1,
     {"num_heads": 4, "unidirectional": 1}),
    ("QAttention", [randint(2, 5, 8), randint(8, 24), BIAS, SCALE, SCALE, None, ZERO, ZERO, PAST], 2,
     {"num_heads": 2, "unidirectional": 1}),
    ("MultiHeadAttention", [QKV, QKV, QKV, BIAS, rand_mask(2, 5, 5)], 1, {"num_heads": 2}),
    ("MultiHeadAttention", [QKV, QKV, QKV, BIAS, rand_mask(2, 5), normal(1, 2, 5, 5)], 1, {"num_heads": 2, "scale": 0.3}),
    ("MultiHeadAttention", [QKV, HEADS, normal(2, 2, 4, 4)], 1, {"num_heads": 2}),
    ("MultiHeadAttention", [QKV, normal(2, 7, 8), normal(2, 7, 8)], 1, {"num_heads": 2, "unidirectional": 1}),
    ("MultiHeadAttention", [QKV, QKV, QKV, None, None, None, PAST_K, normal(2, 2, 3, 4)],
     3, {"num_heads": 2, "unidirectional": 1}),
    ("MultiHeadAttention", [QKV, QKV, QKV, BIAS, rand_mask(2, 8), None, PAST_K, PAST_K], 3, {"num_heads": 2}),
    ("RotaryEmbedding", [QKV, LONG, *rotary_tables(9, 2)], 1, {}),
    ("RotaryEmbedding", [normal(2, 3, 5, 8), np.tile(np.arange(5), (2, 1)), *rotary_tables(9, 2)], 1,
     {"num_heads": 3, "rotary_embedding_dim": 4}),
    ("MRotaryEmbedding", [QKV, RNG.integers(0, 9, (3, 2, 5)), *rotary_tables(9, 4)],
     1, {"num_heads": 1, "mrope_section": [2, 1, 1]}),
    ("MRotaryEmbedding", [normal(2, 3, 5, 16), RNG.integers(0, 9, (3, 2, 5)), *rotary_tables(9, 8)], 1,
     {"mrope_section": [3, 3, 2], "mrope_layout": 1}),
    ("MRotaryEmbedding", [QKV, RNG.integers(0, 9, (3, 2, 5)), *rotary_tables(9, 4)], 1,
     {"num_heads": 1, "mrope_section": [2, 1, 1], "interleaved": 1}),
]  # fmt: skip


def assert_matches_onnxruntime(op: str, inputs: list[Any], outputs: int, attrs: dict[str, Any]) -> None:
    m, feeds = model(op, inputs, outputs, attrs)
    assert_within_rounding(m, feeds, run_onnxruntime(m, feeds))


@pytest.mark.parametrize(("op", "inputs", "outputs", "attrs"), CASES, ids=[f"{i}-{c[0]}" for i, c in enumerate(CASES)])
def test_attention_matches_onnxruntime(op, inputs, outputs, attrs):
    assert_matches_onnxruntime(op, inputs, outputs, attrs)


def generation_step(
    queries: int, past: int | None, *, heads: int = 4, kv: int = 2, size: int = 16, packed: bool = False, rotary: int = 0,
    lengths: tuple[int, ...] = (), unused: int = 0, positions: Any = None, bias: Any = None, sink: Any = None,
    dtype: Any = np.float32, **attrs: Any,
) -> tuple[str, list[Any], int, dict[str, Any]]:  # fmt: skip
    """One generation step of GroupQueryAttention; `lengths` are the sequence lengths including the step."""
    total = queries + (past or 0)
    seen = np.array(lengths or (total,) * BATCH, np.int32)
    if packed:
        given = [normal(BATCH, queries, (heads + 2 * kv) * size, dtype=dtype), None, None]
    else:
        given = [normal(BATCH, queries, n * size, dtype=dtype) for n in (heads, kv, kv)]
    caches = [None if past is None else normal(BATCH, kv, past + unused, size, dtype=dtype) for _ in range(2)]
    tables = [t.astype(dtype) for t in rotary_tables(32, rotary // 2)] if rotary else [None, None]
    inputs = [*given, *caches, seen - 1, np.array(total, np.int32), *tables, positions, bias, sink]
    while inputs[-1] is None:
        inputs.pop()
    return "GroupQueryAttention", inputs, 3, {
        "num_heads": heads, "kv_num_heads": kv, "do_rotary": int(rotary > 0), **attrs,
    }  # fmt: skip


GENERATION_STEPS = {
    "prompt": generation_step(5, None),
    "prompt, empty past": generation_step(5, 0),
    "one token": generation_step(1, 6),
    "one query head per key head": generation_step(1, 6, heads=2),
    "packed": generation_step(3, None, packed=True),
    "packed, one token, rotary": generation_step(1, 4, packed=True, rotary=16),
    "rotary": generation_step(5, 0, rotary=16),
    "partial rotary": generation_step(1, 3, rotary=16, size=32),
    "rotary, interleaved": generation_step(1, 3, rotary=16, rotary_interleaved=1),
    "position ids": generation_step(1, 3, rotary=16, positions=np.array([[7], [2]])),
    "different lengths": generation_step(1, 6, lengths=(5, 7)),
    "different lengths, rotary": generation_step(1, 6, lengths=(3, 7), rotary=16),
    "larger cache": generation_step(1, 6, unused=4, lengths=(6, 7)),
    "local window": generation_step(1, 6, local_window_size=3),
    "local window, prompt": generation_step(6, None, local_window_size=2),
    "scale": generation_step(2, None, scale=0.7),
    "softcap": generation_step(5, None, softcap=0.8),
    "smooth softmax": generation_step(5, None, smooth_softmax=1),
    "head sink": generation_step(5, None, sink=normal(4)),
    "attention bias": generation_step(5, None, bias=normal(1, 4, 5, 5)),
    "attention bias and softcap": generation_step(1, 6, bias=normal(2, 1, 1, 7), softcap=1.5),
    "float16": generation_step(1, 6, rotary=16, dtype=np.float16),
    "not causal": generation_step(5, None, causal=0),
}  # fmt: skip


@pytest.mark.parametrize("name", GENERATION_STEPS)
def test_group_query_attention_matches_onnxruntime(name):
    op, inputs, outputs, attrs = GENERATION_STEPS[name]
    assert_matches_onnxruntime(op, inputs, outputs, attrs)


def test_padded_prompts():
    """Compares only the tokens within each sequence length; outputs for padding are undefined."""
    m, feeds = model(*generation_step(5, None, lengths=(3, 5), rotary=16))
    results, expected = Executor(m).run(None, feeds), run_onnxruntime(m, feeds)
    for got, want, padding in zip(results, expected, ((0, slice(3, None)), *[(0, slice(None), slice(3, None))] * 2), strict=True):
        want[padding] = got[padding]
    assert np.isfinite(results[0]).all()
    assert_within_rounding(m, feeds, expected, results)


def test_several_tokens_after_a_past():
    """ONNX Runtime supports batch size 1 only in this case."""
    op, inputs, outputs, attrs = generation_step(3, 4, rotary=16)
    inputs = [x[:1] if isinstance(x, np.ndarray) and x.ndim and len(x) == BATCH else x for x in inputs]
    assert_matches_onnxruntime(op, inputs, outputs, attrs)


def test_packed_qkv_equals_separate_inputs():
    """ONNX Runtime's CPU provider supports separate inputs only."""
    q, k, v = normal(2, 5, 2, 4), normal(2, 5, 2, 4), normal(2, 5, 2, 4)
    flat = [x.reshape(2, 5, 8) for x in (q, k, v)]
    separate, feeds = model("MultiHeadAttention", flat, 1, {"num_heads": 2})
    expected = run_onnxruntime(separate, feeds)[0]
    for inputs in ([np.stack([q, k, v], 3)], [flat[0], np.stack([k, v], 3)]):
        m, feeds = model("MultiHeadAttention", inputs, 1, {"num_heads": 2})
        assert_within_rounding(m, feeds, [expected])


def test_mask_of_maximum_length_is_sliced():
    """ONNX Runtime's CPU provider supports the sliced mask only: rows of the queries, columns of all keys."""
    mask, attrs = rand_mask(2, 1, 9, 9), {"num_heads": 2}
    cut, feeds = model("Attention", [QKV, WEIGHTS, BIAS, np.ascontiguousarray(mask[:, 0, 3:8, :8]), PAST], 2, attrs)
    full, given = model("Attention", [QKV, WEIGHTS, BIAS, mask, PAST], 2, attrs)
    assert_within_rounding(full, given, run_onnxruntime(cut, feeds))
