"""Linear attention, causal convolution, hyper-connections and FFTs, compared with ONNX Runtime or NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxbridge.runtime import Executor
from tests.hub.decompositions.rounding import assert_within_rounding
from tests.hub.decompositions.test_microsoft import Constant, model, randint, run_onnxruntime
from tests.hub.decompositions.test_microsoft_attention import assert_matches_onnxruntime

RNG = np.random.default_rng(11)
BATCH, TOKENS, KEY, VALUE = 2, 5, 4, 3


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def token_inputs(
    rule: str, queries: int, heads: int, past: int | None = None, per_key: bool = False, tokens: int = TOKENS
) -> list[Any]:
    """Inputs with keys of norm 1. `past`: the number of past states, 0 for one without an axis for it, None for none."""
    keys = normal(BATCH, tokens, heads, KEY)
    keys /= np.linalg.norm(keys, axis=-1, keepdims=True)
    decay = -np.abs(normal(BATCH, tokens, heads * (KEY if per_key else 1)))
    beta = 1 / (1 + np.exp(-normal(BATCH, tokens, 1 if per_key else heads)))
    state = None if past is None else normal(*((past,) if past else ()), BATCH, heads, KEY, VALUE)
    inputs = [
        normal(BATCH, tokens, queries * KEY), keys.reshape(BATCH, tokens, -1), normal(BATCH, tokens, heads * VALUE), state,
        decay if "gated" in rule else None, beta if "delta" in rule else None,
    ]  # fmt: skip
    while inputs[-1] is None:
        inputs.pop()
    return inputs


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@pytest.mark.parametrize(("queries", "heads"), [(2, 2), (4, 2), (2, 4)])
@pytest.mark.parametrize(("past", "per_key"), [(None, False), (0, True)])
def test_linear_attention_matches_onnxruntime(rule, queries, heads, past, per_key):
    attrs = {"q_num_heads": queries, "kv_num_heads": heads, "update_rule": rule, **({"scale": 0.3} if per_key else {})}
    assert_matches_onnxruntime("LinearAttention", token_inputs(rule, queries, heads, past, per_key), 2, attrs)


def states_of_prefixes(op: str, inputs: list[Any], axis: int, attrs: dict[str, Any], window: int) -> list[np.ndarray]:
    """The states after each of the last tokens, from ONNX Runtime on prefixes of the input; zeros before the first."""
    tokens = inputs[0].shape[axis]
    found = []
    for count in range(tokens - window + 1, tokens + 1):
        has_tokens = [isinstance(x, np.ndarray) and x.ndim == 3 and x.shape[axis] == tokens for x in inputs]
        prefix = [x.take(range(count), axis) if is_long else x for x, is_long in zip(inputs, has_tokens, strict=True)]
        last = run_onnxruntime(*model(op, prefix if count > 0 else inputs, 2, attrs))[1]
        found.append(last if count > 0 else np.zeros_like(last))
    return found


@pytest.mark.parametrize("window", [2, 7])
def test_linear_attention_state_window(window):
    """ONNX Runtime's CPU provider outputs the last state only."""
    attrs = {"q_num_heads": 2, "kv_num_heads": 2, "update_rule": "gated"}
    inputs = token_inputs("gated", 2, 2, window)
    m, feeds = model("LinearAttention", inputs, 2, {**attrs, "state_window": window})
    inputs[3] = inputs[3][-1]
    y = run_onnxruntime(*model("LinearAttention", inputs, 2, attrs))[0]
    assert_within_rounding(m, feeds, [y, states_of_prefixes("LinearAttention", inputs, 1, attrs, window)])


@pytest.mark.parametrize("window", [2, 5])
def test_causal_convolution_state_window(window):
    x, weight = normal(2, 3, 3), Constant(normal(3, 1, 3))
    before = normal(window, 2, 3, 2)
    m, feeds = model("CausalConvWithState", [x, weight, None, before], 2, {"state_window": window})
    inputs = [x, weight, None, before[-1]]
    y = run_onnxruntime(*model("CausalConvWithState", inputs, 2, {}))[0]
    assert_within_rounding(m, feeds, [y, states_of_prefixes("CausalConvWithState", inputs, 2, {}, window)])


