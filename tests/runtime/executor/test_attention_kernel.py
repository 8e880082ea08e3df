"""Compiled attention equals its rule, for the operator and for its decomposed form."""

from __future__ import annotations

import numpy as np
import pytest

from onnxbridge.runtime import Executor
from onnxbridge.runtime.executor.kernels.compile import availability
from tests.runtime.executor.fused import all_compiled, model, step_names

pytestmark = pytest.mark.skipif(not availability.available(), reason="without llvmlite there are no compiled kernels")
EPS = np.finfo(np.float32).eps
rng = np.random.default_rng(8)


def draw(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def agrees(text, feeds, native=True, **weights):
    executor = Executor(model(text, **weights))
    expected = executor.run(executor.output_names, feeds)
    for _ in range(3):
        for got, exact in zip(executor.run(None, feeds), expected, strict=True):
            assert got.shape == exact.shape
            scale = np.nanmax(np.abs(exact), initial=1)
            np.testing.assert_allclose(got, exact, rtol=0, atol=64 * EPS * scale)  # scores of 16 terms, then exp and a mean
    assert all_compiled(executor, feeds) == native


def random_mask(rows, columns, masked=0.4):
    return rng.random((rows, columns)) > masked


MASKS = {
    "none": None,
    "each head": draw(2, 6, 50, 61),
    "for all": draw(50, 61),
    "keys": np.where(rng.random((2, 1, 1, 61)) > 0.3, 0, -np.inf).astype(np.float32),
    "bools": rng.random((2, 1, 50, 61)) > 0.3,
    "a fully masked query": np.concatenate((np.zeros((1, 61), bool), random_mask(49, 61))),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("groups", [6, 2])
@pytest.mark.parametrize("causal", [0, 1])
def test_operator(mask, groups, causal):
    mask = MASKS[mask]
    kind = "bool" if mask is not None and mask.dtype == bool else "float"
    declared = "" if mask is None else f", {kind}[{','.join(map(str, mask.shape))}] m"
    text = f"""agraph (float[2,6,50,16] q, float[2,{groups},61,16] k, float[2,{groups},61,20] v{declared})
        => (float[a,b,c,d] y) {{ y = Attention<is_causal = {causal}, scale = 0.3>(q, k, v{"" if mask is None else ", m"}) }}"""
    feeds = {"q": draw(2, 6, 50, 16), "k": draw(2, groups, 61, 16), "v": draw(2, groups, 61, 20)}
    agrees(text, feeds | ({} if mask is None else {"m": mask}))


def test_packed_heads_in_a_non_contiguous_query():
    text = """agraph (float[96,50,2] q, float[2,50,32] k, float[2,50,32] v) => (float[2,50,96] y) {
        t = Transpose<perm = [2,1,0]>(q) y = Attention<q_num_heads = 6, kv_num_heads = 2>(t, k, v) }"""
    agrees(text, {"q": draw(96, 50, 2), "k": draw(2, 50, 32), "v": draw(2, 50, 32)})


def test_a_broadcast_mask_over_keys_is_computed_by_the_rule():
    text = """agraph (float[1,2,5,8] q, float[1,2,7,8] k, float[1,2,7,8] v, float[5,1] m) => (float[1,2,5,8] y) {
        y = Attention(q, k, v, m) }"""
    agrees(text, {"q": draw(1, 2, 5, 8), "k": draw(1, 2, 7, 8), "v": draw(1, 2, 7, 8), "m": draw(5, 1)}, native=False)


@pytest.mark.parametrize("order", ["Add(d, m)", "Add(m, d)"])
@pytest.mark.parametrize("shape", [(2, 1, 1, 70), (50, 70), (2, 3, 50, 70)])
def test_decomposed_attention_with_a_mask(order, shape):
    text = f"""agraph (float[2,3,50,16] q, float[2,3,70,16] k, float[2,3,70,33] v) => (float[2,3,50,33] y)
        {{ t = Transpose<perm = [0,1,3,2]>(k) a = MatMul(q, t) d = Div(a, g) s = {order} p = Softmax(s) y = MatMul(p, v) }}"""
    mask = np.where(rng.random(shape) > 0.3, 0, np.finfo(np.float32).min).astype(np.float32)
    agrees(text, {"q": draw(2, 3, 50, 16), "k": draw(2, 3, 70, 16), "v": draw(2, 3, 70, 33)}, g=np.float32(4), m=mask)


@pytest.mark.parametrize("safe", [True, False])
def test_decomposed_attention_with_a_fully_masked_query(safe):
    """The softmax of a fully masked row is NaN; the operator Attention returns zeros."""
    zeros = "n = IsNaN(p) w = Where(n, zero, p)" if safe else "w = Identity(p)"
    text = f"""agraph (float[2,3,50,16] q, float[2,3,16,70] k, float[2,3,70,33] v, float[50,70] m) => (float[2,3,50,33] y)
        {{ a = MatMul(q, k) d = Div(a, g) s = Add(d, m) p = Softmax(s) {zeros} y = MatMul(w, v) }}"""
    feeds = {"q": draw(2, 3, 50, 16), "k": draw(2, 3, 16, 70), "v": draw(2, 3, 70, 33), "m": np.zeros((50, 70), np.float32)}
    feeds["m"][7] = -np.inf
    weights = {"g": np.float32(4)} | ({"zero": np.float32(0)} if safe else {})
    executor = Executor(model(text, **weights))
    for got in (executor.run(None, feeds)[0], executor.run(["y"], feeds)[0]):
        assert np.isfinite(got[:, :, :7]).all()
        assert (got[:, :, 7] == 0).all() if safe else np.isnan(got[:, :, 7]).all()
    assert ("Attention" in step_names(executor, feeds)) == safe


def test_a_mask_that_broadcasts_the_scores_is_computed_by_the_rule():
    text = """agraph (float[3,5,8] q, float[3,8,7] k, float[2,3,7,4] v, float[2,1,5,7] m) => (float[2,3,5,4] y) {
        a = MatMul(q, k) s = Add(a, m) p = Softmax(s) y = MatMul(p, v) }"""
    feeds = {"q": draw(3, 5, 8), "k": draw(3, 8, 7), "v": draw(2, 3, 7, 4), "m": draw(2, 1, 5, 7)}
    agrees(text, feeds, native=False)
