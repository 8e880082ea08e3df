"""Loops whose number of iterations the model computes, to MXNet."""

from __future__ import annotations

import numpy as np
import pytest

import onnxbridge
from onnxbridge.backends.mxnet import backend
from tests.backends.mxnet.models_in_mxnet import assert_same, converted

RNG = np.random.default_rng(0)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def count(n):
    return np.array(n, np.int64)


def test_results_collected_until_a_condition():
    text = """g (float[2] x, float n) => (float[2] y, float[M, 2] all) { y, all = Loop(, , x) <body = b
        (int64 i, bool c, float[2] s) => (bool more, float[2] t, float[2] each) {
        f = Cast<to = 1>(i) more = Less(f, n) t = Sin(s) each = Cos(t) }> }"""
    assert_same(text, *({"x": floats(2), "n": np.float32(n)} for n in (3, 0, 9)))


def test_results_collected_in_a_computed_number_of_iterations():
    text = """g (float[B, T] x, int64 n) => (float[B, T] y, float[K, T, B] all, bool[K] flags) { y, all, flags = Loop(n, , x)
        <body = b (int64 i, bool c, float[B, T] s) => (bool more, float[B, T] t, float[T, B] each, bool flag) {
        more = Identity(c) t = Sin(s) each = Transpose(t) one = Constant<value_int = 1>() flag = Less(i, one) }> }"""
    samples = [{"x": floats(b, b + 1), "n": count(n)} for b, n in ((2, 3), (3, 40), (3, 0), (2, -1))]
    results = assert_same(text, *samples)
    assert [r[1].shape for r in results] == [(3, 3, 2), (40, 4, 3), (0, 4, 3), (0, 3, 2)]


def test_results_collected_up_to_a_bound():
    """Until a condition that the state decides, and not at all if it does not hold at first."""
    text = """g (float[B] x, bool first) => (float[B] y, float[K, B] all, float[K] sums) { n = Constant<value_int = 5>()
        y, all, sums = Loop(n, first, x) <body = b (int64 i, bool c, float[B] s)
        => (bool more, float[B] t, float[B] each, float sum) { t = Mul(s, s) each = Identity(s)
        sum = ReduceSum<keepdims = 0>(s) limit = Constant<value_float = 100.0>()
        more = Less(sum, limit) }> }"""
    samples = [(floats(2) + 2, True), (floats(3) + 1.5, False), (floats(3) * 0.1, True)]
    lengths = [len(r[1]) for r in assert_same(text, *({"x": x, "first": np.array(c)} for x, c in samples))]
    assert 0 < lengths[0] < 5 and lengths[1:] == [0, 5]


def test_results_collected_if_a_condition_holds():
    text = """g (float[B] x, bool first) => (float[B] y, float[K, B] all) { n = Constant<value_int = 5>()
        y, all = Loop(n, first, x) <body = b (int64 i, bool c, float[B] s) => (bool more, float[B] t, float[B] each) {
        t = Sin(s) each = Identity(s) more = Identity(c) }> }"""
    results = assert_same(text, *({"x": floats(2), "first": np.array(c)} for c in (True, False)))
    assert [r[1].shape for r in results] == [(5, 2), (0, 2)]


def test_what_a_loop_collects_is_computed_with():
    """The number of iterations, the rows that the body reads, and the result of all are of a computed size."""
    text = """g (float[T, 2] x, int64[1] k) => (float[2] y, float[2, K] all) {
        first = Constant<value_ints = [0]>() h = Slice(x, first, k, first) n = Shape<end = 1>(h) m = Squeeze(n)
        s0 = ReduceSum<keepdims = 0>(h, first) y, rows = Loop(m, , s0) <body = b
        (int64 i, bool c, float[2] s) => (bool more, float[2] t, float[2] each) {
        row = Gather(h, i) t = Add(s, row) each = Mul(t, row) more = Identity(c) }> all = Transpose(rows) }"""
    assert_same(text, {"x": floats(5, 2), "k": count([3])}, {"x": floats(4, 2), "k": count([1])})


