"""Fused plans give the results of the rules, and fuse the expected steps."""

from __future__ import annotations

import re

import numpy as np
import pytest

from onnxbridge.runtime import Executor
from tests.runtime.executor.fused import EPS, agrees, all_compiled, model, normal_arrays, step_names

draw = normal_arrays(3)


@pytest.mark.parametrize(("rows", "depth", "columns"), [(1, 5, 3), (13, 700, 33), (3, 1600, 70), (130, 64, 48)])
@pytest.mark.parametrize("op", ["Gelu", "Tanh", "Sigmoid", "none"])
def test_products(rows, depth, columns, op):
    text = f"""agraph (float[2,{rows},{depth}] x, float[2,{rows},{columns}] z) => (float[2,{rows},{columns}] y)
        {{ a = MatMul(x, w) b = Add(k, a) c = Add(b, z) y = {op if op != "none" else "Sign"}(c) }}"""
    proto = model(text, w=draw(depth, columns) / np.float32(np.sqrt(depth)), k=draw(columns))  # sums of order 1
    names = ["MatMul", "Sign"] if op == "none" else [f"MatMul+{op}"]
    agrees(proto, {"x": draw(2, rows, depth), "z": draw(2, rows, columns)}, *names, depth=depth)


def test_decomposed_gelu_is_fused():
    erf = "a = Div(x, r) b = Erf(a) c = Add(b, one) d = Mul(half, c) y = Mul(x, d)"
    tanh = """a = Pow(x, three) b = Mul(k, a) c = Add(x, b) d = Mul(s, c) e = Tanh(d) f = Add(one, e)
        g = Mul(f, x) y = Mul(g, half)"""
    numbers = {"r": np.sqrt(2), "one": 1, "half": 0.5, "three": 3, "k": 0.044715, "s": np.sqrt(2 / np.pi)}
    weights = {k: np.float32(v).reshape(()) for k, v in numbers.items()}
    x = np.linspace(-9, 9, 4001).astype(np.float32)
    for text in (erf, tanh):
        used = {k: v for k, v in weights.items() if f"{k})" in text or f"({k}," in text}
        agrees(model(f"agraph (float[4001] x) => (float[4001] y) {{ {text} }}", **used), {"x": x}, "Gelu")


@pytest.mark.parametrize("shape", [(2, 3, 50, 24), (3, 1, 16)])
def test_attention(shape):
    *lead, rows, depth = shape
    head = ",".join(map(str, lead))
    text = f"""agraph (float[{head},{rows},{depth}] q, float[{head},70,{depth}] k, float[{head},70,33] v)
        => (float[{head},{rows},33] y) {{ t = Transpose<perm = {[*range(len(lead)), len(lead) + 1, len(lead)]}>(k)
        a = Mul(q, f) s = MatMul(a, t) d = Div(s, g) p = Softmax(d) y = MatMul(p, v) }}"""
    proto = model(text, f=np.array([0.5], np.float32), g=np.array(3, np.float32))
    feeds = {"q": draw(*shape), "k": draw(*lead, 70, depth), "v": draw(*lead, 70, 33)}
    agrees(proto, feeds, "Attention", depth=depth)


@pytest.mark.parametrize("rows", [1, 2, 3, 13])
def test_equal_weight_columns_give_equal_results(rows):
    """Columns of a product are summed in the same order, so equal columns of weights give bitwise equal results."""
    column = draw(1999, 1)
    proto = model(f"agraph (float[{rows},1999] x) => (float[{rows},41] y) {{ y = MatMul(x, w) }}", w=np.repeat(column, 41, 1))
    y = Executor(proto).run(None, {"x": draw(rows, 1999)})[0]
    np.testing.assert_array_equal(y, np.repeat(y[:, :1], 41, 1))


def test_weights_from_constant_nodes():
    text = """agraph (float[2,3] x) => (float[2,2] y) {
        w = Constant<value = float[3,2] {1, 2, 3, 4, 5, 6}>() b = Constant<value_floats = [0.5, -9.0]>()
        m = MatMul(x, w) s = Add(m, b) y = Relu(s) }"""
    agrees(model(text), {"x": draw(2, 3)}, "MatMul+Relu", depth=3)


