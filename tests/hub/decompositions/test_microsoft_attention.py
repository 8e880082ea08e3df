"""Attention as ONNX Runtime fuses it and keeps its past, in ONNX's operators, against ONNX Runtime itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxbridge.runtime import Executor
from tests.hub.decompositions.test_microsoft import BIAS, PAST, QKV, WEIGHTS, Fixed, codes, judged, largest, model

RNG = np.random.default_rng(5)
BATCH, KEYS = 2, 5
STARTS = np.array([4, 5, 1, 0], np.int32)
SCALE, BY_COLUMN = np.array(0.02, np.float32), (RNG.random(24) / 50 + 0.01).astype(np.float32)
ZERO, NONE = np.array(120, np.uint8), np.zeros(24, np.int8)
COUNT, LONG = np.array([3, 5], np.int32), np.array([1], np.int64)


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def ones(*shape: int) -> np.ndarray:
    seen = (RNG.random(shape) > 0.4).astype(np.int32)
    seen[..., 0] = 1
    return seen


def angles(positions: int, half: int) -> tuple[np.ndarray, np.ndarray]:
    at = np.arange(positions)[:, None] * 0.7 ** np.arange(half)
    return np.cos(at).astype(np.float32), np.sin(at).astype(np.float32)


HEADS = normal(2, 2, 4, 4)
SIDE = normal(2, 2, 3, 4)

CASES: list[tuple[str, list[Any], int, dict[str, Any]]] = [
    ("Attention", [QKV, WEIGHTS, BIAS, ones(2, 5, 5)], 1, {"num_heads": 2}),
    ("Attention", [QKV, WEIGHTS, BIAS, STARTS], 1, {"num_heads": 2, "mask_filter_value": -500.0}),
    ("Attention", [QKV, WEIGHTS, BIAS, ones(2, 8), PAST], 2, {"num_heads": 2}),
    ("Attention", [QKV, WEIGHTS, BIAS, ones(2, 5)], 1, {"num_heads": 2, "unidirectional": 1}),
    ("QAttention", [codes(2, 5, 8), codes(8, 24), BIAS, SCALE, SCALE, None, ZERO, ZERO], 1, {"num_heads": 2}),
    ("QAttention", [codes(2, 5, 8), codes(8, 24, dtype=np.int8), BIAS, SCALE, BY_COLUMN, COUNT, ZERO, Fixed(NONE)], 1,
     {"num_heads": 4, "unidirectional": 1}),
    ("QAttention", [codes(2, 5, 8), codes(8, 24), BIAS, SCALE, SCALE, None, ZERO, ZERO, PAST], 2,
     {"num_heads": 2, "unidirectional": 1}),
    ("MultiHeadAttention", [QKV, QKV, QKV, BIAS, ones(2, 5, 5)], 1, {"num_heads": 2}),
    ("MultiHeadAttention", [QKV, QKV, QKV, BIAS, ones(2, 5), normal(1, 2, 5, 5)], 1, {"num_heads": 2, "scale": 0.3}),
    ("MultiHeadAttention", [QKV, HEADS, normal(2, 2, 4, 4)], 1, {"num_heads": 2}),
    ("MultiHeadAttention", [QKV, normal(2, 7, 8), normal(2, 7, 8)], 1, {"num_heads": 2, "unidirectional": 1}),
    ("MultiHeadAttention", [QKV, QKV, QKV, None, None, None, SIDE, normal(2, 2, 3, 4)], 3, {"num_heads": 2, "unidirectional": 1}),
    ("MultiHeadAttention", [QKV, QKV, QKV, BIAS, ones(2, 8), None, SIDE, SIDE], 3, {"num_heads": 2}),
    ("RotaryEmbedding", [QKV, LONG, *angles(9, 2)], 1, {}),
    ("RotaryEmbedding", [normal(2, 3, 5, 8), np.tile(np.arange(5), (2, 1)), *angles(9, 2)], 1,
     {"num_heads": 3, "rotary_embedding_dim": 4}),
    ("MRotaryEmbedding", [QKV, RNG.integers(0, 9, (3, 2, 5)), *angles(9, 4)], 1, {"num_heads": 1, "mrope_section": [2, 1, 1]}),
    ("MRotaryEmbedding", [normal(2, 3, 5, 16), RNG.integers(0, 9, (3, 2, 5)), *angles(9, 8)], 1,
     {"mrope_section": [3, 3, 2], "mrope_layout": 1}),
    ("MRotaryEmbedding", [QKV, RNG.integers(0, 9, (3, 2, 5)), *angles(9, 4)], 1,
     {"num_heads": 1, "mrope_section": [2, 1, 1], "interleaved": 1}),
]  # fmt: skip


def agree(op: str, inputs: list[Any], outputs: int, attrs: dict[str, Any], tolerance: float = 2e-5) -> None:
    m, feeds = model(op, inputs, outputs, attrs)
    for got, expected in zip(Executor(m).run(None, feeds), judged(m, feeds), strict=True):
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        got, expected = got.astype(np.float32), expected.astype(np.float32)
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance * (1 + largest(expected)))


@pytest.mark.parametrize(("op", "inputs", "outputs", "attrs"), CASES, ids=[f"{i}-{c[0]}" for i, c in enumerate(CASES)])
def test_attention_is_the_same(op, inputs, outputs, attrs):
    agree(op, inputs, outputs, attrs)


def step(
    queries: int, past: int | None, *, heads: int = 4, kv: int = 2, size: int = 16, packed: bool = False, rotary: int = 0,
    lengths: tuple[int, ...] = (), room: int = 0, positions: Any = None, bias: Any = None, sink: Any = None,
    dtype: Any = np.float32, **attrs: Any,
) -> tuple[str, list[Any], int, dict[str, Any]]:  # fmt: skip
    """A step of a generation: `lengths` are the tokens that each row has seen with it."""
    total = queries + (past or 0)
    seen = np.array(lengths or (total,) * BATCH, np.int32)
    if packed:
        given = [normal(BATCH, queries, (heads + 2 * kv) * size, dtype=dtype), None, None]
    else:
        given = [normal(BATCH, queries, n * size, dtype=dtype) for n in (heads, kv, kv)]
    before = [None if past is None else normal(BATCH, kv, past + room, size, dtype=dtype) for _ in range(2)]
    tables = [t.astype(dtype) for t in angles(32, rotary // 2)] if rotary else [None, None]
    inputs = [*given, *before, seen - 1, np.array(total, np.int32), *tables, positions, bias, sink]
    while inputs[-1] is None:
        inputs.pop()
    return "GroupQueryAttention", inputs, 3, {
        "num_heads": heads, "kv_num_heads": kv, "do_rotary": int(rotary > 0), **attrs,
    }  # fmt: skip


STEPS = {
    "the first": step(5, None),
    "the first, no past yet": step(5, 0),
    "one token": step(1, 6),
    "one head for each": step(1, 6, heads=2),
    "side by side": step(3, None, packed=True),
    "side by side, one token, rotated": step(1, 4, packed=True, rotary=16),
    "rotated": step(5, 0, rotary=16),
    "rotated in part": step(1, 3, rotary=16, size=32),
    "rotated, interleaved": step(1, 3, rotary=16, rotary_interleaved=1),
    "given positions": step(1, 3, rotary=16, positions=np.array([[7], [2]])),
    "rows of other lengths": step(1, 6, lengths=(5, 7)),
    "rows of other lengths, rotated": step(1, 6, lengths=(3, 7), rotary=16),
    "room for more": step(1, 6, room=4, lengths=(6, 7)),
    "a window": step(1, 6, local_window_size=3),
    "a window at first": step(6, None, local_window_size=2),
    "a scale": step(2, None, scale=0.7),
    "a cap": step(5, None, softcap=0.8),
    "one more share": step(5, None, smooth_softmax=1),
    "a sink for each head": step(5, None, sink=normal(4)),
    "a bias": step(5, None, bias=normal(1, 4, 5, 5)),
    "a bias and a cap": step(1, 6, bias=normal(2, 1, 1, 7), softcap=1.5),
    "half precision": step(1, 6, rotary=16, dtype=np.float16),
    "both ways": step(5, None, causal=0),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_a_step_of_a_generation_is_the_same(name):
    op, inputs, outputs, attrs = STEPS[name]
    agree(op, inputs, outputs, attrs, 2e-3 if name == "half precision" else 2e-5)


def test_rows_that_are_padded_at_the_first_step():
    """What is padding is nothing to anybody: only the tokens that a row has are compared."""
    m, feeds = model(*step(5, None, lengths=(3, 5), rotary=16))
    (got, *_), (expected, *_) = Executor(m).run(None, feeds), judged(m, feeds)
    np.testing.assert_allclose(got[0, :3], expected[0, :3], atol=1e-5)
    np.testing.assert_allclose(got[1], expected[1], atol=1e-5)
    assert np.isfinite(got).all()


def test_more_tokens_than_one_go_on():
    """ONNX Runtime takes one row only here."""
    op, inputs, outputs, attrs = step(3, 4, rotary=16)
    inputs = [x[:1] if isinstance(x, np.ndarray) and x.ndim and len(x) == BATCH else x for x in inputs]
    agree(op, inputs, outputs, attrs)


def test_packed_inputs_are_their_parts():
    """ONNX Runtime's CPU provider takes them apart only; queries, keys and values lie in the fourth dimension."""
    q, k, v = normal(2, 5, 2, 4), normal(2, 5, 2, 4), normal(2, 5, 2, 4)
    flat = [x.reshape(2, 5, 8) for x in (q, k, v)]
    apart, feeds = model("MultiHeadAttention", flat, 1, {"num_heads": 2})
    expected = judged(apart, feeds)[0]
    for inputs in ([np.stack([q, k, v], 3)], [flat[0], np.stack([k, v], 3)]):
        m, feeds = model("MultiHeadAttention", inputs, 1, {"num_heads": 2})
        np.testing.assert_allclose(Executor(m).run(None, feeds)[0], expected, atol=1e-5)


def test_a_mask_of_the_longest_sequence_is_cut_to_what_is_there():
    """ONNX Runtime's CPU provider takes it cut only: the rows of this step's queries, the columns of all keys."""
    mask, how = ones(2, 1, 9, 9), {"num_heads": 2}
    cut, feeds = model("Attention", [QKV, WEIGHTS, BIAS, np.ascontiguousarray(mask[:, 0, 3:8, :8]), PAST], 2, how)
    whole, given = model("Attention", [QKV, WEIGHTS, BIAS, mask, PAST], 2, how)
    np.testing.assert_allclose(Executor(whole).run(None, given)[0], judged(cut, feeds)[0], atol=1e-5)
