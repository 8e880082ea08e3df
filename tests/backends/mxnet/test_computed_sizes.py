"""Sizes that the model computes from values, to MXNet: one conversion runs with several of them."""

from __future__ import annotations

import numpy as np
import pytest

import onnxbridge
from onnxbridge.backends.mxnet import backend
from tests.backends.mxnet.models_in_mxnet import assert_same, converted, parsed
from tests.backends.mxnet.test_training import mxnet

RNG = np.random.default_rng(0)
NUMBERS = "zero = Constant<value_ints = [0]>() one = Constant<value_ints = [1]>() two = Constant<value_ints = [2]>() "
LOWEST, LARGEST = -(2**63) + 1, 2**63 - 1


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def integers(*values):
    return np.array(values, np.int64)


SLICES = {
    "from the size of another input": (
        "(float[B, T] x, float[N, 2] z) => (float[B, M] y)",
        f"n = Shape<end = 1>(z) end = Constant<value_ints = [{LARGEST}]>() y = Slice(x, n, end, one)",
        [{"x": floats(2, 7), "z": floats(3, 2)}, {"x": floats(3, 5), "z": floats(1, 2)}, {"x": floats(3, 5), "z": floats(5, 2)}],
    ),
    "up to a value": (
        "(float[B, T] x, int64[1] k) => (float[B, M] y)", "y = Slice(x, zero, k, one)",
        [{"x": floats(3, 5), "k": integers(k)} for k in (3, -2, 0, 99, LOWEST)],
    ),
    "backwards": (
        "(float[B, T] x, int64[1] k, int64[1] s) => (float[B, M] y)",
        f"end = Constant<value_ints = [{LOWEST}]>() y = Slice(x, k, end, one, s)",
        [{"x": floats(3, t), "k": integers(k), "s": integers(s)} for t, k, s in ((7, 3, -1), (5, -2, -2), (5, -9, -1))],
    ),
    "along a computed axis": (
        "(float[4, 5] x, int64[1] k, int64[1] a) => (float[L, M] y)", "y = Slice(x, zero, k, a)",
        [{"x": floats(4, 5), "k": integers(k), "a": integers(a)} for k, a in ((3, 1), (2, -2))],
    ),
    "with a step along a dynamic axis": (
        "(float[B, T] x) => (float[B, M] y)",
        "a = Constant<value_ints = [-1]>() s = Constant<value_ints = [-2]>() y = Slice(x, a, zero, one, s)",
        [{"x": floats(2, 7)}, {"x": floats(3, 4)}],
    ),
    "of bools": (
        "(bool[B, T] x, int64[1] k) => (bool[B, M] y)", "y = Slice(x, k, two, one)",
        [{"x": floats(3, 5) > 0, "k": integers(k)} for k in (1, 0, 2)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SLICES)
def test_slices(name):
    signature, nodes, samples = SLICES[name]
    assert_same(f"g {signature} {{ {NUMBERS} {nodes} }}", *samples)


@pytest.mark.parametrize("dtype", ["int64", "int32", "float"])
def test_ranges(dtype):
    """Of no elements, of fewer than the base of the digits, and of more."""
    kind = {"float": np.float32}.get(dtype) or np.dtype(dtype)
    samples = [(0, 4, 1), (0, 0, 1), (1, 300, 1), (5, -3, -2), (0, -3, 1), (2, 70_000, 3)]
    names = ("start", "limit", "delta")
    feeds = [dict(zip(names, np.array(s, kind), strict=True)) for s in samples]
    assert_same(f"g ({dtype} start, {dtype} limit, {dtype} delta) => ({dtype}[M] y) {{ y = Range(start, limit, delta) }}", *feeds)


def test_a_range_of_fractions():
    feeds = [{"a": np.float32(1), "b": np.float32(b), "c": np.float32(c)} for b, c in ((3.1, 0.5), (-3.1, -0.7))]
    assert_same("g (float a, float b, float c) => (float[M] y) { y = Range(a, b, c) }", *feeds)


RESHAPES = {
    "by sizes and a value": (
        "(float[B, T, 6] x, int64[1] k) => (float[P, Q, R] y)",
        "b = Shape<end = 1>(x) rest = Constant<value_ints = [-1]>() s = Concat<axis = 0>(b, k, rest) y = Reshape(x, s)",
        [{"x": floats(2, 4, 6), "k": integers(8)}, {"x": floats(3, 2, 6), "k": integers(3)}],
    ),
    "by an input": (
        "(float[B, T, 6] x, int64[3] s) => (float[P, Q, R] y)", "y = Reshape(x, s)",
        [{"x": floats(3, 2, 6), "s": integers(*s)} for s in ((0, -1, 3), (2, 3, 6), (-1, 0, 6), (36, 1, 1))],
    ),
    "with one size that is not known": (
        "(float[B, T, 6] x, int64[2] s) => (float[B, Q] y)", "y = Reshape(x, s)",
        [{"x": floats(2, 4, 6), "s": integers(2, -1)}, {"x": floats(3, 2, 6), "s": integers(3, 12)}],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RESHAPES)
def test_reshapes(name):
    signature, nodes, samples = RESHAPES[name]
    assert_same(f"g {signature} {{ {nodes} }}", *samples)


@pytest.mark.parametrize("dtype", ["float", "bool", "int64"])
def test_expansion(dtype):
    kind = {"float": np.float32, "int64": np.int64}.get(dtype, bool)
    samples = [{"x": floats(b, 1).astype(kind), "s": integers(*s)} for b, s in ((2, (4, 1, 3)), (3, (1, 3, 2)), (3, (0, 3, 2)))]
    assert_same(f"g ({dtype}[B, 1] x, int64[3] s) => ({dtype}[P, Q, R] y) {{ y = Expand(x, s) }}", *samples)


def test_filling():
    text = "g (int64[2] s) => (float[P, Q] y) { y = ConstantOfShape<value = float[1] {2.5}>(s) }"
    assert_same(text, {"s": integers(3, 2)}, {"s": integers(1, 600)}, {"s": integers(2, 0)})


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_pads(mode):
    pads = [(0, 1, 2, 2), (1, 3, 0, 0), (1, -1, 0, -2)]
    samples = [{"x": floats(3 + i, 4 + i), "p": integers(*p)} for i, p in enumerate(pads)]
    assert_same(f'g (float[B, T] x, int64[4] p) => (float[P, Q] y) {{ y = Pad<mode = "{mode}">(x, p) }}', *samples)


def test_pads_of_an_axis_with_a_value():
    text = "g (float[B, T] x, int64[2] p, float v) => (float[B, Q] y) { a = Constant<value_ints = [-1]>() y = Pad(x, p, v, a) }"
    assert_same(text, *({"x": floats(2, 4), "p": integers(*p), "v": np.float32(3)} for p in ((2, 2), (0, 3))))


def test_tiles():
    text = "g (float[B, T] x, int64[2] r) => (float[P, Q] y) { y = Tile(x, r) }"
    assert_same(text, *({"x": floats(2, t), "r": integers(*r)} for t, r in ((4, (2, 1)), (1, (1, 3)), (3, (1, 0)))))


def test_parts():
    text = "g (float[B, T] x, int64[2] s) => (float[B, P] y, float[B, Q] z) { y, z = Split<axis = 1>(x, s) }"
    assert_same(text, *({"x": floats(2, 6), "s": integers(*s)} for s in ((3, 3), (1, 5), (0, 6))))


def test_equal_parts_of_a_dynamic_axis():
    text = "g (float[B, T] x) => (float[B, P] y, float[B, Q] z, float[B, R] w) { y, z, w = Split<axis = -1, num_outputs = 3>(x) }"
    assert_same(text, {"x": floats(3, 7)}, {"x": floats(2, 6)})


def test_largest_elements():
    text = "g (float[B, T] x, int64[1] k) => (float[B, P] y, int64[B, P] z) { y, z = TopK(x, k) }"
    assert_same(text, {"x": floats(3, 7), "k": integers(3)}, {"x": floats(2, 6), "k": integers(6)})


def test_half_of_a_dynamic_axis_is_sorted():
    text = "g (float[N, 4] x) => (float[M, 4] y, int64[M, 4] i) { n = Shape<end = 1>(x) two = Constant<value_ints = [2]>() \
            half = Div(n, two) y, i = TopK<axis = 0>(x, half) }"
    assert_same(text, {"x": floats(5, 4)}, {"x": floats(8, 4)})


def test_positions_that_are_not_zero():
    assert_same("g (float[B, T] x) => (int64[2, P] y) { y = NonZero(x) }", *({"x": np.round(floats(3, t))} for t in (7, 2)))


@pytest.mark.parametrize("axis", ["<axis = 1>", "<axis = 0>", ""])
def test_selected_elements(axis):
    text = f"g (float[B, T] x, bool[C] c) => (float y) {{ s = Compress{axis}(x, c) y = ReduceSum<keepdims = 0>(s) }}"
    assert_same(text, *({"x": floats(4, 5), "c": np.array(c, bool)} for c in ([1, 0, 1, 1], [0, 1])))


CHAIN = """g (float[B, T, 8] x, int64[1] k) => (float[B, M, 8] y) {
    zero = Constant<value_ints = [0]>() one = Constant<value_ints = [1]>() two = Constant<value_ints = [2]>()
    h = Slice(x, zero, k, one) t = Transpose<perm = [0, 2, 1]>(h) s = MatMul(h, t) p = Softmax(s) q = MatMul(p, h)
    m = ReduceMean(q, two) y = Add(q, m) }"""


def test_other_operators_after_a_computed_size():
    assert_same(CHAIN, {"x": floats(2, 7, 8), "k": integers(3)}, {"x": floats(3, 5, 8), "k": integers(4)})


def test_a_causal_mask_of_tokens_after_a_cache():
    text = """g (int64[B, T] ids, int64[1] past) => (bool[T, S] mask) {
        zero = Constant<value_int = 0>() one = Constant<value_int = 1>() first = Constant<value_ints = [0]>()
        second = Constant<value_ints = [1]>() n = Shape<start = 1, end = 2>(ids) total = Add(n, past)
        limit = Squeeze(total, first) start = Squeeze(past, first) queries = Range(start, limit, one)
        keys = Range(zero, limit, one) column = Unsqueeze(queries, second) mask = LessOrEqual(keys, column) }"""
    assert_same(text, {"ids": integers(1, 2, 3)[None], "past": integers(2)}, {"ids": integers(1, 2)[None], "past": integers(0)})


def test_conversions_are_verified():
    data = [{"x": floats(2, 7, 8), "k": integers(3)}, {"x": floats(3, 5, 8), "k": integers(4)}]
    report = onnxbridge.convert(parsed(CHAIN), to="mxnet", data=data, mutants=0).report
    assert report.agrees, str(report)


RUN = """
import json, sys, mxnet as mx, numpy as np
prefix, np_shape = sys.argv[1], sys.argv[2] == "True"
x = mx.nd.array(np.load(prefix + "-x.npy"))
block = mx.gluon.SymbolBlock.imports(prefix + "-symbol.json", ["x", "k"], prefix + "-0000.params")
found = {}
with mx.util.np_shape(np_shape):
    for options in ({}, {"static_alloc": True}):
        block.hybridize(**options)
        found[str(options)] = [block(x, mx.nd.array([k], dtype="int64")).asnumpy().tolist() for k in (3, 5)]
    x.attach_grad()
    with mx.autograd.record():
        block(x, mx.nd.array([3], dtype="int64")).sum().backward()
    found["gradient"] = x.grad.asnumpy().tolist()
    module = mx.mod.Module(mx.sym.load(prefix + "-symbol.json"), data_names=["x", "k"], label_names=None)
    try:
        module.bind([mx.io.DataDesc("x", x.shape), mx.io.DataDesc("k", (1,), "int64")], for_training=False)
    except (mx.base.MXNetError, RuntimeError, ValueError) as error:
        found["module"] = type(error).__name__
print(json.dumps(found))
"""


@pytest.mark.parametrize("np_shape", [False, True])
def test_a_symbol_block_runs_it_and_a_module_does_not(tmp_path, np_shape):
    text = f"g (float[1, T] x, int64[1] k) => (float[1, M] y) {{ {NUMBERS} y = Slice(x, zero, k, one) }}"
    backend.save(converted(text), tmp_path / "net")
    x = floats(1, 6)
    np.save(tmp_path / "net-x.npy", x)
    found = mxnet(RUN, tmp_path / "net", np_shape)
    for options in ("{}", "{'static_alloc': True}"):
        for value, k in zip(found[options], (3, 5), strict=True):
            np.testing.assert_array_equal(np.float32(value), x[:, :k])
    np.testing.assert_array_equal(found["gradient"], [[1, 1, 1, 0, 0, 0]])
    assert found["module"]


def test_inside_a_loop_it_is_refused():
    text = """g (float[T] x, int64 n) => (float y) { z = Constant<value_float = 0.0>() y = Loop(n, , z) <body = b
        (int64 i, bool c, float s) => (bool more, float t) { first = Constant<value_ints = [0]>()
        one = Constant<value_ints = [1]>() e = Reshape(i, one) h = Slice(x, first, e, first)
        sum = ReduceSum<keepdims = 0>(h) t = Add(s, sum) more = Identity(c) }> }"""
    with pytest.raises(onnxbridge.ConversionError, match="Slice x1: a size that is computed inside a loop or a branch"):
        converted(text)