@pytest.mark.parametrize("hidden", [6, 70])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_lstm(direction, hidden):
    directions = 2 if direction == "bidirectional" else 1
    text = f"""agraph (float[5,3,7] x, float[{directions},3,{hidden}] h, float[{directions},3,{hidden}] c)
        => (float[a,b,d,e] y, float[f,g,i] hn, float[j,k,m] cn)
        {{ y, hn, cn = LSTM<hidden_size = {hidden}, direction = "{direction}">(x, w, r, b0, , h, c) }}"""
    proto = model(
        text, w=draw(directions, 4 * hidden, 7), r=draw(directions, 4 * hidden, hidden), b0=draw(directions, 8 * hidden)
    )
    feeds = {"x": draw(5, 3, 7), "h": draw(directions, 3, hidden), "c": draw(directions, 3, hidden)}
    agrees(proto, feeds, "LSTM", depth=5 * hidden)


RECURRENT = {"GRU": (3, "linear_before_reset = 1"), "RNN": (1, 'activations = ["Relu"]'), "RNN tanh": (1, "layout = 0")}


@pytest.mark.parametrize("hidden", [6, 70])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layers(name, bidirectional, hidden):
    (gates, extra), directions = RECURRENT[name], 1 + bidirectional
    extra = extra.replace('["Relu"]', '["Relu", "Relu"]') if bidirectional else extra
    text = f"""agraph (float[5,3,7] x, float[{directions},3,{hidden}] h) => (float[a,b,d,e] y, float[f,g,i] hn)
        {{ y, hn = {name[:3]}<hidden_size = {hidden}, {extra}, direction = "{"bidirectional" if bidirectional else "reverse"}">
        (x, w, r, b0, , h) }}"""
    size = gates * hidden
    proto = model(text, w=draw(directions, size, 7) / 3, r=draw(directions, size, hidden) / 9, b0=draw(directions, 2 * size))
    agrees(proto, {"x": draw(5, 3, 7), "h": draw(directions, 3, hidden)}, name[:3], depth=5 * hidden)


@pytest.mark.parametrize("name", ["LSTM", *RECURRENT])
@pytest.mark.parametrize("x, h", [((5, 3, 6), (1, 3, 6)), ((5, 3, 7), (1, 1, 6)), ((5, 3, 7), (1, 2, 6)), ((5, 3, 7), (1, 3, 5))])
def test_a_recurrent_layer_refuses_mismatched_sizes(name, x, h):
    """Kernels do not check sizes and would access memory out of bounds."""
    gates, extra = RECURRENT.get(name, (4, "layout = 0"))
    text = f"""agraph (float[a,b,c] x, float[d,e,f] h) => (float[g,i,j,k] y)
        {{ y = {name[:4].strip()}<hidden_size = 6, {extra}>(x, w, r, , , h) }}"""
    executor = Executor(model(text, w=draw(1, gates * 6, 7), r=draw(1, gates * 6, 6)))
    feeds = {"x": draw(5, 3, 7), "h": draw(1, 3, 6)}
    assert executor.run(None, feeds)[0].shape == (5, 1, 3, 6)
    assert all_compiled(executor, feeds)
    with pytest.raises(ValueError):
        executor.run(None, {"x": draw(*x), "h": draw(*h)})


@pytest.mark.parametrize("square", ["Pow(d, two)", "Mul(d, d)"])
@pytest.mark.parametrize("shift", [True, False])
def test_decomposed_layer_normalization_is_fused(square, shift):
    text = f"""agraph (float[3,5,37] x) => (float[3,5,37] y) {{ m = ReduceMean(x, axes) d = Sub(x, m) q = {square}
        v = ReduceMean(q, axes) e = Add(v, eps) r = Sqrt(e) n = Div(d, r) s = Mul(n, gamma)
        {"y = Add(s, beta)" if shift else "y = Identity(s)"} }}"""
    weights = {"axes": np.array([-1]), "two": np.array(2, np.float32), "eps": np.array(1e-5, np.float32), "gamma": draw(37)}
    weights |= {"beta": draw(37)} if shift else {}
    agrees(model(text, **weights), {"x": draw(3, 5, 37) * 4 + 2}, *["LayerNormalization"] + ["Identity"] * (not shift), depth=37)


