"""Mixture-of-experts operators with float and quantized weights, compared with ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxbridge.errors import ConversionError
from onnxbridge.runtime import Executor
from onnxbridge.runtime.verify.rounding.simulate_precision import HALF, SimulatedPrecision
from tests.hub.decompositions.rounding import assert_within_rounding
from tests.hub.decompositions.test_microsoft import Constant, model, randint, run_onnxruntime
from tests.hub.decompositions.test_microsoft_attention import assert_matches_onnxruntime

RNG = np.random.default_rng(3)
EXPERTS, WIDTH, INNER, TOKENS = 4, 16, 32, 5


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


ROWS, ROUTER = normal(TOKENS, WIDTH), normal(TOKENS, EXPERTS)


def experts(fused: int = 1, bias: bool = True, x: Any = ROWS) -> list[Any]:
    shapes = [(fused * INNER, WIDTH), (fused * INNER,), (WIDTH, INNER), (WIDTH,)]
    return [x, ROUTER, *(Constant(normal(EXPERTS, *s)) if bias or len(s) == 2 else None for s in shapes[: 3 + bias])]


LIMITED = {"activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 0.7}
CASES = {
    "top 1": (experts(), {}),
    "top 2": (experts(), {"k": 2, "activation_type": "silu"}),
    "top 3, normalized": (experts(), {"k": 3, "activation_type": "gelu", "normalize_routing_weights": 1}),
    "identity, no bias": (experts(bias=False), {"k": 2, "activation_type": "identity"}),
    "3-D input": (experts(x=normal(1, TOKENS, WIDTH)), {"k": 2}),
    "gated": (experts(2), {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1}),
    "gated, limited": (experts(2), {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1, **LIMITED}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_moe_matches_onnxruntime(name):
    inputs, attrs = CASES[name]
    assert_matches_onnxruntime("MoE", inputs, 1, attrs)


def quantized(bits: int, block: int | None, fused: int = 1, zeros: bool = False, weights: bool = False) -> list[Any]:
    per_byte = 8 // bits
    inputs: list[Any] = [ROWS, ROUTER]
    zero_points: list[Any] = []
    for columns, depth in ((fused * INNER, WIDTH), (WIDTH, INNER)):
        blocks = () if block is None else (depth // block,)
        scale = (np.abs(normal(EXPERTS, columns, *blocks)) / 20).astype(np.float32)
        inputs += [
            Constant(randint(EXPERTS, columns, depth // per_byte)),
            Constant(scale),
            Constant(normal(EXPERTS, columns)),
        ]
        shape = (-(-columns // per_byte),) if block is None else (columns, -(-blocks[0] // per_byte))
        zero_points.append(Constant(randint(EXPERTS, *shape)) if zeros else None)
    inputs += [None, None, None, *zero_points, None, np.abs(normal(TOKENS, EXPERTS)) if weights else None]
    while inputs[-1] is None:
        inputs.pop()
    return inputs


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("block", [None, 16])
@pytest.mark.parametrize(
    ("options", "attrs"),
    [
        ({}, {"activation_type": "silu", "normalize_routing_weights": 1}), ({"zeros": True}, {}),
        ({"weights": True}, {"normalize_routing_weights": 1}), ({"weights": True}, {"normalize_routing_weights": 0}),
        ({"fused": 2}, {"activation_type": "swiglu", "swiglu_fusion": 1, **LIMITED}),
    ],
)  # fmt: skip
def test_qmoe_matches_onnxruntime(bits, block, options, attrs):
    attrs = {"k": 2, **attrs}
    sizes = {"expert_weight_bits": bits, **({} if block is None else {"block_size": block})}
    inputs = quantized(bits, block, **options)
    if bits < 8 or block is None:
        assert_matches_onnxruntime("QMoE", inputs, 1, {**attrs, **sizes})
        return
    # with blocks of 8 bits ONNX Runtime also quantizes the input: compare with its MoE on dequantized weights
    m, feeds = model("QMoE", inputs, 1, {**attrs, **sizes})
    zero_points = [inputs[at] if len(inputs) > at else None for at in (11, 12)]
    logits, total = routing(inputs[14], attrs) if "weights" in options else (ROUTER, 1)
    plain = [ROWS, logits]
    for (weights, scale, bias), zero in zip((inputs[2:5], inputs[5:8]), zero_points, strict=True):
        shifted = weights.array.astype(np.float32) - (128 if zero is None else np.repeat(zero.array, block, 2).astype(np.float32))
        plain += [Constant(shifted * np.repeat(scale.array, block, 2)), bias]
    expected = run_onnxruntime(*model("MoE", plain, 1, {**attrs, "normalize_routing_weights": 1}))[0]
    assert_within_rounding(m, feeds, [expected * total])


def routing(weights: np.ndarray, attrs: dict[str, Any]) -> tuple[np.ndarray, Any]:
    """Logits whose normalized softmax gives the best experts these weights, and the sum of them if it is not to be one."""
    best = np.argsort(np.argsort(-ROUTER)) < attrs["k"]
    total = 1 if attrs["normalize_routing_weights"] else (weights * best).sum(1, keepdims=True)
    return np.where(best, np.log(weights), np.float32(-1e4)), total


def gated(inputs: list[Any], name: str, fusion: int) -> tuple[Any, Any]:
    return model("MoE", inputs, 1, {"k": 2, "activation_type": name, "swiglu_fusion": fusion})


def test_swiglu_gates_may_be_concatenated_or_separate():
    """ONNX Runtime's CPU provider supports interleaved gates only, so the expected output is of that layout."""
    inputs = experts(2)
    (w, b), rest = (i.array for i in inputs[2:4]), inputs[4:]
    expected = run_onnxruntime(*model("MoE", inputs, 1, {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1}))[0]
    concatenated = [Constant(np.concatenate([v[:, ::2], v[:, 1::2]], 1)) for v in (w, b)]
    assert_within_rounding(*gated([*inputs[:2], *concatenated, *rest], "swiglu", 2), [expected])
    first, third = ([Constant(v[:, start::2]) for v in (w, b)] for start in (0, 1))
    for name in ("swiglu", "silu"):
        assert_within_rounding(*gated([*inputs[:2], *first, *rest, *third], name, 0), [expected])


