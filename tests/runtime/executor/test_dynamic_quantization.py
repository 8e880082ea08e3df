"""Dynamic quantization in compiled kernels gives the same integers as the rules."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper, parser

from onnxbridge.runtime import Executor
from onnxbridge.runtime.executor.kernels import integers
from onnxbridge.runtime.executor.kernels.compile import availability

pytestmark = pytest.mark.skipif(
    not availability.available() or not integers.available(),
    reason="this processor has no instruction that sums products of bytes",
)
HEAD = '<ir_version: 10, opset_import: ["" : 26]>'
rng = np.random.default_rng(11)


def normal(*shape):
    return (rng.standard_normal(shape) * 3 + 0.5).astype(np.float32)


def integers_of(kind, *shape):
    limits = np.iinfo(kind)
    return rng.integers(limits.min, limits.max + 1, shape).astype(kind)


def agrees(text, feeds, *ops, **weights):
    """Fused runs, the first and repeated ones, agree with the rules: integers exactly, floats within their last bits."""
    proto = parser.parse_model(HEAD + text)
    proto.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in weights.items())
    executor = Executor(proto)
    for _ in range(3):
        for got, wanted in zip(executor.run(None, feeds), executor.run(executor.output_names, feeds), strict=True):
            assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
            if got.dtype == np.float32:
                np.testing.assert_allclose(got, wanted, rtol=4e-7, atol=4e-7 * np.abs(wanted).max(initial=0))
            else:
                np.testing.assert_array_equal(got, wanted)
    assert [s.op for s in executor.explain(feeds) if s.runs == "compiled kernel"] == list(ops)


@pytest.mark.parametrize("shape", [(1,), (3, 5), (7, 133), (2, 70, 900)])
@pytest.mark.parametrize("kind", ["any", "positive", "negative", "zeros"])
def test_ranges(shape, kind):
    x = {"any": lambda v: v, "positive": np.abs, "negative": lambda v: -np.abs(v), "zeros": np.zeros_like}[kind](normal(*shape))
    declared = ",".join(map(str, shape))
    text = f"""agraph (float[{declared}] x) => (uint8[{declared}] y, float s, uint8 z) {{
        y, s, z = DynamicQuantizeLinear(x) }}"""
    agrees(text, {"x": x}, "DynamicQuantizeLinear")


@pytest.fixture(params=[1, 3])
def threads(request, small_work_items):
    small_work_items(request.param)


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("bias", ["", "c = Add(b, bias)"])
def test_integer_products_with_scales(each, bias, threads):
    text = f"""agraph (float[2,9,70] x) => (float[2,9,41] y) {{
        q, s, z = DynamicQuantizeLinear(x) p = MatMulInteger(q, w, z, wz) f = Cast<to = 1>(p) by = Mul(s, ws) b = Mul(f, by)
        {bias or "c = Identity(b)"} y = Tanh(c) }}"""
    scales = 41 if each else 1
    weights = {"w": integers_of(np.int8, 70, 41), "ws": np.abs(normal(scales)) / 90, "wz": np.zeros(scales, np.int8)}
    weights |= {"bias": normal(41)} if bias else {}
    ops = "DynamicQuantizeLinear", "Mul", "MatMulInteger+scales", "Tanh"
    agrees(text, {"x": normal(2, 9, 70)}, *ops, **weights)


@pytest.mark.parametrize("zero", [np.uint8(128), np.int8(0)])
def test_exact_products(zero, threads):
    text = "agraph (uint8[5,70] x, uint8 z) => (int32[5,41] y) { y = MatMulInteger(x, w, z, wz) }"
    feeds = {"x": integers_of(np.uint8, 5, 70), "z": np.uint8(77)}
    agrees(text, feeds, "MatMulInteger", w=integers_of(zero.dtype.type, 70, 41), wz=zero)


@pytest.mark.parametrize("zero", [np.uint8(9), np.int8(-100), np.arange(40, 81).astype(np.uint8)])
def test_weights_whose_zero_point_needs_nine_bits(zero, threads):
    text = """agraph (float[2,5,70] x) => (float[2,5,41] y, int32[2,5,41] n) {
        q, s, z = DynamicQuantizeLinear(x) p = MatMulInteger(q, w, z, wz) f = Cast<to = 1>(p) y = Mul(f, s)
        n = MatMulInteger(q, w, z, wz) }"""
    ops = "DynamicQuantizeLinear", "MatMulInteger+scales", "MatMulInteger"
    agrees(text, {"x": normal(2, 5, 70)}, *ops, w=integers_of(zero.dtype.type, 70, 41), wz=zero)


def test_a_convolution_whose_weights_need_nine_bits(threads):
    text = """agraph (float[2,6,11,9] x) => (float[a,b,c,d] y) { q, s, z = DynamicQuantizeLinear(x)
        p = ConvInteger<pads = [1,0,2,1], strides = [2,1]>(q, w, z, wz) f = Cast<to = 1>(p) g = Mul(f, s) y = Add(g, bias) }"""
    ops = "DynamicQuantizeLinear", "ConvInteger+scales"
    agrees(
        text, {"x": normal(2, 6, 11, 9)}, *ops, w=integers_of(np.uint8, 20, 6, 3, 3), wz=np.uint8(99), bias=normal(1, 20, 1, 1)
    )


CONVOLUTIONS = [
    ((20, 9, 3, 3), "pads = [1,1,1,1]"), ((8, 16, 1, 1), "strides = [2,2]"), ((12, 3, 5, 5), "pads = [2,0,2,1]"),
    ((24, 1, 3, 3), "group = 24, pads = [1,1,1,1]"), ((12, 4, 3, 3), "group = 3, dilations = [2,2]"),
]  # fmt: skip


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions(case, threads):
    (maps, depth, kh, kw), attributes = case
    groups = {"group = 24": 24, "group = 3,": 3}.get(attributes[:10], 1)
    channels = depth * groups
    text = f"""agraph (float[2,{channels},11,9] x) => (float[a,b,c,d] y, int32[a,b,c,d] n) {{
        q, s, z = DynamicQuantizeLinear(x) p = ConvInteger<{attributes}>(q, w, z) f = Cast<to = 1>(p) by = Mul(s, ws)
        b = Mul(f, by) y = Add(b, bias) n = ConvInteger<{attributes}>(q, w, z) }}"""
    agrees(
        text, {"x": normal(2, channels, 11, 9)}, "DynamicQuantizeLinear", "Mul", "ConvInteger+scales", "ConvInteger",
        w=integers_of(np.int8, maps, depth, kh, kw), ws=np.float32(0.011), bias=normal(1, maps, 1, 1),
    )  # fmt: skip


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_lstm(kind, each, threads):
    """A quantized hidden state may differ by one step where h differs in its last bits."""
    hidden, scales = 21, 84 if each else 1
    text = f"""agraph (float[6,2,13] x, float[2,2,{hidden}] h, float[2,2,{hidden}] c) => (float[a,b,d,e] y, float[f,g,i] hn) {{
        y, hn = com.microsoft.DynamicQuantizeLSTM<hidden_size = {hidden}, direction = "bidirectional">
        (x, w, r, b0, , h, c, , ws, wz, rs, rz) }}"""
    proto = parser.parse_model(HEAD.replace("26]", '26, "com.microsoft" : 1]') + text)
    weights = {"w": integers_of(kind, 2, 13, 84), "r": integers_of(kind, 2, hidden, 84), "b0": normal(2, 168) / 9}
    for name in "wr":
        weights[f"{name}s"] = np.abs(normal(2, scales)) / 900 + np.float32(0.001)
        weights[f"{name}z"] = np.full((2, scales), 9 if kind == np.uint8 else 0, kind)
    proto.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in weights.items())
    executor, feeds = Executor(proto), {"x": normal(6, 2, 13), "h": normal(2, 2, hidden) / 9, "c": normal(2, 2, hidden) / 9}
    wanted = executor.run(["y", "hn"], feeds)
    for _ in range(3):
        for got, exact in zip(executor.run(None, feeds), wanted, strict=True):
            step = 255 * weights["rs"].max() * 2 / 255  # the largest change of a gate by one step of the hidden state
            np.testing.assert_allclose(got, exact, rtol=0, atol=step)
            assert np.median(np.abs(got - exact)) < 1e-5
    assert [s.op for s in executor.explain(feeds)] == ["DynamicQuantizeLSTM"]


def test_zero_points_per_row_and_variable_weights_are_computed_by_the_rules():
    text = """agraph (uint8[5,7] x, uint8[5] z, int8[7,3] v) => (int32[5,3] y, int32[5,3] u) {
        y = MatMulInteger(x, w, z) u = MatMulInteger(x, v) }"""
    feeds = {"x": integers_of(np.uint8, 5, 7), "z": integers_of(np.uint8, 5), "v": integers_of(np.int8, 7, 3)}
    agrees(text, feeds, w=integers_of(np.int8, 7, 3))
