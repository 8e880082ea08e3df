"""Quantized models run on 8-bit integers where the processor supports it, and results are the rounded float64 ones."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper, parser

from onnxbridge.runtime import Executor
from onnxbridge.runtime.executor.kernels import integers
from tests.runtime.executor.fused import step_names

HEAD = '<ir_version: 10, opset_import: ["" : 26]>'
rng = np.random.default_rng(5)

CONVOLUTIONS = [
    # batch, channels, height, width, maps, kernel, stride, pads, dilation, groups
    (1, 3, 17, 19, 5, 3, 2, (1, 1, 1, 1), 1, 1),
    (2, 3, 23, 20, 16, 7, 2, (3, 3, 3, 3), 1, 1),
    (1, 40, 9, 7, 50, 1, 1, (0, 0, 0, 0), 1, 1),
    (2, 33, 8, 9, 17, 1, 2, (0, 0, 0, 0), 1, 1),
    (1, 20, 9, 8, 70, 3, 1, (1, 1, 1, 1), 1, 1),
    (2, 16, 7, 5, 48, 3, 1, (0, 1, 2, 0), 1, 1),
    (1, 5, 11, 8, 35, 3, 1, (2, 2, 2, 2), 2, 1),
    (1, 24, 9, 9, 36, 3, 2, (1, 0, 0, 1), 1, 4),
    (2, 81, 9, 10, 81, 5, 1, (2, 2, 2, 2), 1, 81),
    (1, 6, 9, 10, 12, 3, 2, (1, 1, 1, 1), 1, 6),
]


def model(text, **weights):
    proto = parser.parse_model(HEAD + text)
    proto.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items())
    return proto


def draw(kind, *shape):
    limits = np.iinfo(kind)
    return rng.integers(limits.min, limits.max + 1, shape).astype(kind)


def check(head, kind, body, weights, feeds, *ops):
    """The quantized output y is the float64 result v rounded, in the first and in repeated runs."""
    end = "y = QuantizeLinear(v, ys, yz) }"
    executor = Executor(model(f"agraph ({head}) => ({kind}[...] y) {{ {body} {end}".replace("[...]", SHAPE[ops[-1]]), **weights))
    inside = {k: v for k, v in weights.items() if k not in ("ys", "yz")}
    wide = model(f"agraph ({head}) => (float[...] v) {{ {body} }}".replace("[...]", SHAPE[ops[-1]]), **inside)
    zero = weights["yz"]
    limits = np.iinfo(zero.dtype)
    exact = Executor(wide, precision="float64").run(None, feeds)[0] / np.float64(weights["ys"]) + int(zero)
    exact = np.clip(exact, limits.min, limits.max)
    for _ in range(2):
        (found,) = executor.run(None, feeds)
        assert (found.dtype, found.shape) == (zero.dtype, exact.shape)
        assert np.abs(found - exact).max() <= 0.5 + 2.0**-10  # the rounding error of float32 at up to 2^8 steps
    if integers.available():
        assert step_names(executor, feeds) == list(ops)


SHAPE = {"Bytes+Conv": "[a,b,e,f]", "Bytes+Add": "[a,b,e,f]", "Bytes+Gemm": "[a,b]", "Bytes+MatMul": "[a,b,e]"}


@pytest.mark.parametrize("case", CONVOLUTIONS)
@pytest.mark.parametrize(
    ("kind", "weight", "each"), [("uint8", "int8", True), ("int8", "int8", False), ("uint8", "uint8", False)]
)
def test_convolutions(case, kind, weight, each):
    n, c, h, w, m, k, s, pads, d, g = case
    attributes = f"strides = [{s},{s}], pads = {list(pads)}, dilations = [{d},{d}], group = {g}"
    body = f"""xf = DequantizeLinear(x, xs, xz) wf = DequantizeLinear<axis = 0>(w, ws, wz)
        bf = DequantizeLinear<axis = 0>(b, bs) u = Conv<{attributes}>(xf, wf, bf) v = Relu(u)"""
    scales = (rng.random(m) * 0.01 + 0.001).astype(np.float32) if each else np.float32(0.004)
    q = draw(weight, m, c // g, k, k)
    zeros = np.zeros(m if each else (), weight) if weight == "int8" else np.full((), 128, weight)
    xs = np.float32(0.05)
    weights = {
        "xs": xs, "xz": np.array(3, kind), "w": q, "ws": scales, "wz": zeros, "b": rng.integers(-5000, 5000, m).astype(np.int32),
        "bs": np.broadcast_to(xs * scales, (m,)).astype(np.float32) if each else xs * scales,
        "ys": np.float32(0.7 * np.sqrt(c // g * k * k)), "yz": np.array(1, kind),
    }  # fmt: skip
    check(f"{kind}[{n},{c},{h},{w}] x", kind, body, weights, {"x": draw(kind, n, c, h, w)}, "Bytes+Conv")


def check_qlinear(text, inputs, exact, weights, feeds, op):
    """A QLinear operator gives the float64 result rounded, in a compiled kernel from the first run."""
    executor = Executor(model(f"agraph ({inputs} x) => ({text}", **weights))
    zero, limits = weights["yz"], np.iinfo(weights["yz"].dtype)
    expected = np.clip(exact / np.float64(weights["ys"]) + int(zero), limits.min, limits.max)
    for _ in range(2):
        (found,) = executor.run(None, feeds)
        assert (found.dtype, found.shape) == (zero.dtype, expected.shape)
        assert np.abs(found - expected).max() <= 0.5 + 2.0**-10
    if integers.available():
        assert [(s.op, s.runs) for s in executor.explain(feeds)] == [(op, "compiled kernel")]


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_qlinear_conv(kind, biased):
    w, b = draw("int8", 18, 10, 3, 3), rng.integers(-5000, 5000, 18).astype(np.int32)
    ws = (rng.random(18) * 0.01 + 0.001).astype(np.float32)
    weights = {"xs": np.float32(0.05), "xz": np.array(3, kind), "w": w, "ws": ws, "wz": np.zeros(18, np.int8),
               "ys": np.float32(6), "yz": np.array(1, kind)} | ({"b": b} if biased else {})  # fmt: skip
    text = f"{kind}[a,c,d,e] y) {{ y = QLinearConv<pads = [1,1,1,1]>(x, xs, xz, w, ws, wz, ys, yz{', b' if biased else ''}) }}"
    x = draw(kind, 2, 10, 7, 8)
    wide = np.pad((x - np.float64(3)) * np.float64(weights["xs"]), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (2, 3))
    exact = np.einsum("nchwij,mcij->nmhw", windows, w * ws.astype(np.float64).reshape(-1, 1, 1, 1))
    exact += (b * np.float64(weights["xs"]) * ws).reshape(-1, 1, 1) if biased else 0
    check_qlinear(text, f"{kind}[2,10,7,8]", exact, weights, {"x": x}, "QLinearConv")


def test_qlinear_matmul():
    w, ws = draw("uint8", 33, 18), np.float32(0.01)
    weights = {"xs": np.float32([0.05]), "xz": np.uint8([9]), "w": w, "ws": ws, "wz": np.uint8(128), "ys": np.float32(0.9),
               "yz": np.uint8(100)}  # fmt: skip
    x = draw("uint8", 2, 5, 33)
    exact = (x - np.float64(9)) * np.float64(np.float32(0.05)) @ ((w - np.float64(128)) * np.float64(ws))
    text = "uint8[a,b,c] y) { y = QLinearMatMul(x, xs, xz, w, ws, wz, ys, yz) }"
    check_qlinear(text, "uint8[2,5,33]", exact, weights, {"x": x}, "QLinearMatMul")


@pytest.mark.parametrize("transposed", [0, 1])
def test_gemm(transposed):
    body = f"""xf = DequantizeLinear(x, xs, xz) wf = DequantizeLinear<axis = {1 - transposed}>(w, ws, wz)
        v = Gemm<transB = {transposed}>(xf, wf, b)"""
    q = draw(np.int8, 30, 70)
    weights = {
        "xs": np.float32(0.05), "xz": np.uint8(9), "w": q if transposed else q.T.copy(),
        "ws": (rng.random(30) * 0.01).astype(np.float32),
        "wz": np.zeros(30, np.int8), "b": rng.standard_normal(30).astype(np.float32), "ys": np.float32(0.9), "yz": np.int8(-4),
    }  # fmt: skip
    check("uint8[5,70] x", "int8", body, weights, {"x": draw(np.uint8, 5, 70)}, "Bytes+Gemm")


def test_matmul_with_bias():
    body = "xf = DequantizeLinear(x, xs, xz) wf = DequantizeLinear(w, ws, wz) u = MatMul(xf, wf) v = Add(b, u)"
    weights = {
        "xs": np.float32(0.05), "xz": np.int8(9), "w": draw(np.int8, 33, 18), "ws": np.float32(0.01), "wz": np.int8(0),
        "b": rng.standard_normal(18).astype(np.float32), "ys": np.float32(0.4), "yz": np.uint8(100),
    }  # fmt: skip
    check("int8[2,5,33] x", "uint8", body, weights, {"x": draw(np.int8, 2, 5, 33)}, "Bytes+MatMul")


def test_addition_of_a_constant():
    body = "xf = DequantizeLinear(x, xs, xz) zf = DequantizeLinear(z, zs, zz) v = Add(zf, xf)"
    weights = {
        "xs": np.float32(0.05), "xz": np.uint8(9), "z": draw("int8", 7), "zs": np.float32(0.03), "zz": np.int8(0),
        "ys": np.float32(0.06), "yz": np.uint8(30),
    }  # fmt: skip
    check("uint8[2,5,6,7] x", "uint8", body, weights, {"x": draw(np.uint8, 2, 5, 6, 7)}, "Bytes+Add")


@pytest.mark.parametrize("shape", [(2, 5, 6, 7), (5, 1, 1)])
def test_addition(shape):
    body = "xf = DequantizeLinear(x, xs, xz) zf = DequantizeLinear(z, zs, zz) u = Add(xf, zf) v = Clip(u, low, high)"
    weights = {
        "xs": np.float32(0.05), "xz": np.uint8(9), "zs": np.float32(0.03), "zz": np.int8(-7), "low": np.float32(-1),
        "high": np.float32(6), "ys": np.float32(0.04), "yz": np.uint8(30),
    }  # fmt: skip
    head = f"uint8[2,5,6,7] x, int8[{','.join(map(str, shape))}] z"
    check(head, "uint8", body, weights, {"x": draw(np.uint8, 2, 5, 6, 7), "z": draw(np.int8, *shape)}, "Bytes+Add")


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_max_pool(kind):
    body = "xf = DequantizeLinear(x, ys, yz) v = MaxPool<kernel_shape = [3,2], strides = [2,2], pads = [1,0,1,1]>(xf)"
    weights = {"ys": np.float32(0.05), "yz": np.array(9, kind)}
    name = np.dtype(kind).name
    proto = f"agraph ({name}[2,5,9,7] x) => ({name}[a,b,e,f] y) {{ {body} y = QuantizeLinear(v, ys, yz) }}"
    executor, x = Executor(model(proto, **weights)), {"x": draw(kind, 2, 5, 9, 7)}
    np.testing.assert_array_equal(executor.run(None, x)[0], executor.run(["y"], x)[0])
    if integers.available():
        assert step_names(executor, x) == ["Bytes+MaxPool"]


def test_weights_outside_int8_are_computed_in_float32():
    body = "xf = DequantizeLinear(x, xs, xz) wf = DequantizeLinear(w, ws, wz) v = Conv(xf, wf) y = QuantizeLinear(v, ys, yz)"
    weights = {
        "xs": np.float32(0.05), "xz": np.uint8(9), "w": draw(np.uint8, 4, 6, 3, 3), "ws": np.float32(0.01), "wz": np.uint8(3),
        "ys": np.float32(0.4), "yz": np.uint8(100),
    }  # fmt: skip
    executor = Executor(model(f"agraph (uint8[1,6,9,9] x) => (uint8[a,b,e,f] y) {{ {body} }}", **weights))
    assert "Bytes+Conv" not in step_names(executor, {"x": draw(np.uint8, 1, 6, 9, 9)})


def test_without_the_dot_product_instruction_float32_is_used(monkeypatch):
    body = "xf = DequantizeLinear(x, xs, xz) wf = DequantizeLinear(w, ws, wz) v = Conv(xf, wf) y = QuantizeLinear(v, ys, yz)"
    weights = {
        "xs": np.float32(0.05), "xz": np.uint8(9), "w": draw(np.int8, 4, 6, 3, 3), "ws": np.float32(0.01), "wz": np.int8(0),
        "ys": np.float32(0.4), "yz": np.uint8(100),
    }  # fmt: skip
    proto = model(f"agraph (uint8[1,6,9,9] x) => (uint8[a,b,e,f] y) {{ {body} }}", **weights)
    x = {"x": draw(np.uint8, 1, 6, 9, 9)}
    (found,) = Executor(proto).run(None, x)
    monkeypatch.setattr(integers, "available", lambda: False)
    executor = Executor(proto)
    assert np.abs(executor.run(None, x)[0].astype(int) - found).max() <= 1
    assert "Bytes+Conv" not in step_names(executor, x)
