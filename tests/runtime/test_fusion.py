"""Joined plans: the same results as the rules one by one, and the steps that were joined."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

from onnxbridge.runtime import Executor
from onnxbridge.runtime.memory import Pool
from onnxbridge.runtime.native import machine, presence

HEAD = '<ir_version: 10, opset_import: ["" : 26]>'
EPS = np.finfo(np.float32).eps
rng = np.random.default_rng(3)


def draw(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def model(text, **weights):
    """A model from text whose initializers are these arrays."""
    proto = parser.parse_model(HEAD + text)
    proto.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in weights.items())
    return proto


def agrees(proto, feeds, *ops, depth=1):
    """Joined and plain runs agree up to the rounding of sums of `depth` terms, judged by float64; the joined steps are `ops`."""
    executor = Executor(proto)
    plain = executor.run(executor.output_names, feeds)
    wide = Executor(proto, precision="float64").run(None, feeds)
    for _ in range(2):  # the second run gets used memory
        joined = executor.run(None, feeds)
        for a, b, exact in zip(joined, plain, wide, strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            allowed = 8 * np.sqrt(depth) * EPS * max(1.0, np.abs(exact).max(initial=0))
            np.testing.assert_allclose(a, exact, rtol=0, atol=allowed)
    assert [s.op for s in executor._compiled._joined.steps] == list(ops)
    return joined


CONVOLUTIONS = [
    # batch, channels, height, width, maps, kernel, stride, pads, dilation, groups
    (1, 3, 17, 19, 5, 3, 2, (1, 1, 1, 1), 1, 1),
    (2, 3, 23, 20, 16, 7, 2, (3, 3, 3, 3), 1, 1),
    (1, 40, 9, 7, 50, 1, 1, (0, 0, 0, 0), 1, 1),
    (2, 33, 8, 9, 17, 1, 2, (0, 0, 0, 0), 1, 1),
    (1, 20, 9, 8, 35, 3, 1, (1, 1, 1, 1), 1, 1),
    (2, 16, 7, 5, 48, 3, 1, (0, 1, 2, 0), 1, 1),
    (1, 20, 11, 8, 35, 3, 1, (2, 2, 2, 2), 2, 1),
    (1, 24, 9, 9, 36, 3, 2, (1, 0, 0, 1), 1, 4),
    (2, 21, 9, 10, 21, 5, 1, (2, 2, 2, 2), 1, 21),
    (1, 6, 9, 10, 12, 3, 2, (1, 1, 1, 1), 1, 6),
    # nothing comes out: a line or column is missing, or there is no sample
    (2, 4, 2, 5, 8, 3, 1, (0, 0, 0, 0), 1, 1),
    (2, 16, 5, 2, 16, 3, 1, (0, 0, 0, 0), 1, 1),
    (2, 9, 5, 4, 9, 5, 2, (0, 0, 0, 0), 1, 9),
    (0, 4, 5, 6, 8, 1, 1, (0, 0, 0, 0), 1, 1),
]


@pytest.mark.parametrize("case", CONVOLUTIONS)
@pytest.mark.parametrize("ending", ["Relu", "HardSwish", "none"])
def test_convolutions(case, ending):
    n, c, h, w, m, k, s, pads, d, g = case
    last = {"none": "y = Add(v, z)", "Relu": "u = Add(v, z) y = Relu(u)", "HardSwish": "u = Add(v, z) y = HardSwish(u)"}
    moves = f"strides = [{s},{s}], pads = {list(pads)}, dilations = [{d},{d}], group = {g}"
    text = f"""agraph (float[{n},{c},{h},{w}] x, float[{n},{m},a,b] z) => (float[{n},{m},a,b] y) {{
        v0 = Conv<{moves}>(x, w, b)
        v = BatchNormalization(v0, gamma, beta, mean, variance)
        {last[ending]} }}"""
    weights = {"w": draw(m, c // g, k, k), "b": draw(m), "gamma": draw(m), "beta": draw(m), "mean": draw(m)}
    proto = model(text, **weights, variance=np.abs(draw(m)) + 0.5)
    x = draw(n, c, h, w)
    reach = (k - 1) * d + 1
    out = [(size + pads[i] + pads[i + 2] - reach) // s + 1 for i, size in enumerate((h, w))]
    name = "Conv" if ending == "none" else f"Conv+{ending}"
    agrees(proto, {"x": x, "z": draw(n, m, *out)}, name, depth=c // g * k * k)


def test_a_sum_that_broadcasts_is_added_as_it_should():
    text = "agraph (float[1,20,6,6] x, float[18,1,1] z) => (float[1,18,6,6] y) { v = Conv(x, w) u = Add(v, z) y = Gelu(u) }"
    proto = model(text, w=draw(18, 20, 1, 1))
    agrees(proto, {"x": draw(1, 20, 6, 6), "z": draw(18, 1, 1)}, "Conv+Gelu", depth=20)


def test_a_chain_in_one_layout():
    text = """agraph (float[1,3,32,32] x) => (float[1,20] y) {
        a = Conv<pads = [1,1,1,1]>(x, w1) b = Relu(a) c = MaxPool<kernel_shape = [2,2], strides = [2,2]>(b)
        d = Conv<pads = [1,1,1,1]>(c, w2) e = Concat<axis = 1>(c, d) f = LRN<size = 5>(e)
        g = AveragePool<kernel_shape = [3,3], pads = [1,1,1,1], count_include_pad = 1>(f) h = GlobalAveragePool(g)
        i = Flatten(h) y = Gemm(i, w3, b3) }"""
    proto = model(text, w1=draw(18, 3, 3, 3), w2=draw(22, 18, 3, 3), w3=draw(40, 20), b3=draw(20))
    executor = Executor(proto)
    executor.run(None, {"x": draw(1, 3, 32, 32)})
    agrees(
        proto, {"x": draw(1, 3, 32, 32)}, "Conv+Relu", "MaxPool", "Concat", "LRN", "AveragePool", "GlobalAveragePool",
        *[s.op for s in executor._compiled._joined.steps[6:-1]], "Gemm", depth=18 * 9 * 40,
    )  # fmt: skip


@pytest.mark.parametrize(("rows", "depth", "columns"), [(1, 5, 3), (13, 700, 33), (3, 1600, 70), (130, 64, 48)])
@pytest.mark.parametrize("op", ["Gelu", "Tanh", "Sigmoid", "none"])
def test_products(rows, depth, columns, op):
    text = f"""agraph (float[2,{rows},{depth}] x, float[2,{rows},{columns}] z) => (float[2,{rows},{columns}] y)
        {{ a = MatMul(x, w) b = Add(k, a) c = Add(b, z) y = {op if op != "none" else "Sign"}(c) }}"""
    proto = model(text, w=draw(depth, columns) / np.float32(np.sqrt(depth)), k=draw(columns))  # sums of the size of outputs
    names = ["MatMul", "Sign"] if op == "none" else [f"MatMul+{op}"]
    agrees(proto, {"x": draw(2, rows, depth), "z": draw(2, rows, columns)}, *names, depth=depth)


def test_gelu_written_out():
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
    agrees(proto, feeds, "Transpose", "Attention", depth=depth)


@pytest.mark.parametrize("rows", [1, 2, 3, 13])
def test_all_columns_of_a_product_are_rounded_alike(rows):
    """Weights whose columns are the same give the same number in each, as in networks that are started with constants."""
    column = draw(1999, 1)
    proto = model(f"agraph (float[{rows},1999] x) => (float[{rows},41] y) {{ y = MatMul(x, w) }}", w=np.repeat(column, 41, 1))
    y = Executor(proto).run(None, {"x": draw(rows, 1999)})[0]
    np.testing.assert_array_equal(y, np.repeat(y[:, :1], 41, 1))


def test_weights_that_are_nodes():
    text = """agraph (float[2,3] x) => (float[2,2] y) {
        w = Constant<value = float[3,2] {1, 2, 3, 4, 5, 6}>() b = Constant<value_floats = [0.5, -9.0]>()
        m = MatMul(x, w) s = Add(m, b) y = Relu(s) }"""
    agrees(model(text), {"x": draw(2, 3)}, "MatMul+Relu", depth=3)


LINES = [
    ("Conv", (20, 9, 5), "pads = [2,1], strides = [2]"),
    ("Conv", (33, 33, 3), "dilations = [3], auto_pad = \"SAME_UPPER\""),
    ("Conv", (24, 2, 4), "group = 12"),
    ("Conv", (1, 16, 9), "strides = [4]"),
    ("ConvTranspose", (8, 12, 4), "strides = [2], pads = [1,1]"),
    ("ConvTranspose", (8, 3, 5), "strides = [3], group = 4, output_padding = [1]"),
]


@pytest.mark.parametrize("case", LINES)
def test_convolutions_over_lines(case):
    op, shape, attributes = case
    groups = {"group = 12": 12}.get(attributes, 4 if "group = 4" in attributes else 1)
    channels = shape[0] if op == "ConvTranspose" else shape[1] * groups
    maps = shape[0] if op == "Conv" else shape[1] * groups
    text = f"""agraph (float[2,{channels},37] x) => (float[a,b,c] y) {{
        u = {op}<{attributes}>(x, w, b0) s = Mul(u, t) y = Relu(s) }}"""
    proto = model(text, w=draw(*shape), b0=draw(maps), t=draw())
    agrees(proto, {"x": draw(2, channels, 37)}, f"{op}+Relu", depth=channels * shape[2])


TRANSPOSED = [
    # channels, maps per group, kernel, groups, attributes
    (20, 12, (2, 2), 1, "strides = [2,2]"),
    (20, 9, (4, 4), 1, "strides = [2,2], pads = [1,1,1,1]"),
    (20, 9, (3, 5), 1, "strides = [2,3], pads = [1,0,2,1], output_padding = [1,2]"),
    (12, 5, (3, 3), 2, "group = 2, pads = [1,1,0,1]"),
    (18, 1, (3, 4), 18, "group = 18, strides = [2,2], pads = [3,2,0,1]"),
    (4, 3, (1, 2), 1, "strides = [3,3]"),
    (17, 33, (6, 6), 1, 'strides = [2,2], auto_pad = "SAME_UPPER"'),
    (16, 16, (3, 3), 1, "strides = [3,2], output_shape = [16,13]"),
    (3, 16, (5, 5), 1, "strides = [1,1], pads = [2,2,2,2]"),
]


@pytest.mark.parametrize("case", TRANSPOSED)
def test_transposed_convolution(case):
    channels, maps, kernel, groups, attributes = case
    text = f"""agraph (float[2,{channels},5,6] x) => (float[a,b,c,d] y) {{
        u = ConvTranspose<{attributes}>(x, w, b0) n = BatchNormalization(u, s, t, m, v) y = Relu(n) }}"""
    total = maps * groups
    proto = model(
        text, w=draw(channels, maps, *kernel), b0=draw(total), s=draw(total), t=draw(total), m=draw(total), v=draw(total) ** 2
    )
    agrees(proto, {"x": draw(2, channels, 5, 6)}, "ConvTranspose+Relu", depth=channels * 4)


@pytest.mark.parametrize("hidden", [6, 70])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_lstm(direction, hidden):
    ways = 2 if direction == "bidirectional" else 1
    text = f"""agraph (float[5,3,7] x, float[{ways},3,{hidden}] h, float[{ways},3,{hidden}] c)
        => (float[a,b,d,e] y, float[f,g,i] hn, float[j,k,m] cn)
        {{ y, hn, cn = LSTM<hidden_size = {hidden}, direction = "{direction}">(x, w, r, b0, , h, c) }}"""
    proto = model(text, w=draw(ways, 4 * hidden, 7), r=draw(ways, 4 * hidden, hidden), b0=draw(ways, 8 * hidden))
    feeds = {"x": draw(5, 3, 7), "h": draw(ways, 3, hidden), "c": draw(ways, 3, hidden)}
    agrees(proto, feeds, "LSTM", depth=5 * hidden)


RECURRENT = {"GRU": (3, "linear_before_reset = 1"), "RNN": (1, 'activations = ["Relu"]'), "RNN tanh": (1, "layout = 0")}


@pytest.mark.parametrize("hidden", [6, 70])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layers(name, bidirectional, hidden):
    (gates, extra), ways = RECURRENT[name], 1 + bidirectional
    extra = extra.replace('["Relu"]', '["Relu", "Relu"]') if bidirectional else extra
    text = f"""agraph (float[5,3,7] x, float[{ways},3,{hidden}] h) => (float[a,b,d,e] y, float[f,g,i] hn)
        {{ y, hn = {name[:3]}<hidden_size = {hidden}, {extra}, direction = "{"bidirectional" if bidirectional else "reverse"}">
        (x, w, r, b0, , h) }}"""
    size = gates * hidden
    proto = model(text, w=draw(ways, size, 7) / 3, r=draw(ways, size, hidden) / 9, b0=draw(ways, 2 * size))
    agrees(proto, {"x": draw(5, 3, 7), "h": draw(ways, 3, hidden)}, name[:3], depth=5 * hidden)


@pytest.mark.parametrize("name", ["LSTM", *RECURRENT])
@pytest.mark.parametrize("x, h", [((5, 3, 6), (1, 3, 6)), ((5, 3, 7), (1, 1, 6)), ((5, 3, 7), (1, 2, 6)), ((5, 3, 7), (1, 3, 5))])
def test_a_recurrent_layer_takes_no_other_sizes(name, x, h):
    """Machine code would read and write beyond them."""
    gates, extra = RECURRENT.get(name, (4, "layout = 0"))
    text = f"""agraph (float[a,b,c] x, float[d,e,f] h) => (float[g,i,j,k] y)
        {{ y = {name[:4].strip()}<hidden_size = 6, {extra}>(x, w, r, , , h) }}"""
    executor = Executor(model(text, w=draw(1, gates * 6, 7), r=draw(1, gates * 6, 6)))
    assert executor.run(None, {"x": draw(5, 3, 7), "h": draw(1, 3, 6)})[0].shape == (5, 1, 3, 6)
    assert [s.native for s in executor._compiled._joined.steps] == [True]
    with pytest.raises(ValueError):
        executor.run(None, {"x": draw(*x), "h": draw(*h)})


@pytest.mark.parametrize("square", ["Pow(d, two)", "Mul(d, d)"])
@pytest.mark.parametrize("shift", [True, False])
def test_layer_normalization_written_out(square, shift):
    text = f"""agraph (float[3,5,37] x) => (float[3,5,37] y) {{ m = ReduceMean(x, axes) d = Sub(x, m) q = {square}
        v = ReduceMean(q, axes) e = Add(v, eps) r = Sqrt(e) n = Div(d, r) s = Mul(n, gamma)
        {"y = Add(s, beta)" if shift else "y = Identity(s)"} }}"""
    weights = {"axes": np.array([-1]), "two": np.array(2, np.float32), "eps": np.array(1e-5, np.float32), "gamma": draw(37)}
    weights |= {"beta": draw(37)} if shift else {}
    agrees(model(text, **weights), {"x": draw(3, 5, 37) * 4 + 2}, *["LayerNormalization"] + ["Identity"] * (not shift), depth=37)


def test_a_normalization_of_another_axis_stays_right():
    text = """agraph (float[3,5,37] x) => (float[3,5,37] y) { m = ReduceMean(x, axes) d = Sub(x, m) q = Mul(d, d)
        v = ReduceMean(q, axes) e = Add(v, eps) r = Sqrt(e) n = Div(d, r) y = Mul(n, gamma) }"""
    proto = model(text, axes=np.array([1]), eps=np.array(1e-5, np.float32), gamma=draw(37))
    agrees(proto, {"x": draw(3, 5, 37)}, "LayerNormalization", depth=5)


CURVES = ["Sqrt(x)", "Reciprocal(x)", "Abs(x)", "Neg(x)", "Floor(x)", "Pow(x, two)", "Pow(x, three)", "Elu<alpha = 0.7>(x)",
          "Selu(x)", "Mish(x)", "Softplus(x)", "Log(x)"]  # fmt: skip


@pytest.mark.parametrize("step", CURVES)
def test_curves_by_themselves(step):
    proto = model(f"agraph (float[3,50] x) => (float[3,50] y) {{ y = {step} }}", two=np.float32(2), three=np.int64(3))
    x = draw(3, 50)
    x = np.abs(x) if step.startswith(("Sqrt", "Log")) else x
    agrees(proto, {"x": x}, re.split("[(<]", step)[0], depth=4)
    special = np.array([[np.inf, -np.inf, np.nan, 0.0, -0.0] * 10] * 3, np.float32)
    executor = Executor(proto)
    np.testing.assert_array_equal(executor.run(None, {"x": special})[0], executor.run(["y"], {"x": special})[0])


@pytest.mark.parametrize("shape", [(2, 24, 9, 7), (3, 24, 300)])
@pytest.mark.parametrize("step", ["InstanceNormalization", "GroupNormalization<num_groups = 6>", "BatchNormalization"])
def test_norms_of_channels(step, shape):
    more = ", m, v" if step.startswith("Batch") else ""
    sizes = ",".join(map(str, shape))
    text = f"agraph (float[{sizes}] x) => (float[{sizes}] y) {{ u = Relu(x) y = {step}(u, s, b{more}) }}"
    proto = model(text, s=draw(24), b=draw(24), m=draw(24), v=np.abs(draw(24)) + np.float32(0.1))
    agrees(proto, {"x": draw(*shape) * 3 + 7}, "Relu", re.split("[(<]", step)[0], depth=100)
    if len(shape) == 4:
        x = draw(shape[0], 9, 7, 24).transpose(0, 3, 1, 2)  # channels last
        agrees(proto, {"x": x}, "Relu", re.split("[(<]", step)[0], depth=100)


@pytest.mark.parametrize("step", ["GlobalAveragePool(x)", "ReduceMean(x, axes)"])
def test_means_of_many_pixels(step):
    proto = model(f"agraph (float[1,5,150,140] x) => (float[1,5,1,1] y) {{ y = {step} }}", axes=np.array([2, 3]))
    x = draw(1, 5, 150, 140) + 1000
    executor = Executor(proto)
    exact = x.astype(np.float64).mean((2, 3), keepdims=True)
    for _ in range(2):
        assert np.abs(executor.run(None, {"x": x})[0] - exact).max() <= 8 * EPS * 1000
    assert executor._compiled._recording.quiet


def test_norms_of_rows():
    proto = model("agraph (float[9,33] x) => (float[9,33] y) { u = Relu(x) y = BatchNormalization(u, s, b, m, v) }",
                  s=draw(33), b=draw(33), m=draw(33), v=np.abs(draw(33)) + np.float32(0.1))  # fmt: skip
    agrees(proto, {"x": draw(9, 33)}, "Relu", "BatchNormalization", depth=4)


VOLUMES = [
    ((20, 8, 3, 3, 3), "pads = [1,1,1,1,1,1]", True), ((20, 8, 3, 3, 3), "pads = [1,0,1,1,1,2], strides = [2,1,2]", True),
    ((20, 8, 2, 1, 3), "dilations = [2,1,1]", True), ((16, 4, 3, 3, 3), "group = 2, pads = [2,1,1,0,1,1]", True),
    ((20, 8, 3, 3, 3), 'auto_pad = "SAME_UPPER"', False), ((20, 8, 2, 3, 3), "pads = [1,1,1,1,1,1]", False),
]


@pytest.mark.parametrize(("shape", "attributes", "native"), VOLUMES)
def test_convolutions_of_volumes(shape, attributes, native):
    text = f"""agraph (float[2,8,6,9,7] x) => (float[a,b,c,d,e] y) {{ u = Conv<{attributes}>(x, w, k)
        v = BatchNormalization(u, s, t, m, o) r = Relu(v) z = Add(r, r) p = GlobalAveragePool(z) y = Mul(z, p) }}"""
    maps = shape[0]
    weights = {name: draw(maps) for name in "kstm"} | {"w": draw(*shape), "o": np.abs(draw(maps)) + np.float32(0.1)}
    proto = model(text, **weights)
    names = ["Conv+Relu"] if native else ["Conv", "BatchNormalization+Relu"]
    agrees(proto, {"x": draw(2, 8, 6, 9, 7)}, *names, "Add", "GlobalAveragePool", "Mul", depth=30 * int(np.prod(shape[1:])))
    if native:
        executor = Executor(proto)
        executor.run(None, {"x": draw(2, 8, 6, 9, 7)})
        assert executor._compiled._recording.quiet


@pytest.mark.parametrize("shape", [(5, 20), (20,), (2, 5, 20)])
def test_a_bias_of_two_axes(shape):
    sizes = ",".join(map(str, shape))
    proto = model(f"agraph (float[{sizes}] x) => (float[...] y) {{ m = MatMul(x, w) b = Add(m, k) y = Relu(b) }}".replace(
        "[...]", "[a,b,c]" if len(shape) == 3 else "[a,b]"), w=draw(20, 7), k=draw(1, 7))  # fmt: skip
    agrees(proto, {"x": draw(*shape)}, "MatMul+Relu", depth=20)
    executor = Executor(proto)
    executor.run(None, {"x": draw(*shape)})
    assert executor._compiled._recording.quiet


SWISHES = {
    "Swish": "s = Sigmoid(c) y = Mul(c, s)", "Swish scaled": "k = Mul(a, c) s = Sigmoid(k) y = Mul(s, c)",
    "HardSwish": "s = HardSigmoid<alpha = 0.16666667, beta = 0.5>(c) y = Mul(c, s)",
}  # fmt: skip


@pytest.mark.parametrize("name", SWISHES)
def test_swish_written_out(name):
    text = f"agraph (float[2,20,5,4] x) => (float[2,18,5,4] y) {{ c = Conv(x, w) {SWISHES[name]} }}"
    agrees(model(text, w=draw(18, 20, 1, 1), a=np.float32(1.702)), {"x": draw(2, 20, 5, 4)}, f"Conv+{name.split()[0]}", depth=20)
    half = f"agraph (float16[2,18] c) => (float16[2,18] y) {{ {SWISHES[name]} }}"
    proto, x = model(half, a=np.float16(1.702)), draw(2, 18).astype(np.float16)
    executor = Executor(proto)
    for _ in range(2):
        np.testing.assert_allclose(executor.run(None, {"c": x})[0], executor.run(["y"], {"c": x})[0], rtol=2e-3, atol=1e-3)


RESIZED = [
    ('mode = "nearest", nearest_mode = "floor", coordinate_transformation_mode = "asymmetric"', "scales", [1, 1, 2, 3]),
    ('mode = "nearest", axes = [3, 2]', "sizes", [5, 11]),
    ('mode = "linear"', "scales", [1, 1, 2, 1.5]),
    ('mode = "linear", coordinate_transformation_mode = "align_corners"', "sizes", [2, 20, 4, 13]),
    ('mode = "linear", antialias = 1', "sizes", [2, 20, 4, 3]),
    ('mode = "cubic", coordinate_transformation_mode = "pytorch_half_pixel"', "sizes", [2, 20, 18, 1]),
    ('mode = "cubic", exclude_outside = 1, keep_aspect_ratio_policy = "not_larger", axes = [2, 3]', "sizes", [18, 15]),
]


@pytest.mark.parametrize(("attributes", "given", "numbers"), RESIZED)
def test_resized_pictures(attributes, given, numbers):
    inputs = "u, , s" if given == "scales" else "u, , , s"
    text = f"agraph (float[2,20,9,7] x) => (float[a,b,c,d] y) {{ u = Relu(x) y = Resize<{attributes}>({inputs}) }}"
    proto = model(text, s=np.array(numbers, np.float32 if given == "scales" else np.int64))
    for x in (draw(2, 20, 9, 7), draw(2, 9, 7, 20).transpose(0, 3, 1, 2)):
        agrees(proto, {"x": x}, "Relu", "Resize", depth=8)
    executor = Executor(proto)
    executor.run(None, {"x": x})
    assert executor._compiled._recording.quiet


def test_resizing_channels_stays_right():
    proto = model("agraph (float[2,4,3,3] x) => (float[a,b,c,d] y) { u = Relu(x) y = Resize(u, , s) }",
                  s=np.array([1, 2, 2, 2], np.float32))  # fmt: skip
    agrees(proto, {"x": draw(2, 4, 3, 3)}, "Relu", "Resize")


@pytest.mark.parametrize("keep", [0, 1])
def test_root_mean_squares(keep):
    text = f"""agraph (float[3,5,37] x) => (float[3,5,37] y, float[a,b] m) {{ q = Mul(x, x) v = ReduceMean(q, axes)
        e = Add(v, eps) r = Sqrt(e) d = Div(x, r) y = Mul(d, gamma)
        n = ReduceMean<keepdims = {keep}>(x, axes) m = Flatten<axis = 2>(n) }}"""
    weights = {"axes": np.array([2]), "eps": np.array([1e-6], np.float32), "gamma": draw(37)}
    executor = Executor(model(text, **weights))
    feeds = {"x": draw(3, 5, 37)}
    for got, wanted in zip(executor.run(None, feeds), executor.run(["y", "m"], feeds), strict=True):
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=0, atol=8 * EPS)
    assert all(s.native for s in executor._compiled._joined.steps)


def test_gelu_with_a_halved_input():
    text = """agraph (float[3,50] x) => (float[3,50] y) { h = Mul(x, half) c = Pow(x, three) k = Mul(c, a) i = Add(x, k)
        j = Mul(i, b) t = Tanh(j) u = Add(t, one) y = Mul(h, u) }"""
    weights = {"half": 0.5, "three": 3.0, "a": 0.044715, "b": 0.7978845608, "one": 1.0}
    agrees(model(text, **{k: np.float32(v) for k, v in weights.items()}), {"x": draw(3, 50)}, "Gelu", depth=4)


def test_shuffled_channels():
    text = """agraph (float[1,20,4,5] x) => (float[1,24,4,5] y) { a = Conv(x, w) b = Reshape(a, five)
        c = Transpose<perm = [0, 2, 1, 3, 4]>(b) y = Reshape(c, four) }"""
    shapes = {"five": np.array([1, 3, 8, 4, 5]), "four": np.array([1, 24, 4, 5])}
    agrees(model(text, w=draw(24, 20, 1, 1), **shapes), {"x": draw(1, 20, 4, 5)}, "Conv", "Shuffle", depth=20)


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_quantization_is_exactly_that_of_the_rule(kind):
    text = """agraph (float[1,8,40,40] x) => (float[1,8,40,40] y)
        { q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }"""
    proto = model(text, s=np.float32(0.02).reshape(()), z=np.array(7, kind))
    x = np.concatenate([np.arange(-400, 400) * np.float32(0.01), draw(12000) * 3]).astype(np.float32).reshape(1, 8, 40, 40)
    executor = Executor(proto)
    np.testing.assert_array_equal(executor.run(None, {"x": x})[0], executor.run(["y"], {"x": x})[0])


def test_values_that_are_not_numbers_stay():
    text = """agraph (float[1,20,4,4] x) => (float[1,20,4,4] y) { a = Conv<pads = [1,1,1,1]>(x, w) y = Relu(a) }"""
    x = draw(1, 20, 4, 4)
    x[0, 3, 0, 0] = np.nan
    (y,) = Executor(model(text, w=draw(20, 20, 3, 3))).run(None, {"x": x})
    assert np.isnan(y[:, :, :2, :2]).all()
    assert not np.isnan(y[:, :, 3, 3]).any()


def test_an_overridden_default_is_not_taken_for_a_constant():
    text = """<ir_version: 10, opset_import: ["" : 26]>
        agraph (float[2,2] x, float[2,2] w = {1, 0, 0, 1}) => (float[2,2] y) { y = MatMul(x, w) }"""
    executor, x, w = Executor(parser.parse_model(text)), draw(2, 2), draw(2, 2)
    for _ in range(2):
        np.testing.assert_allclose(executor.run(None, {"x": x})[0], x, rtol=EPS)
        np.testing.assert_allclose(executor.run(None, {"x": x, "w": w})[0], x @ w, rtol=1e-5)


def test_constants_are_worked_out_once():
    text = """agraph (float[2,2] x) => (float[2,2] y) <float[2,2] k = {1, 2, 3, 4}, bool no = {0}>
        { a = Exp(k) b = Transpose(a) c = Identity(x) d = Dropout(c, , no) y = Add(d, b) }"""
    x = draw(2, 2)
    executor = Executor(parser.parse_model(HEAD + text))
    (y,) = executor.run(None, {"x": x})
    np.testing.assert_allclose(y, x + np.exp([[1, 3], [2, 4]]).astype(np.float32), rtol=4 * EPS)
    assert [s.op for s in executor._compiled._joined.steps] == ["Add"]


def test_chance_is_not_a_constant():
    text = "agraph () => (float[64] y) { y = RandomUniformLike(k) }"
    executor = Executor(model(text, k=draw(64)))
    first, second = (executor.run(None, {})[0] for _ in range(2))
    assert (first != second).any()


def test_without_machine_code_the_results_are_the_same(monkeypatch):
    text = "agraph (float[1,20,9,9] x) => (float[1,18,9,9] y) { a = Conv<pads = [1,1,1,1]>(x, w) y = Gelu(a) }"
    proto, x = model(text, w=draw(18, 20, 3, 3)), draw(1, 20, 9, 9)
    native = Executor(proto).run(None, {"x": x})[0]
    monkeypatch.setenv("ONNXBRIDGE_NATIVE", "0")
    executor = Executor(proto)
    allowed = 8 * np.sqrt(180) * EPS * np.abs(native).max()
    np.testing.assert_allclose(executor.run(None, {"x": x})[0], native, rtol=0, atol=allowed)
    assert [s.op for s in executor._compiled._joined.steps] == ["Conv", "Gelu"]


def test_object_files_are_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("ONNXBRIDGE_CACHE", str(tmp_path))
    presence.folder.cache_clear()
    made = []

    def make():
        made.append(1)
        return b"code"

    assert [machine.kept("f", "recipe", make) for _ in range(2)] == [b"code"] * 2
    assert machine.kept("f", "another", make) == b"code"
    assert len(made) == 2
    monkeypatch.undo()
    presence.folder.cache_clear()


def test_memory_is_used_again_but_never_twice_at_once():
    pool = Pool()
    a = pool.empty((100, 100))
    where, view = a.ctypes.data, a[3:]
    assert where % 64 == 0
    del a
    b = pool.empty((100, 100))
    assert b.ctypes.data != where  # the view still looks at the first
    del view
    assert pool.empty((99, 101)).ctypes.data == where


def test_results_stay_when_the_next_run_comes():
    proto = model("agraph (float[64,64] x) => (float[64,64] y) { y = MatMul(x, w) }", w=np.eye(64, dtype=np.float32))
    executor, x = Executor(proto), draw(64, 64)
    (first,) = executor.run(None, {"x": x})
    executor.run(None, {"x": -x})
    np.testing.assert_array_equal(first, x)


def test_trees_are_walked_as_by_the_rule(monkeypatch):
    features = rng.integers(0, 6, 31).tolist()
    modes = (["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT"] * 4)[:15] + ["LEAF"] * 16
    node = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1,
        nodes_treeids=[0] * 31, nodes_nodeids=list(range(31)), nodes_featureids=features, nodes_modes=modes,
        nodes_values=draw(31).tolist(), nodes_missing_value_tracks_true=[i % 2 for i in range(31)],
        nodes_truenodeids=[2 * i + 1 if i < 15 else 0 for i in range(31)],
        nodes_falsenodeids=[2 * i + 2 if i < 15 else 0 for i in range(31)],
        target_treeids=[0] * 16, target_nodeids=list(range(15, 31)), target_ids=[0] * 16, target_weights=draw(16).tolist(),
    )  # fmt: skip
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1000, 6])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1000, 1])],
    )  # fmt: skip
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 26), helper.make_opsetid("ai.onnx.ml", 3)])
    x = draw(1000, 6)
    x[::7, 2] = np.nan
    (walked,) = Executor(proto).run(None, {"x": x})
    monkeypatch.setenv("ONNXBRIDGE_NATIVE", "0")
    np.testing.assert_array_equal(walked, Executor(proto).run(None, {"x": x})[0])
