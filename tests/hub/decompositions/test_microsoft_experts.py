"""Mixtures of experts as ONNX Runtime has them, in real numbers and in few bits, against ONNX Runtime itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxbridge.errors import ConversionError
from onnxbridge.runtime import Executor
from onnxbridge.runtime.verify.simulate_precision import HALF, SimulatedPrecision
from tests.hub.decompositions.test_microsoft import Fixed, codes, judged, model
from tests.hub.decompositions.test_microsoft_attention import agree

RNG = np.random.default_rng(3)
EXPERTS, WIDTH, INNER, TOKENS = 4, 16, 32, 5


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


ROWS, ROUTER = normal(TOKENS, WIDTH), normal(TOKENS, EXPERTS)


def experts(fused: int = 1, bias: bool = True, x: Any = ROWS) -> list[Any]:
    shapes = [(fused * INNER, WIDTH), (fused * INNER,), (WIDTH, INNER), (WIDTH,)]
    return [x, ROUTER, *(Fixed(normal(EXPERTS, *s)) if bias or len(s) == 2 else None for s in shapes[:3 + bias])]


LIMITED = {"activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 0.7}
CASES = {
    "one": (experts(), {}),
    "two": (experts(), {"k": 2, "activation_type": "silu"}),
    "three, normalized": (experts(), {"k": 3, "activation_type": "gelu", "normalize_routing_weights": 1}),
    "identity, no bias": (experts(bias=False), {"k": 2, "activation_type": "identity"}),
    "rows of sequences": (experts(x=normal(1, TOKENS, WIDTH)), {"k": 2}),
    "gated": (experts(2), {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1}),
    "gated, limited": (experts(2), {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1, **LIMITED}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_mixtures_are_the_same(name):
    inputs, attrs = CASES[name]
    agree("MoE", inputs, 1, attrs, 1e-4)


def quantized(bits: int, block: int | None, fused: int = 1, zeros: bool = False, weights: bool = False) -> list[Any]:
    each = 8 // bits
    inputs: list[Any] = [ROWS, ROUTER]
    points: list[Any] = []
    for columns, depth in ((fused * INNER, WIDTH), (WIDTH, INNER)):
        blocks = () if block is None else (depth // block,)
        scale = (np.abs(normal(EXPERTS, columns, *blocks)) / 20).astype(np.float32)
        inputs += [Fixed(codes(EXPERTS, columns, depth // each)), Fixed(scale), Fixed(normal(EXPERTS, columns))]
        shape = (-(-columns // each),) if block is None else (columns, -(-blocks[0] // each))
        points.append(Fixed(codes(EXPERTS, *shape)) if zeros else None)
    inputs += [None, None, None, *points, None, np.abs(normal(TOKENS, EXPERTS)) if weights else None]
    while inputs[-1] is None:
        inputs.pop()
    return inputs


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("block", [None, 16])
@pytest.mark.parametrize(
    ("how", "attrs"),
    [
        ({}, {"activation_type": "silu", "normalize_routing_weights": 1}), ({"zeros": True}, {}),
        ({"weights": True}, {"normalize_routing_weights": 1}), ({"weights": True}, {"normalize_routing_weights": 0}),
        ({"fused": 2}, {"activation_type": "swiglu", "swiglu_fusion": 1, **LIMITED}),
    ],
)  # fmt: skip
def test_mixtures_in_few_bits_are_the_same(bits, block, how, attrs):
    attrs = {"k": 2, **attrs}
    sizes = {"expert_weight_bits": bits, **({} if block is None else {"block_size": block})}
    inputs = quantized(bits, block, **how)
    if bits < 8 or block is None or "weights" in how:
        agree("QMoE", inputs, 1, {**attrs, **sizes}, 2e-2 if bits == 8 and block else 1e-4)
        return
    # in blocks of 8 bits ONNX Runtime has the rows in 8 bits too: what the weights mean, in its mixture of real numbers
    m, feeds = model("QMoE", inputs, 1, {**attrs, **sizes})
    points = [inputs[at] if len(inputs) > at else None for at in (11, 12)]
    plain = [*inputs[:2]]
    for (weights, scale, bias), zero in zip((inputs[2:5], inputs[5:8]), points, strict=True):
        apart = weights.array.astype(np.float32) - (128 if zero is None else np.repeat(zero.array, block, 2).astype(np.float32))
        plain += [Fixed(apart * np.repeat(scale.array, block, 2)), bias]
    expected = judged(*model("MoE", plain, 1, {**attrs, "normalize_routing_weights": 1}))[0]
    np.testing.assert_allclose(Executor(m).run(None, feeds)[0], expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def gated(apart: list[Any], name: str, fusion: int) -> np.ndarray:
    m, feeds = model("MoE", apart, 1, {"k": 2, "activation_type": name, "swiglu_fusion": fusion})
    return Executor(m).run(None, feeds)[0]


def test_gates_lie_side_by_side_or_are_a_product_of_their_own():
    """ONNX Runtime's CPU provider takes them interleaved only."""
    inputs = experts(2)
    (w, b), rest = (i.array for i in inputs[2:4]), inputs[4:]
    expected = judged(*model("MoE", inputs, 1, {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1}))[0]
    beside = [Fixed(np.concatenate([v[:, ::2], v[:, 1::2]], 1)) for v in (w, b)]
    np.testing.assert_allclose(gated([*inputs[:2], *beside, *rest], "swiglu", 2), expected, rtol=1e-4, atol=1e-4)
    first, third = ([Fixed(v[:, start::2]) for v in (w, b)] for start in (0, 1))
    for name in ("swiglu", "silu"):
        np.testing.assert_allclose(gated([*inputs[:2], *first, *rest, *third], name, 0), expected, rtol=1e-4, atol=1e-4)


def test_half_precision_is_that_of_float32():
    """ONNX Runtime 1.31.1 is off by more than the numbers are large in float16.

    It computes the same numbers in float32; how far rounding moves them is what noise of float16 at every operator does.
    """
    half = [Fixed(i.array.astype(np.float16)) if isinstance(i, Fixed) else i.astype(np.float16) for i in experts()]
    single = [Fixed(i.array.astype(np.float32)) if isinstance(i, Fixed) else i.astype(np.float32) for i in half]
    m, feeds = model("MoE", half, 1, {})
    plain, wide = model("MoE", single, 1, {})
    (expected,) = judged(plain, wide)
    noise, executor = SimulatedPrecision(HALF), Executor(plain)
    moved = [np.abs(executor.run(None, wide, coarse=noise)[0] - expected).max() for _ in range(4)]
    (got,) = Executor(m).run(None, feeds)
    assert got.dtype == np.float16 and 0 < max(moved) < np.abs(expected).max() / 200
    np.testing.assert_allclose(got, expected, rtol=HALF, atol=2 * max(moved))


def test_an_expert_that_was_not_chosen_may_be_infinite():
    inputs = experts()
    inputs[3].array[0] = np.inf
    inputs[1] = np.array([[0.0, 3, 2, 1]] * TOKENS, np.float32)
    m, feeds = model("MoE", inputs, 1, {"k": 2})
    assert np.isfinite(Executor(m).run(None, feeds)[0]).all()


@pytest.mark.parametrize("attrs", [{"use_sparse_mixer": 1}, {"activation_type": "tanh"}])
def test_what_is_not_documented_is_refused(attrs):
    with pytest.raises(ConversionError):
        Executor(model("MoE", experts(), 1, attrs)[0])