@pytest.mark.parametrize("kernel_size", [1, 3])
@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize("attrs", [{}, {"activation": "silu"}, {"dilation": 2}, {"channels_last": 1, "activation": "swish"}])
def test_causal_convolution_matches_onnxruntime(kernel_size, past, attrs):
    x, before = normal(2, 3, 3), normal(2, 3, (kernel_size - 1) * attrs.get("dilation", 1))
    if "channels_last" in attrs:
        x, before = (np.ascontiguousarray(v.swapaxes(1, 2)) for v in (x, before))
    inputs = [x, Constant(normal(3, 1, kernel_size)), normal(3), before] if past else [x, Constant(normal(3, 1, kernel_size))]
    assert_matches_onnxruntime("CausalConvWithState", inputs, 2, attrs)


STREAMS, FLAT = normal(2, 5, 3, 4), normal(2, 5, 12)


@pytest.mark.parametrize("gates", [(2, 5, 3), (2, 5, 3, 1), (2, 5, 3, 4)])
def test_hyper_connections_match_onnxruntime(gates):
    assert_matches_onnxruntime("HyperConnectionPreMix", [STREAMS, normal(*gates)], 1, {"reduction_scale": 0.5})
    assert_matches_onnxruntime("HyperConnectionPostMix", [STREAMS, normal(2, 5, 4), normal(*gates), normal(2, 5, 3, 3)], 1, {})


def test_hyper_connections_with_merged_branches_match_onnxruntime():
    for gates in (normal(2, 5, 3), normal(2, 5, 12)):
        assert_matches_onnxruntime("HyperConnectionPreMix", [FLAT, gates], 1, {"num_branches": 3})
    assert_matches_onnxruntime("HyperConnectionPostMix", [FLAT, normal(2, 5, 4), normal(2, 5, 3)], 1, {"num_branches": 3})


def test_engram_gate_matches_onnxruntime():
    scales = [normal(3, 4) for _ in range(3)]
    assert_matches_onnxruntime("EngramGate", [STREAMS, normal(2, 5, 3, 4), normal(2, 5, 4), *scales], 2, {})
    assert_matches_onnxruntime("EngramGate", [STREAMS, normal(2, 5, 3, 4), normal(2, 5, 4), *scales[:2]], 1, {"epsilon": 1e-3})


def test_mat_mul_integer16_matches_onnxruntime():
    m, feeds = model("MatMulInteger16", [randint(2, 3, 4, dtype=np.int16), randint(4, 5, dtype=np.int16)], 1, {})
    np.testing.assert_array_equal(Executor(m).run(None, feeds)[0], run_onnxruntime(m, feeds)[0])


FFT_ATTRIBUTES = {"signal_ndim": 1, "normalized": 0, "onesided": 1}


@pytest.mark.parametrize("size", [2, 6, 8])
def test_one_sided_fft_matches_numpy(size):
    """ONNX Runtime's CPU provider has no kernel."""
    x, z = normal(2, 3, size), normal(2, 3, size // 2 + 1, 2)
    m, feeds = model("Rfft", [x], 1, FFT_ATTRIBUTES)
    expected = np.fft.rfft(x.astype(np.float64))
    assert_within_rounding(m, feeds, [np.stack([expected.real, expected.imag], -1).astype(np.float32)])
    m, feeds = model("Irfft", [z], 1, FFT_ATTRIBUTES)
    assert_within_rounding(m, feeds, [np.fft.irfft(z[..., 0] + 1j * z[..., 1].astype(np.float64)).astype(np.float32)])


def test_gemma_rotary_embedding_and_gated_position_bias_match_their_formulas():
    """ONNX Runtime's CPU provider has no kernels; the formulas are from the operators' documentation."""
    angles = normal(2, 5, 4)
    q, q_rotated, k, k_rotated = (normal(2, 3, 5, 4).astype(np.float16) for _ in range(4))
    m, feeds = model("GemmaRotaryEmbedding", [angles, q, q_rotated, k, k_rotated], 2, {})
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    expected = (q * cos + q_rotated * sin, k * cos + k_rotated * sin)
    assert_within_rounding(m, feeds, [v.astype(np.float16) for v in expected])
    rows, shift, positions = normal(2, 5, 12), normal(12), normal(1, 3, 5, 5)
    weight, bias, eco = normal(4, 8), normal(8), normal(1, 3, 1, 1)
    m, feeds = model("GatedRelativePositionBias", [rows, shift, positions, weight, bias, eco], 1, {"num_heads": 3})
    split = (rows + shift).reshape(2, 5, 3, 4).transpose(0, 2, 1, 3) @ weight + bias
    u, r = np.split(1 / (1 + np.exp(-split.reshape(2, 3, 5, 2, 4).sum(-1))), 2, -1)
    assert_within_rounding(m, feeds, [(u * (r * eco - 1) + 2) * positions])