def test_normalization_over_another_axis_is_not_fused():
    text = """agraph (float[3,5,37] x) => (float[3,5,37] y) { m = ReduceMean(x, axes) d = Sub(x, m) q = Mul(d, d)
        v = ReduceMean(q, axes) e = Add(v, eps) r = Sqrt(e) n = Div(d, r) y = Mul(n, gamma) }"""
    proto = model(text, axes=np.array([1]), eps=np.array(1e-5, np.float32), gamma=draw(37))
    executor, x = Executor(proto), draw(3, 5, 37)
    np.testing.assert_allclose(executor.run(None, {"x": x})[0], executor.run(["y"], {"x": x})[0], rtol=0, atol=20 * EPS)
    assert "LayerNormalization" not in step_names(executor, {"x": x})


ACTIVATIONS = ["Sqrt(x)", "Reciprocal(x)", "Abs(x)", "Neg(x)", "Floor(x)", "Pow(x, two)", "Pow(x, three)", "Elu<alpha = 0.7>(x)",
          "Selu(x)", "Mish(x)", "Softplus(x)", "Log(x)"]  # fmt: skip


@pytest.mark.parametrize("step", ACTIVATIONS)
def test_activations_alone(step):
    proto = model(f"agraph (float[3,50] x) => (float[3,50] y) {{ y = {step} }}", two=np.float32(2), three=np.int64(3))
    x = draw(3, 50)
    x = np.abs(x) if step.startswith(("Sqrt", "Log")) else x
    agrees(proto, {"x": x}, re.split("[(<]", step)[0], depth=4)
    special = np.array([[np.inf, -np.inf, np.nan, 0.0, -0.0] * 10] * 3, np.float32)
    executor = Executor(proto)
    np.testing.assert_array_equal(executor.run(None, {"x": special})[0], executor.run(["y"], {"x": special})[0])


@pytest.mark.parametrize("shape", [(2, 24, 9, 7), (3, 24, 300)])
@pytest.mark.parametrize("step", ["InstanceNormalization", "GroupNormalization<num_groups = 6>", "BatchNormalization"])
def test_normalization_per_channel(step, shape):
    more = ", m, v" if step.startswith("Batch") else ""
    sizes = ",".join(map(str, shape))
    text = f"agraph (float[{sizes}] x) => (float[{sizes}] y) {{ u = Relu(x) y = {step}(u, s, b{more}) }}"
    proto = model(text, s=draw(24), b=draw(24), m=draw(24), v=np.abs(draw(24)) + np.float32(0.1))
    agrees(proto, {"x": draw(*shape) * 3 + 7}, "Relu", re.split("[(<]", step)[0], depth=100)
    if len(shape) == 4:
        x = draw(shape[0], 9, 7, 24).transpose(0, 3, 1, 2)  # channels last
        agrees(proto, {"x": x}, "Relu", re.split("[(<]", step)[0], depth=100)


def test_mean_over_rows():
    text = "agraph (float[3,5,37] x) => (float[3,5,1] y) { y = ReduceMean(x, axes) }"
    agrees(model(text, axes=np.array([-1])), {"x": draw(3, 5, 37)}, "ReduceMean", depth=37)


@pytest.mark.parametrize("step", ["GlobalAveragePool(x)", "ReduceMean(x, axes)"])
def test_mean_over_many_pixels(step):
    proto = model(f"agraph (float[1,5,150,140] x) => (float[1,5,1,1] y) {{ y = {step} }}", axes=np.array([2, 3]))
    x = draw(1, 5, 150, 140) + 1000
    executor = Executor(proto)
    exact = x.astype(np.float64).mean((2, 3), keepdims=True)
    for _ in range(2):
        assert np.abs(executor.run(None, {"x": x})[0] - exact).max() <= 8 * EPS * 1000
    assert all_compiled(executor, {"x": x})


def test_batch_normalization_of_rows():
    proto = model("agraph (float[9,33] x) => (float[9,33] y) { u = Relu(x) y = BatchNormalization(u, s, b, m, v) }",
                  s=draw(33), b=draw(33), m=draw(33), v=np.abs(draw(33)) + np.float32(0.1))  # fmt: skip
    agrees(proto, {"x": draw(9, 33)}, "Relu", "BatchNormalization", depth=4)


SWISHES = {
    "Swish": "s = Sigmoid(c) y = Mul(c, s)", "Swish scaled": "k = Mul(a, c) s = Sigmoid(k) y = Mul(s, c)",
    "HardSwish": "s = HardSigmoid<alpha = 0.16666667, beta = 0.5>(c) y = Mul(c, s)",
}  # fmt: skip