def test_numbers_without_dimensions_as_states():
    text = """g (float x, int64 n) => (float y) { y = Loop(n, , x) <body = b (int64 i, bool c, float s) => (bool more, float t) {
        t = Sin(s) limit = Constant<value_float = 0.3>() more = Greater(t, limit) }> }"""
    assert_same(text, {"x": np.float32(1), "n": count(9)}, {"x": np.float32(1), "n": count(0)})


def test_no_iteration():
    text = """g (float[B, 2] x) => (float[B, 2] y) { n = Constant<value_int = 0>() y = Loop(n, , x) <body = b
        (int64 i, bool c, float[B, 2] s) => (bool more, float[B, 2] t) { t = Sin(s) more = Identity(c) }> }"""
    assert_same(text, {"x": floats(2, 2)})


def test_a_scan_over_selected_items_of_which_there_may_be_none():
    """ONNX Runtime refuses no items; the states are the initial ones then."""
    text = """g (float[N] x, float[2] s0) => (float[2] y, float sum, float[?, 2] all) { zero = Constant<value_float = 0.0>()
        c = Greater(x, zero) h = Compress<axis = 0>(x, c) y, sum, all = Scan<num_scan_inputs = 1, body = b
        (float[2] s, float u, float e) => (float[2] t, float v, float[2] each) { t = Add(s, e) v = Add(u, e) each = Mul(s, t) }>
        (s0, zero, h) }"""
    s0 = floats(2)
    assert_same(text, {"x": floats(5), "s0": s0}, {"x": np.abs(floats(3)), "s0": s0})
    y, total, rows = backend.runner(converted(text))({"x": -np.abs(floats(3)), "s0": s0}).values()
    np.testing.assert_array_equal(y, s0)
    assert total == 0 and total.shape == () and rows.shape == (0, 2)


def test_a_loop_of_results_only():
    text = """g (int64 n) => (int64[K] all) { yes = Constant<value = bool {1}>() all = Loop(n, yes) <body = b
        (int64 i, bool c) => (bool more, int64 each) {
        each = Mul(i, i) more = Identity(c) }> }"""
    assert_same(text, {"n": count(3)}, {"n": count(0)})


def test_a_loop_with_a_condition_in_a_loop_with_a_bound():
    text = """g (float[2] x) => (float[2] y) { n = Constant<value_int = 3>() y = Loop(n, , x) <body = b
        (int64 i, bool c, float[2] s) => (bool more, float[2] t) { more = Identity(c) m = Constant<value_int = 4>()
        t = Loop(m, , s) <body = inner (int64 j, bool d, float[2] u) => (bool on, float[2] v) {
        v = Sin(u) on = Less(j, i) }> }> }"""
    assert_same(text, {"x": floats(2)})


def test_a_loop_in_a_loop():
    text = """g (float[2] x, int64 n) => (float[2] y) { y = Loop(n, , x) <body = b (int64 i, bool c, float[2] s)
        => (bool more, float[2] t) { more = Identity(c) t = Loop(i, , s) <body = inner (int64 j, bool d, float[2] u)
        => (bool on, float[2] v) { v = Sin(u) on = Identity(d) }> }> }"""
    assert_same(text, {"x": floats(2), "n": count(3)})


REFUSED = {
    "a loop that draws random numbers, collects results and has no known bound": """
        g (float[2] x, int64 n) => (float[2] y, float[K, 2] all) { y, all = Loop(n, , x) <body = b (int64 i, bool c, float[2] s)
        => (bool more, float[2] t, float[2] each) { more = Identity(c) t = RandomUniformLike(s) each = Cos(t) }> }""",
    "a loop without a known bound inside one that has a bound, or collects results": """
        g (float[2] x) => (float[2] y) { n = Constant<value_int = 3>() y = Loop(n, , x) <body = b (int64 i, bool c, float[2] s)
        => (bool more, float[2] t) { more = Identity(c) t = Loop(i, , s) <body = inner (int64 j, bool d, float[2] u)
        => (bool on, float[2] v) { v = Sin(u) on = Identity(d) }> }> }""",
}


@pytest.mark.parametrize("reason", REFUSED)
def test_loops_that_mxnet_cannot_run_are_refused(reason):
    with pytest.raises(onnxbridge.ConversionError, match=reason):
        converted(REFUSED[reason])