def test_float16_matches_float32_up_to_rounding():
    """The errors of ONNX Runtime 1.31.1 in float16 exceed the values themselves, so the reference is its float32 kernel.

    The tolerance is the effect of simulated float16 rounding at every operator.
    """
    half = [Constant(i.array.astype(np.float16)) if isinstance(i, Constant) else i.astype(np.float16) for i in experts()]
    single = [Constant(i.array.astype(np.float32)) if isinstance(i, Constant) else i.astype(np.float32) for i in half]
    m, feeds = model("MoE", half, 1, {})
    plain, wide = model("MoE", single, 1, {})
    (expected,) = run_onnxruntime(plain, wide)
    noise, executor = SimulatedPrecision(HALF), Executor(plain)
    deviations = [np.abs(executor.run(None, wide, simulated=noise)[0] - expected).max() for _ in range(4)]
    (got,) = Executor(m).run(None, feeds)
    assert got.dtype == np.float16 and 0 < max(deviations) < np.abs(expected).max() / 200
    np.testing.assert_allclose(got, expected, rtol=HALF, atol=2 * max(deviations))


def test_infinite_outputs_of_unselected_experts_are_ignored():
    inputs = experts()
    inputs[3].array[0] = np.inf
    inputs[1] = np.array([[0.0, 3, 2, 1]] * TOKENS, np.float32)
    m, feeds = model("MoE", inputs, 1, {"k": 2})
    assert np.isfinite(Executor(m).run(None, feeds)[0]).all()


@pytest.mark.parametrize("attrs", [{"use_sparse_mixer": 1}, {"activation_type": "tanh"}])
def test_unsupported_attributes_raise(attrs):
    with pytest.raises(ConversionError):
        Executor(model("MoE", experts(), 1, attrs)[0])