@pytest.mark.parametrize("name", SWISHES)
def test_decomposed_swish_is_fused(name):
    text = f"agraph (float[2,20,5,4] x) => (float[2,18,5,4] y) {{ c = Conv(x, w) {SWISHES[name]} }}"
    agrees(model(text, w=draw(18, 20, 1, 1), a=np.float32(1.702)), {"x": draw(2, 20, 5, 4)}, f"Conv+{name.split()[0]}", depth=20)
    half = f"agraph (float16[2,18] c) => (float16[2,18] y) {{ {SWISHES[name]} }}"
    proto, x = model(half, a=np.float16(1.702)), draw(2, 18).astype(np.float16)
    executor = Executor(proto)
    wide, scale = x.astype(np.float64), np.float64(np.float16(1.702)) if name == "Swish scaled" else 1.0
    gate = np.clip(wide / 6 + 0.5, 0, 1) if name == "HardSwish" else 1 / (1 + np.exp(-scale * wide))
    # at most the gate and the product are rounded to float16, and the argument of a sigmoid, whose slope is gate x (1 - gate)
    argument_error = np.abs(scale * wide) * gate * (1 - gate) if name == "Swish scaled" else 0
    subnormal = 2.0**-25  # half of the distance between the smallest numbers
    bound = (1 + 2**-8) * 2**-11 * np.abs(wide) * (2 * gate + argument_error) + subnormal
    for _ in range(2):
        for outputs in (None, ["y"]):
            assert (np.abs(executor.run(outputs, {"c": x})[0] - wide * gate) <= bound).all()


@pytest.mark.parametrize("keep", [0, 1])
def test_decomposed_rms_normalization(keep):
    text = f"""agraph (float[3,5,37] x) => (float[3,5,37] y, float[a,b] m) {{ q = Mul(x, x) v = ReduceMean(q, axes)
        e = Add(v, eps) r = Sqrt(e) d = Div(x, r) y = Mul(d, gamma)
        n = ReduceMean<keepdims = {keep}>(x, axes) m = Flatten<axis = 2>(n) }}"""
    weights = {"axes": np.array([2]), "eps": np.array([1e-6], np.float32), "gamma": draw(37)}
    executor = Executor(model(text, **weights))
    feeds = {"x": draw(3, 5, 37)}
    for got, wanted in zip(executor.run(None, feeds), executor.run(["y", "m"], feeds), strict=True):
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=0, atol=8 * EPS)
    assert all_compiled(executor, feeds)


def test_decomposed_gelu_with_a_halved_input_is_fused():
    text = """agraph (float[3,50] x) => (float[3,50] y) { h = Mul(x, half) c = Pow(x, three) k = Mul(c, a) i = Add(x, k)
        j = Mul(i, b) t = Tanh(j) u = Add(t, one) y = Mul(h, u) }"""
    weights = {"half": 0.5, "three": 3.0, "a": 0.044715, "b": 0.7978845608, "one": 1.0}
    agrees(model(text, **{k: np.float32(v) for k, v in weights.items()}), {"x": draw(3, 50)}, "Gelu", depth=4)


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_quantization_equals_the_rule_exactly(kind):
    text = """agraph (float[1,8,40,40] x) => (float[1,8,40,40] y)
        { q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }"""
    proto = model(text, s=np.float32(0.02).reshape(()), z=np.array(7, kind))
    x = np.concatenate([np.arange(-400, 400) * np.float32(0.01), draw(12000) * 3]).astype(np.float32).reshape(1, 8, 40, 40)
    executor = Executor(proto)
    np.testing.assert_array_equal(executor.run(None, {"x": x})[0], executor.run(["y"], {"x": x})[0])


def test_log_of_the_largest_finite_numbers():
    x = np.array([3.4e38, 3.4028235e38, np.inf, -1, 0, np.nan], np.float32)
    (y,) = Executor(model("agraph (float[N] x) => (float[N] y) { y = Log(x) }")).run(None, {"x": x})
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(y, np.log(x), rtol=1e-6)


@pytest.mark.parametrize("bounds", [(np.nan, 1), (-1, np.nan)])
def test_a_nan_bound_of_clip_propagates(bounds):
    low, high = (np.array(b, np.float32) for b in bounds)
    proto = model("agraph (float[N] x) => (float[N] y) { a = Relu(x) y = Clip(a, low, high) }", low=low, high=high)
    (y,) = Executor(proto).run(None, {"x": draw(5)})
    assert np.isnan(y).all()
