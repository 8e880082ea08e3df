"""Linear attention, causal convolutions, mixes of streams and half spectra, against ONNX Runtime or NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxbridge.runtime import Executor
from tests.hub.decompositions.test_microsoft import Fixed, codes, judged, model
from tests.hub.decompositions.test_microsoft_attention import agree

RNG = np.random.default_rng(11)
BATCH, TOKENS, KEY, VALUE = 2, 5, 4, 3


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def step(rule: str, queries: int, heads: int, past: int | None = None, per_key: bool = False, tokens: int = TOKENS) -> list[Any]:
    """Keys of length 1; `past`: how many states are handed over, 0 for one without an axis for them."""
    keys = normal(BATCH, tokens, heads, KEY)
    keys /= np.linalg.norm(keys, axis=-1, keepdims=True)
    fade = -np.abs(normal(BATCH, tokens, heads * (KEY if per_key else 1)))
    rate = 1 / (1 + np.exp(-normal(BATCH, tokens, 1 if per_key else heads)))
    state = None if past is None else normal(*((past,) if past else ()), BATCH, heads, KEY, VALUE)
    inputs = [
        normal(BATCH, tokens, queries * KEY), keys.reshape(BATCH, tokens, -1), normal(BATCH, tokens, heads * VALUE), state,
        fade if "gated" in rule else None, rate if "delta" in rule else None,
    ]  # fmt: skip
    while inputs[-1] is None:
        inputs.pop()
    return inputs


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@pytest.mark.parametrize(("queries", "heads"), [(2, 2), (4, 2), (2, 4)])
@pytest.mark.parametrize(("past", "per_key"), [(None, False), (0, True)])
def test_the_state_learns_as_onnx_runtime_has_it(rule, queries, heads, past, per_key):
    attrs = {"q_num_heads": queries, "kv_num_heads": heads, "update_rule": rule, **({"scale": 0.3} if per_key else {})}
    agree("LinearAttention", step(rule, queries, heads, past, per_key), 2, attrs)


def prefixes(op: str, inputs: list[Any], axis: int, attrs: dict[str, Any], window: int) -> list[np.ndarray]:
    """The states after each of the last tokens, by ONNX Runtime on what is there until then; zeros before the first."""
    tokens = inputs[0].shape[axis]
    found = []
    for count in range(tokens - window + 1, tokens + 1):
        long = [isinstance(x, np.ndarray) and x.ndim == 3 and x.shape[axis] == tokens for x in inputs]
        cut = [x.take(range(count), axis) if is_long else x for x, is_long in zip(inputs, long, strict=True)]
        last = judged(*model(op, cut if count > 0 else inputs, 2, attrs))[1]
        found.append(last if count > 0 else np.zeros_like(last))
    return found


@pytest.mark.parametrize("window", [2, 7])
def test_states_after_each_of_the_last_tokens(window):
    """ONNX Runtime's CPU provider keeps the last one only."""
    attrs = {"q_num_heads": 2, "kv_num_heads": 2, "update_rule": "gated"}
    inputs = step("gated", 2, 2, window)
    m, feeds = model("LinearAttention", inputs, 2, {**attrs, "state_window": window})
    inputs[3] = inputs[3][-1]
    y, states = Executor(m).run(None, feeds)
    np.testing.assert_allclose(y, judged(*model("LinearAttention", inputs, 2, attrs))[0], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(states, prefixes("LinearAttention", inputs, 1, attrs, window), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("window", [2, 5])
def test_what_a_convolution_keeps_after_each_of_the_last_places(window):
    x, weight = normal(2, 3, 3), Fixed(normal(3, 1, 3))
    before = normal(window, 2, 3, 2)
    m, feeds = model("CausalConvWithState", [x, weight, None, before], 2, {"state_window": window})
    expected = prefixes("CausalConvWithState", [x, weight, None, before[-1]], 2, {}, window)
    np.testing.assert_allclose(Executor(m).run(None, feeds)[1], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("taps", [1, 3])
@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize("attrs", [{}, {"activation": "silu"}, {"dilation": 2}, {"channels_last": 1, "activation": "swish"}])
def test_convolutions_that_look_back_are_the_same(taps, past, attrs):
    x, before = normal(2, 3, 3), normal(2, 3, (taps - 1) * attrs.get("dilation", 1))
    if "channels_last" in attrs:
        x, before = (np.ascontiguousarray(v.swapaxes(1, 2)) for v in (x, before))
    given = [x, Fixed(normal(3, 1, taps)), normal(3), before] if past else [x, Fixed(normal(3, 1, taps))]
    agree("CausalConvWithState", given, 2, attrs)


STREAMS, FLAT = normal(2, 5, 3, 4), normal(2, 5, 12)


@pytest.mark.parametrize("gates", [(2, 5, 3), (2, 5, 3, 1), (2, 5, 3, 4)])
def test_streams_are_mixed_alike(gates):
    agree("HyperConnectionPreMix", [STREAMS, normal(*gates)], 1, {"reduction_scale": 0.5})
    agree("HyperConnectionPostMix", [STREAMS, normal(2, 5, 4), normal(*gates), normal(2, 5, 3, 3)], 1, {})


def test_streams_side_by_side_are_mixed_alike():
    for gates in (normal(2, 5, 3), normal(2, 5, 12)):
        agree("HyperConnectionPreMix", [FLAT, gates], 1, {"num_branches": 3})
    agree("HyperConnectionPostMix", [FLAT, normal(2, 5, 4), normal(2, 5, 3)], 1, {"num_branches": 3})


def test_a_gate_by_likeness_is_the_same():
    scales = [normal(3, 4) for _ in range(3)]
    agree("EngramGate", [STREAMS, normal(2, 5, 3, 4), normal(2, 5, 4), *scales], 2, {})
    agree("EngramGate", [STREAMS, normal(2, 5, 3, 4), normal(2, 5, 4), *scales[:2]], 1, {"epsilon": 1e-3})


def test_products_of_16_bits_are_the_same():
    m, feeds = model("MatMulInteger16", [codes(2, 3, 4, dtype=np.int16), codes(4, 5, dtype=np.int16)], 1, {})
    np.testing.assert_array_equal(Executor(m).run(None, feeds)[0], judged(m, feeds)[0])


HALF = {"signal_ndim": 1, "normalized": 0, "onesided": 1}


@pytest.mark.parametrize("size", [2, 6, 8])
def test_half_spectra_are_numpys(size):
    """No kernel of the CPU provider."""
    x, z = normal(2, 3, size), normal(2, 3, size // 2 + 1, 2)
    m, feeds = model("Rfft", [x], 1, HALF)
    expected = np.fft.rfft(x)
    got = Executor(m).run(None, feeds)[0]
    np.testing.assert_allclose(got[..., 0] + 1j * got[..., 1], expected, rtol=1e-5, atol=1e-5)
    m, feeds = model("Irfft", [z], 1, HALF)
    np.testing.assert_allclose(Executor(m).run(None, feeds)[0], np.fft.irfft(z[..., 0] + 1j * z[..., 1]), rtol=1e-5, atol=1e-5)


def test_rotations_and_gated_positions_are_their_formulas():
    """No kernels of the CPU provider: by the operators' documentation."""
    angles = normal(2, 5, 4)
    q, q_turned, k, k_turned = (normal(2, 3, 5, 4) for _ in range(4))
    m, feeds = model("GemmaRotaryEmbedding", [angles, *(v.astype(np.float16) for v in (q, q_turned, k, k_turned))], 2, {})
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    for got, expected in zip(Executor(m).run(None, feeds), (q * cos + q_turned * sin, k * cos + k_turned * sin), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-2, atol=1e-2)
    rows, shift, places = normal(2, 5, 12), normal(12), normal(1, 3, 5, 5)
    weight, bias, eco = normal(4, 8), normal(8), normal(1, 3, 1, 1)
    m, feeds = model("GatedRelativePositionBias", [rows, shift, places, weight, bias, eco], 1, {"num_heads": 3})
    split = (rows + shift).reshape(2, 5, 3, 4).transpose(0, 2, 1, 3) @ weight + bias
    u, r = np.split(1 / (1 + np.exp(-split.reshape(2, 3, 5, 2, 4).sum(-1))), 2, -1)
    np.testing.assert_allclose(Executor(m).run(None, feeds)[0], (u * (r * eco - 1) + 2) * places, rtol=1e-4, atol=1e-4)
