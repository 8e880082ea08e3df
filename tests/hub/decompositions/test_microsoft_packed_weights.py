"""Weights in few bits as ONNX Runtime packs them, against ONNX Runtime itself."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxbridge.runtime import Executor
from tests.hub.decompositions.test_microsoft import Fixed, codes, judged, model
from tests.hub.decompositions.test_microsoft_attention import agree, normal

RNG = np.random.default_rng(7)


def product(k: int, bits: int, *, n: int = 6, block: int = 16, zeros: Any = None, groups: Any = None, bias: bool = False):
    """MatMulNBits of 3 rows; `zeros`: "packed", "real" or None."""
    blocks = -(-k // block)
    zero = None
    if zeros == "packed":
        zero = Fixed(codes(n, -(-blocks * bits // 8)))
    elif zeros == "real":
        zero = Fixed((normal(n, blocks) + (1 << bits - 1)).astype(np.float32))
    inputs = [normal(3, k), Fixed(codes(n, blocks, block * bits // 8)), Fixed(normal(n, blocks)), zero]
    inputs += [None if groups is None else Fixed(groups), Fixed(normal(n)) if bias else None]
    while inputs[-1] is None:
        inputs.pop()
    return inputs, {"K": k, "N": n, "bits": bits, "block_size": block}


PRODUCTS = {
    "2 bits": product(64, 2),
    "2 bits, zero points": product(128, 2, zeros="packed", block=32),
    "4 bits, a part of a block": product(40, 4, zeros="packed"),
    "4 bits, real zero points": product(64, 4, zeros="real"),
    "8 bits, zero points, a bias": product(32, 8, zeros="packed", bias=True),
    "4 bits, an order": product(32, 4, groups=RNG.permutation(np.repeat([0, 1], 16)).astype(np.int32)),
}  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_the_same(name):
    inputs, attrs = PRODUCTS[name]
    agree("MatMulNBits", inputs, 1, attrs)


def test_zero_points_in_another_order():
    """By the operator's formula: ONNX Runtime's CPU provider takes the middle of the range for every zero point here."""
    groups = RNG.permutation(np.repeat([0, 1], 16)).astype(np.int32)
    inputs, attrs = product(32, 4, zeros="packed", groups=groups)
    packed = (inputs[1].array, inputs[3].array)
    numbers, zeros = (np.stack([v & 15, v >> 4], -1).reshape(6, -1).astype(np.float32) for v in packed)
    weights = (numbers - zeros[:, groups]) * inputs[2].array[:, groups]
    for zero in (inputs[3], Fixed(zeros)):
        m, feeds = model("MatMulNBits", [*inputs[:3], zero, inputs[4]], 1, attrs)
        np.testing.assert_allclose(Executor(m).run(None, feeds)[0], inputs[0] @ weights.T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", [0, 1])
def test_tables_of_sixteen_numbers(kind):
    n, k, block = 5, 32, 16
    inputs = [normal(2, k), Fixed(codes(n * k // 2)), Fixed(np.abs(normal(n * k // block)))]
    agree("MatMulBnb4", inputs, 1, {"K": k, "N": n, "block_size": block, "quant_type": kind})


def rows(kind: str, *, width: int = 32, zeros: bool = False, at: Any = None, **attrs: Any):
    bits = attrs.get("bits", 4)
    blocks = width // 16
    at = RNG.integers(0, 7, (2, 3)) if at is None else at
    if kind == "uint8":
        table, zero = codes(7, width * bits // 8), codes(7, -(-blocks * bits // 8))
    else:
        of = np.dtype(getattr(ml_dtypes, kind))
        low, high = (-8, 8) if kind == "int4" else (0, 16)
        table, zero = (RNG.integers(low, high, (7, n)).astype(of) for n in (width, blocks))
    return [Fixed(table), at, Fixed(normal(7, blocks)), Fixed(zero) if zeros else None], {"block_size": 16, **attrs}


LOOKED_UP = {
    "int4": rows("int4"),
    "uint4, zero points": rows("uint4", zeros=True),
    "bytes of two": rows("uint8", bits=4),
    "bytes of two, zero points": rows("uint8", bits=4, zeros=True),
    "bytes of four, zero points": rows("uint8", bits=2, width=64, zeros=True),
    "bytes": rows("uint8", bits=8),
    "bytes, zero points, int32": rows("uint8", bits=8, zeros=True, at=np.array([6, -1], np.int32)),
}


@pytest.mark.parametrize("name", LOOKED_UP)
def test_rows_are_the_same(name):
    inputs, attrs = LOOKED_UP[name]
    if inputs[-1] is None:
        inputs = inputs[:-1]
    agree("GatherBlockQuantized", inputs, 1, attrs)


def reference(m: Any, feeds: Any) -> np.ndarray:
    return judged(m, feeds)[0]


def test_projections_with_a_norm_before_them():
    """No kernel of the CPU provider: the same of its parts."""
    k, n = 32, 6
    x, skip, scale = normal(3, k), normal(3, k), normal(k)
    weights = [product(k, 4, n=n)[0][1:3] for _ in range(3)]
    how = {"K": k, "bits": 4, "block_size": 16}
    total = x + skip
    seen = total / np.sqrt((total**2).mean(-1, keepdims=True) + 1e-5) * scale
    apart = [reference(*model("MatMulNBits", [seen, *w], 1, {**how, "N": n})) for w in weights]
    flat = [p for w in weights for p in (*w, None)][:-1]
    m, feeds = model("MatMulNBitsQkv", [x, skip, scale, *flat], 4, {**how, "Nq": n, "Nkv": n})
    for got, expected in zip(Executor(m).run(None, feeds), [*apart, total], strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
    m, feeds = model("MatMulNBitsMlp", [x, skip, scale, *flat[:5]], 2, {**how, "N": n, "activation": "silu"})
    gate, up = apart[:2]
    for got, expected in zip(Executor(m).run(None, feeds), [gate / (1 + np.exp(-gate)) * up, total], strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
