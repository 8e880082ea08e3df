"""Operators with packed 2-, 4- and 8-bit weights, compared with ONNX Runtime."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.hub.decompositions.rounding import assert_within_rounding
from tests.hub.decompositions.test_microsoft import Constant, model, randint, run_onnxruntime
from tests.hub.decompositions.test_microsoft_attention import assert_matches_onnxruntime, normal

RNG = np.random.default_rng(7)


def mat_mul_case(k: int, bits: int, *, n: int = 6, block: int = 16, zeros: Any = None, groups: Any = None, bias: bool = False):
    """Inputs and attributes of MatMulNBits with 3 rows; `zeros`: "packed", "float" or None."""
    blocks = -(-k // block)
    zero = None
    if zeros == "packed":
        zero = Constant(randint(n, -(-blocks * bits // 8)))
    elif zeros == "float":
        zero = Constant((normal(n, blocks) + (1 << bits - 1)).astype(np.float32))
    inputs = [normal(3, k), Constant(randint(n, blocks, block * bits // 8)), Constant(normal(n, blocks)), zero]
    inputs += [None if groups is None else Constant(groups), Constant(normal(n)) if bias else None]
    while inputs[-1] is None:
        inputs.pop()
    return inputs, {"K": k, "N": n, "bits": bits, "block_size": block}


MAT_MUL_CASES = {
    "2 bits": mat_mul_case(64, 2),
    "2 bits, zero points": mat_mul_case(128, 2, zeros="packed", block=32),
    "4 bits, incomplete block": mat_mul_case(40, 4, zeros="packed"),
    "4 bits, float zero points": mat_mul_case(64, 4, zeros="float"),
    "8 bits, zero points, bias": mat_mul_case(32, 8, zeros="packed", bias=True),
    "4 bits, group index": mat_mul_case(32, 4, groups=RNG.permutation(np.repeat([0, 1], 16)).astype(np.int32)),
}  # fmt: skip


@pytest.mark.parametrize("name", MAT_MUL_CASES)
def test_mat_mul_n_bits_matches_onnxruntime(name):
    inputs, attrs = MAT_MUL_CASES[name]
    assert_matches_onnxruntime("MatMulNBits", inputs, 1, attrs)


def test_zero_points_with_group_index():
    """Compared with the formula: ONNX Runtime's CPU provider ignores the zero points in this case."""
    groups = RNG.permutation(np.repeat([0, 1], 16)).astype(np.int32)
    inputs, attrs = mat_mul_case(32, 4, zeros="packed", groups=groups)
    packed = (inputs[1].array, inputs[3].array)
    numbers, zeros = (np.stack([v & 15, v >> 4], -1).reshape(6, -1).astype(np.float32) for v in packed)
    weights = (numbers - zeros[:, groups]) * inputs[2].array[:, groups]
    for zero in (inputs[3], Constant(zeros)):
        m, feeds = model("MatMulNBits", [*inputs[:3], zero, inputs[4]], 1, attrs)
        assert_within_rounding(m, feeds, [inputs[0] @ weights.T])


@pytest.mark.parametrize("kind", [0, 1])
def test_mat_mul_bnb4_matches_onnxruntime(kind):
    n, k, block = 5, 32, 16
    inputs = [normal(2, k), Constant(randint(n * k // 2)), Constant(np.abs(normal(n * k // block)))]
    assert_matches_onnxruntime("MatMulBnb4", inputs, 1, {"K": k, "N": n, "block_size": block, "quant_type": kind})


def gather_case(kind: str, *, width: int = 32, zeros: bool = False, at: Any = None, **attrs: Any):
    bits = attrs.get("bits", 4)
    blocks = width // 16
    at = RNG.integers(0, 7, (2, 3)) if at is None else at
    if kind == "uint8":
        table, zero = randint(7, width * bits // 8), randint(7, -(-blocks * bits // 8))
    else:
        dtype = np.dtype(getattr(ml_dtypes, kind))
        low, high = (-8, 8) if kind == "int4" else (0, 16)
        table, zero = (RNG.integers(low, high, (7, n)).astype(dtype) for n in (width, blocks))
    return [Constant(table), at, Constant(normal(7, blocks)), Constant(zero) if zeros else None], {"block_size": 16, **attrs}


GATHER_CASES = {
    "int4": gather_case("int4"),
    "uint4, zero points": gather_case("uint4", zeros=True),
    "two per byte": gather_case("uint8", bits=4),
    "two per byte, zero points": gather_case("uint8", bits=4, zeros=True),
    "four per byte, zero points": gather_case("uint8", bits=2, width=64, zeros=True),
    "one per byte": gather_case("uint8", bits=8),
    "one per byte, zero points, int32 indices": gather_case("uint8", bits=8, zeros=True, at=np.array([6, -1], np.int32)),
}


@pytest.mark.parametrize("name", GATHER_CASES)
def test_gather_block_quantized_matches_onnxruntime(name):
    inputs, attrs = GATHER_CASES[name]
    if inputs[-1] is None:
        inputs = inputs[:-1]
    assert_matches_onnxruntime("GatherBlockQuantized", inputs, 1, attrs)


def reference(m: Any, feeds: Any) -> np.ndarray:
    return run_onnxruntime(m, feeds)[0]


def test_mlp_and_qkv_projections_with_normalization():
    """ONNX Runtime's CPU provider has no kernel; the reference is composed of MatMulNBits nodes."""
    k, n = 32, 6
    x, skip, scale = normal(3, k), normal(3, k), normal(k)
    weights = [mat_mul_case(k, 4, n=n)[0][1:3] for _ in range(3)]
    options = {"K": k, "bits": 4, "block_size": 16}
    total = x + skip
    normalized = total / np.sqrt((total**2).mean(-1, keepdims=True) + 1e-5) * scale
    projections = [reference(*model("MatMulNBits", [normalized, *w], 1, {**options, "N": n})) for w in weights]
    flat = [p for w in weights for p in (*w, None)][:-1]
    m, feeds = model("MatMulNBitsQkv", [x, skip, scale, *flat], 4, {**options, "Nq": n, "Nkv": n})
    assert_within_rounding(m, feeds, [*projections, total])
    m, feeds = model("MatMulNBitsMlp", [x, skip, scale, *flat[:5]], 2, {**options, "N": n, "activation": "silu"})
    gate, up = projections[:2]
    assert_within_rounding(m, feeds, [gate / (1 + np.exp(-gate)) * up, total])
