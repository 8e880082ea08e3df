"""Decomposed operators are recognized and equivalent, and similar graphs are not changed."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper, parser

import onnxbridge
from onnxbridge.hub import passes
from onnxbridge.hub.io import onnx_files
from onnxbridge.hub.ir import provenance
from onnxbridge.hub.patterns import canonicalize
from onnxbridge.runtime import Executor

HEAD = '<ir_version: 10, opset_import: ["" : 26]>'
rng = np.random.default_rng(11)


def draw(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def model(text, **weights):
    proto = parser.parse_model(HEAD + text)
    proto.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items())
    return proto


def canonical(proto, supports=lambda op_type: True):
    """The model with recognized operators, and the names of its operators."""
    hub = passes.clean(onnx_files.from_proto(proto))
    passes.infer(hub)
    canonicalize(hub, supports)
    return hub, [node.op_type for node in hub.graph]


def run(proto, feeds):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, feeds)


def becomes(proto, feeds, *ops, tolerance=2e-5, implemented=True):
    """Assert the operators of the result, and equal results in the executor and, if it implements them, ONNX Runtime."""
    wanted = run(proto, feeds)
    hub, found = canonical(proto)
    assert found == list(ops)
    made = onnx_files.to_proto(hub)
    onnx.checker.check_model(made, full_check=True)
    for got in (Executor(hub).run(None, feeds), *([run(made, feeds)] if implemented else [])):
        for a, b in zip(got, wanted, strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    return hub


def stays(proto):
    """Assert that nothing is recognized."""
    hub = passes.clean(onnx_files.from_proto(proto))
    passes.infer(hub)
    before = [node.op_type for node in hub.graph]
    canonicalize(hub)
    assert [node.op_type for node in hub.graph] == before


NUMBERS = {
    "r2": np.sqrt(2), "ir2": np.sqrt(0.5), "nir2": -np.sqrt(0.5), "one": 1, "half": 0.5, "two": 2, "three": 3, "k": 0.044715,
    "s": np.sqrt(2 / np.pi), "sk": np.sqrt(2 / np.pi) * 0.044715, "six": 6, "zero": 0, "a": 1.702, "n": -1, "sixth": 1 / 6,
    "near": 1.4, "far": 1.6, "twenty": 20.0,
}  # fmt: skip


def elementwise(text, kind="float", numpy=np.float32, **more):
    used = {k: numpy(v) for k, v in NUMBERS.items() if any(f"{b}{k}{e}" in text for b in "( " for e in ",)")}
    return model(f"agraph ({kind}[4,5] x) => ({kind}[4,5] y) {{ {text} }}", **used, **more)


GELUS = {
    "torch.onnx": "a0 = Div(x, r2) b = Erf(a0) c = Add(b, one) d = Mul(x, c) y = Mul(d, half)",
    "dynamo": "a0 = Mul(x, ir2) b = Erf(a0) c = Add(b, one) d = Mul(c, half) y = Mul(x, d)",
    "half of x": "h = Mul(half, x) a0 = Div(x, r2) b = Erf(a0) c = Add(one, b) y = Mul(c, h)",
    "halved by two": "h = Div(x, two) a0 = Div(x, r2) b = Erf(a0) c = Add(one, b) y = Mul(c, h)",
    "erfc": "h = Mul(half, x) m = Neg(x) a0 = Mul(m, ir2) b = Erf(a0) c = Sub(one, b) y = Mul(h, c)",
    "distributed": "a0 = Mul(x, ir2) b = Erf(a0) h = Mul(b, half) c = Add(h, half) y = Mul(x, c)",
}
TANHS = {
    "pow": """p = Pow(x, three) q = Mul(k, p) r = Add(x, q) t = Mul(s, r) u = Tanh(t) v = Add(one, u) w = Mul(x, v)
        y = Mul(w, half)""",
    "products": """p = Mul(x, x) p1 = Mul(x, p) q = Mul(p1, k) r = Add(q, x) t = Mul(r, s) u = Tanh(t) v = Add(u, one)
        h = Mul(half, x) y = Mul(h, v)""",
    "factored": """p = Mul(x, x) q = Mul(p, k) r = Add(one, q) t0 = Mul(x, s) t = Mul(t0, r) u = Tanh(t) v = Add(one, u)
        w = Mul(half, v) y = Mul(w, x)""",
    "two terms": """p = Pow(x, three) q = Mul(sk, p) t0 = Mul(x, s) t = Add(t0, q) u = Tanh(t) v = Add(one, u) w = Mul(x, half)
        y = Mul(w, v)""",
}
SWISHES = {
    "Swish": "b = Sigmoid(x) y = Mul(x, b)", "scaled": "c = Mul(x, a) b = Sigmoid(c) y = Mul(b, x)",
    "exponential": "m = Neg(x) e = Exp(m) d = Add(one, e) y = Div(x, d)",
}  # fmt: skip
HARD = {
    "HardSigmoid": "b = HardSigmoid<alpha = 0.16666667, beta = 0.5>(x) y = Mul(x, b)",
    "Clip": "b = Add(x, three) c = Clip(b, zero, six) d = Div(c, six) y = Mul(x, d)",
    "Clip last": "b = Add(three, x) c = Clip(b, zero, six) d = Mul(x, c) y = Div(d, six)",
    "Relu": "b = Add(x, three) c0 = Relu(b) c = Min(c0, six) d = Mul(c, sixth) y = Mul(x, d)",
}


@pytest.mark.parametrize(
    ("text", "op"),
    [*((t, "Gelu") for t in (*GELUS.values(), *TANHS.values())), *((t, "Swish") for t in SWISHES.values()),
     *((t, "HardSwish") for t in HARD.values()), ("b = Softplus(x) c = Tanh(b) y = Mul(c, x)", "Mish"),
     ("b = Greater(x, twenty) c = Softplus(x) y = Where(b, x, c)", "Softplus")],
)  # fmt: skip
def test_activations(text, op):
    x = np.linspace(-6, 6, 20, dtype=np.float32).reshape(4, 5)
    hub = becomes(elementwise(text), {"x": x}, op, implemented=op != "Swish")
    assert hub.graph[0].outputs[0].name == "y"


def test_the_tanh_form_has_its_attribute():
    for text in TANHS.values():
        hub, _ = canonical(elementwise(text))
        assert hub.graph[0].attributes["approximate"].as_string() == "tanh"


@pytest.mark.parametrize("form", ["torch.onnx", "half of x"])
def test_numbers_are_compared_in_their_dtype(form):
    assert canonical(elementwise(GELUS[form], "float16", np.float16))[1] == ["Gelu"]
    assert canonical(elementwise(GELUS[form], "double", np.float64))[1] == ["Gelu"]
    rounded = {"r2": np.float64(np.float32(np.sqrt(2)))}
    text = GELUS[form]
    single = elementwise(text.replace("r2", "r3"), "double", np.float64, r3=rounded["r2"])
    stays(single)  # in float64 the difference shows


@pytest.mark.parametrize(
    "text",
    [
        GELUS["torch.onnx"].replace("r2", "near"), GELUS["torch.onnx"].replace("half", "far"),
        GELUS["torch.onnx"].replace("Add(b, one)", "Add(b, two)"), TANHS["pow"].replace("three", "two"),
        TANHS["pow"].replace("Mul(k, p)", "Mul(sk, p)"), "b = Sigmoid(x) c = Neg(x) y = Mul(c, b)",
        HARD["Clip"].replace("six)  d", "three) d").replace("zero, six", "zero, three"),
        "b = Relu(x) c = Sigmoid(x) y = Mul(b, c)", "b = HardSigmoid(x) y = Mul(x, b)",
        "b = Greater(x, two) c = Softplus(x) y = Where(b, x, c)",
    ],
)  # fmt: skip
def test_similar_activations_are_not_changed(text):
    stays(elementwise(text))


def test_intermediate_results_with_other_uses_are_kept():
    text = GELUS["torch.onnx"]
    weights = {"r2": np.float32(np.sqrt(2)), "one": np.float32(1), "half": np.float32(0.5)}
    stays(model(f"agraph (float[4,5] x) => (float[4,5] y, float[4,5] b) {{ {text} }}", **weights))
    stays(model(f"agraph (float[4,5] x) => (float[4,5] y, float[4,5] z) {{ {text} z = Neg(c) }}", **weights))
    body = "then_branch = t () => (float[4,5] p) { p = Neg(c) }, else_branch = e () => (float[4,5] q) { q = Neg(x) }"
    stays(model(f"agraph (float[4,5] x, bool i) => (float[4,5] y, float[4,5] z) {{ {text} z = If(i) <{body}> }}", **weights))


def test_subgraphs():
    text = GELUS["torch.onnx"].replace("y =", "p =")
    weights = {"r2": np.float32(np.sqrt(2)), "one": np.float32(1), "half": np.float32(0.5)}
    body = f"then_branch = t () => (float[4,5] p) {{ {text} }}, else_branch = e () => (float[4,5] q) {{ q = Neg(x) }}"
    hub, _ = canonical(model(f"agraph (float[4,5] x, bool i) => (float[4,5] y) {{ y = If(i) <{body}> }}", **weights))
    branch = hub.graph[0].attributes["then_branch"].as_graph()
    assert [node.op_type for node in branch] == ["Gelu"]
    onnx.checker.check_model(onnx_files.to_proto(hub), full_check=True)


def test_only_supported_operators():
    hub, found = canonical(elementwise(SWISHES["Swish"]), {"Gelu"}.__contains__)
    assert found == ["Sigmoid", "Mul"]


def test_a_constant_that_adds_an_axis_does_not_match():
    text = "agraph (float x) => (float[1] y) { c = Mul(x, a) b = Sigmoid(c) y = Mul(x, b) }"
    stays(model(text, a=np.array([1.702], np.float32)))
    assert canonical(model(text.replace("[1]", ""), a=np.float32(1.702)))[1] == ["Swish"]


def test_a_parameter_does_not_match_a_number():
    hub = passes.clean(onnx_files.from_proto(elementwise(SWISHES["scaled"])))
    passes.infer(hub)
    provenance.set_state(hub.graph.initializers["a"].const_value, "parameter")
    canonicalize(hub)
    assert [node.op_type for node in hub.graph] == ["Mul", "Sigmoid", "Mul"]


INVERSE = {
    "Div": "r = Sqrt(e) n = Div(d, r)", "Reciprocal": "r = Sqrt(e) i = Reciprocal(r) n = Mul(d, i)",
    "one over": "r = Sqrt(e) i = Div(one, r) n = Mul(d, i)", "Pow": "i = Pow(e, root) n = Mul(d, i)",
}  # fmt: skip
EPSILON = {"eps": np.float32(1e-5), "one": np.float32(1), "root": np.float32(-0.5), "two": np.float32(2)}


def weighted(text, axes, **weights):
    used = {k: v for k, v in EPSILON.items() if any(f"{b}{k}{e}" in text for b in "( " for e in ",)")}
    return model(f"agraph (float[3,5,37] x) => (float[3,5,37] y) {{ {text} }}", axes=np.array(axes), **used, **weights)


@pytest.mark.parametrize("inverse", INVERSE)
@pytest.mark.parametrize("square", ["Mul(d, d)", "Pow(d, two)"])
@pytest.mark.parametrize("shift", [True, False])
def test_layer_normalization(inverse, square, shift):
    text = f"""m = ReduceMean(x, axes) d = Sub(x, m) q = {square} v = ReduceMean(q, axes) e = Add(v, eps) {INVERSE[inverse]}
        {"w = Mul(n, gamma) y = Add(w, beta)" if shift else "y = Mul(gamma, n)"}"""
    weights = {"gamma": draw(37)} | ({"beta": draw(37)} if shift else {})
    hub = becomes(weighted(text, [-1], **weights), {"x": draw(3, 5, 37) * 3 + 1}, "LayerNormalization", tolerance=1e-4)
    assert len(hub.graph[0].inputs) == 2 + shift
    assert hub.graph[0].attributes["epsilon"].as_float() == np.float32(1e-5)


@pytest.mark.parametrize("shape", [(37,), (1, 1, 37)])
def test_normalization_of_tensorflow(shape):
    text = """m = ReduceMean(x, axes) d = Sub(x, m) q = Mul(d, d) v = ReduceMean(q, axes) e = Add(v, eps) r = Sqrt(e)
        i = Reciprocal(r) f = Mul(i, gamma) a = Mul(x, f) b = Mul(m, f) c = Sub(beta, b) y = Add(a, c)"""
    proto = weighted(text, [2], gamma=draw(*shape), beta=draw(*shape))
    becomes(proto, {"x": draw(3, 5, 37) + 1}, "LayerNormalization", tolerance=1e-4)


def test_layer_normalization_over_two_axes():
    text = """m = ReduceMean(x, axes) d = Sub(x, m) q = Mul(d, d) v = ReduceMean(q, axes) e = Add(v, eps) r = Sqrt(e)
        n = Div(d, r) w = Mul(n, gamma) y = Add(w, beta)"""
    proto = weighted(text, [1, 2], gamma=draw(5, 37), beta=draw(5, 37))
    hub = becomes(proto, {"x": draw(3, 5, 37)}, "LayerNormalization", tolerance=1e-4)
    assert hub.graph[0].attributes["axis"].as_int() == -2


NORM = "m = ReduceMean(x, axes) d = Sub(x, m) q = Mul(d, d) v = ReduceMean(q, axes) e = Add(v, eps) r = Sqrt(e) n = Div(d, r)"


@pytest.mark.parametrize(
    ("text", "axes", "gamma"),
    [
        (f"{NORM} y = Mul(n, gamma)", [1], (37,)), (f"{NORM} y = Mul(n, gamma)", [0, 2], (37,)),
        (f"{NORM} y = Mul(n, gamma)", [2], (5, 37)), (f"{NORM} y = Mul(n, gamma)", [2], (5, 1)),
        (f"{NORM} y = Mul(d, gamma)", [2], (37,)), (f"{NORM} z = Mul(n, gamma) y = Add(z, v)", [2], (37,)),
        (NORM.replace("ReduceMean(q", "ReduceSum(q") + " y = Mul(n, gamma)", [2], (37,)),
    ],
)  # fmt: skip
def test_similar_normalizations_are_not_changed(text, axes, gamma):
    stays(weighted(text, axes, gamma=draw(*gamma)))


MEAN = "v = ReduceMean(q, axes) e = Add(v, eps) r = Sqrt(e)"
ROOTS = {
    "llama": f"q = Pow(x, two) {MEAN} i = Reciprocal(r) n = Mul(x, i) y = Mul(gamma, n)",
    "dynamo": f"q = Mul(x, x) {MEAN} i = Div(one, r) n = Mul(x, i) y = Mul(n, gamma)",
    "divided": f"q = Mul(x, x) {MEAN} n = Div(x, r) y = Mul(n, gamma)",
    "scaled first": f"q = Mul(x, x) {MEAN} i = Reciprocal(r) f = Mul(i, gamma) y = Mul(x, f)",
}


@pytest.mark.parametrize("form", ROOTS)
def test_root_mean_square(form):
    becomes(weighted(ROOTS[form], [-1], gamma=draw(37)), {"x": draw(3, 5, 37)}, "RMSNormalization", tolerance=1e-4)


def test_half_precision_is_normalized_in_float32_only():
    """With casts it is the operator; computed in float16 throughout it rounds differently and is not changed."""
    wide = """w = Cast<to = 1>(x) q = Mul(w, w) v = ReduceMean(q, axes) e = Add(v, eps) r = Sqrt(e) i = Reciprocal(r)
        n = Mul(w, i) h = Cast<to = 10>(n) y = Mul(gamma, h)"""
    weights = {"axes": np.array([-1]), "gamma": draw(37).astype(np.float16)}
    head = "agraph (float16[3,5,37] x) => (float16[3,5,37] y)"
    hub, found = canonical(model(f"{head} {{ {wide} }}", eps=np.float32(1e-6), **weights))
    assert found == ["RMSNormalization"]
    assert hub.graph[0].attributes["epsilon"].as_float() == np.float32(1e-6)
    stays(model(f"{head} {{ {ROOTS['divided']} }}", eps=np.float16(1e-6), **weights))


def test_group_normalization_of_torch_onnx():
    text = """agraph (float[2,6,5,4] x) => (float[2,6,5,4] y) { s = Shape(x) r = Reshape(x, rows)
        i = InstanceNormalization<epsilon = 0.001>(r, ones, zeros) b = Reshape(i, s) m = Mul(b, gamma) y = Add(m, beta) }"""
    weights = {"rows": np.array([0, 3, -1]), "ones": np.ones(3, np.float32), "zeros": np.zeros(3, np.float32)}
    weights |= {"gamma": draw(6, 1, 1), "beta": draw(6, 1, 1)}
    hub = becomes(model(text, **weights), {"x": draw(2, 6, 5, 4)}, "GroupNormalization", tolerance=1e-4)
    assert hub.graph[0].attributes["num_groups"].as_int() == 3
    stays(model(text, **(weights | {"ones": np.array([1, 2, 1], np.float32)})))


def test_instance_normalization():
    text = """agraph (float[2,6,5,4] x) => (float[2,6,5,4] y) { m = ReduceMean(x, axes) d = Sub(x, m) q = Mul(d, d)
        v = ReduceMean(q, axes) e = Add(v, eps) r = Sqrt(e) n = Div(d, r) w = Mul(n, gamma) y = Add(w, beta) }"""
    weights = {"axes": np.array([2, 3]), "eps": np.float32(1e-3), "gamma": draw(6, 1, 1), "beta": draw(1, 6, 1, 1)}
    becomes(model(text, **weights), {"x": draw(2, 6, 5, 4)}, "InstanceNormalization", tolerance=1e-4)


def attention(scores, shape="2,3,50,16", keys="2,3,16,70", values="2,3,70,33", out="2,3,50,33", tail="y = MatMul(p, v)", **more):
    masks = "".join(f", float[{','.join(map(str, v))}] {k}" for k, v in more.items() if isinstance(v, tuple))
    text = f"agraph (float[{shape}] q, float[{keys}] k, float[{values}] v{masks}) => (float[{out}] y) {{ {scores} {tail} }}"
    return model(text, **{k: v for k, v in more.items() if not isinstance(v, tuple)})


def feeds_of(q, k, v, **more):
    return {"q": draw(*q), "k": draw(*k), "v": draw(*v), **more}


FOUR = ((2, 3, 50, 16), (2, 3, 16, 70), (2, 3, 70, 33))
G = np.float32(4)


@pytest.mark.parametrize(
    "scores",
    ["m = MatMul(q, k) d = Div(m, g) p = Softmax(d)", "a = Div(q, g) m = MatMul(a, k) p = Softmax<axis = 3>(m)",
     "a = Mul(q, h) b = Mul(k, h) m = MatMul(a, b) p = Softmax(m)", "m = MatMul(q, k) p = Softmax(m)"],
)  # fmt: skip
def test_attention(scores):
    used = {k: v for k, v in (("g", G), ("h", np.float32(0.5))) if f" {k})" in scores}
    becomes(attention(scores, **used), feeds_of(*FOUR), "Transpose", "Attention", tolerance=1e-4)


def test_attention_of_rank_3_with_a_mask():
    scores = "m = MatMul(q, k) d = Div(m, g) s = Add(d, mask) p = Softmax(d1)".replace("d1", "s")
    mask = np.where(rng.random((6, 50, 70)) > 0.3, 0, -np.inf).astype(np.float32)
    proto = attention(scores, "6,50,16", "6,16,70", "6,70,33", "6,50,33", g=G, mask=mask)
    becomes(proto, feeds_of((6, 50, 16), (6, 16, 70), (6, 70, 33)), "Transpose", "Attention", tolerance=1e-4)


def test_attention_of_torch_onnx():
    """The keys are transposed before the batch axis is added."""
    scores = """t = Transpose<perm = [0,2,1]>(k) u = Reshape(t, four) a = Mul(q, h) b = Mul(u, h) m = MatMul(a, b)
        p = Softmax<axis = -1>(m)"""
    proto = attention(scores, "1,3,50,16", "3,70,16", "1,3,70,33", "1,3,50,33", h=np.float32(0.5), four=np.array([1, 3, 16, 70]))
    becomes(proto, feeds_of((1, 3, 50, 16), (3, 70, 16), (1, 3, 70, 33)), "Reshape", "Attention", tolerance=1e-4)


MASKED = "m = MatMul(q, k) d = Div(m, g) s = Add(d, mask) p = Softmax(s)"
BLIND = np.zeros((50, 70), np.float32)
BLIND[7] = -np.inf


@pytest.mark.parametrize(
    "given",
    [
        {"scores": MASKED, "mask": BLIND},
        {"scores": MASKED, "mask": (50, 70)},
        {"scores": MASKED, "mask": draw(50, 1)},
        {"scores": "m = MatMul(q, k) d = Div(m, g) p = Softmax<axis = 2>(d)"},
        {"scores": "m = MatMul(q, k) d = Mul(m, g) p = Softmax(d)", "g": np.float32(-1)},
        {"scores": "m = MatMul(q, k) d = Div(m, g) p = Softmax(d)", "keys": "3,16,70"},
        {"scores": "m = MatMul(q, k) d = Div(m, g) p = Softmax(d)", "tail": "z = MatMul(p, v) e = ReduceMax(p) y = Add(z, e)"},
    ],
)
def test_similar_attention_is_not_changed(given):
    """A mask that may mask all keys of a query, or is shorter than the keys; another axis; heads that broadcast."""
    stays(attention(**({"g": G} | given)))


def test_a_mask_of_finite_numbers():
    text = """agraph (float[2,3,50,16] q, float[2,3,16,70] k, float[2,3,70,33] v, int64[2,70] i) => (float[2,3,50,33] y) {
        c = Cast<to = 1>(i) u = Unsqueeze(c, axes) n = Sub(one, u) mask = Mul(n, low) m = MatMul(q, k) d = Div(m, g)
        s = Add(d, mask) p = Softmax(s) y = MatMul(p, v) }"""
    weights = {"axes": np.array([1, 2]), "one": np.float32(1), "low": np.finfo(np.float32).min, "g": G}
    feeds = feeds_of(*FOUR, i=rng.integers(0, 2, (2, 70)))
    ops = "Cast", "Unsqueeze", "Sub", "Mul", "Transpose", "Attention"
    becomes(model(text, **weights), feeds, *ops, tolerance=1e-4, implemented=False)  # no mask for all queries in ONNX Runtime


@pytest.mark.parametrize(
    ("first", "second"),
    [("q, k|btnh,bsnh->bnts", "bnts,bsnh->btnh"), ("k, q|aecd,abcd->acbe", "acbe,aecd->abcd"),
     ("q, k|BTNH,BSNH->BNTS", "xyzw,xwyo->oxzy")],
)  # fmt: skip
@pytest.mark.parametrize("masked", [True, False])
def test_attention_with_einsum(first, second, masked):
    """The equations of Keras's MultiHeadAttention, and any other order of axes."""
    operands, equation = first.split("|")
    out = "9,2,5,3" if second.endswith("oxzy") else "2,5,3,9"
    text = f"""agraph (float[2,5,3,8] q, float[2,7,3,8] k, float[2,7,3,9] v) => (float[{out}] y) {{
        m = Einsum<equation = "{equation}">({operands}) d = Mul(m, g) {"s = Add(d, mask)" if masked else "s = Identity(d)"}
        p = Softmax<axis = -1>(s) y = Einsum<equation = "{second}">(p, v) }}"""
    weights = {"g": np.float32(0.4)} | ({"mask": np.triu(np.full((5, 7), -1e9, np.float32), 1)} if masked else {})
    feeds = feeds_of((2, 5, 3, 8), (2, 7, 3, 8), (2, 7, 3, 9))
    becomes(model(text, **weights), feeds, *["Transpose"] * 3, "Attention", "Transpose", tolerance=1e-4)


@pytest.mark.parametrize(
    "equations",
    ["btnh,bsnh->bnts|bnts,btnh->bsnh", "btnh,bsnh->bnst|bnst,bsnh->btnh", "btnh,bsnh->tnbs|tnbs,bsnh->btnh"],
)
def test_other_einsums_are_not_changed(equations):
    first, second = equations.split("|")
    text = f"""agraph (float[2,5,3,8] q, float[2,5,3,8] k, float[2,5,3,8] v) => (float[2,5,3,8] y) {{
        m = Einsum<equation = "{first}">(q, k) p = Softmax<axis = -1>(m) y = Einsum<equation = "{second}">(p, v) }}"""
    stays(model(text))


STATISTICS = {"mean": draw(6), "var": np.abs(draw(6)) + 0.5, "gamma": draw(6), "beta": draw(6)}
FACTOR = "e = Add(var, eps) r = Sqrt(e) i = Reciprocal(r) f = Mul(i, gamma)"
BATCH_NORMS = {
    "centered": "d = Sub(x, mean) e = Add(var, eps) r = Sqrt(e) n = Div(d, r) g = Mul(n, gamma) y = Add(g, beta)",
    "tensorflow": f"{FACTOR} a = Mul(x, f) b = Mul(mean, f) c = Sub(beta, b) y = Add(a, c)",
}


def batch_normalized(text, **change):
    used = {k: v.reshape(1, 6, 1, 1) for k, v in STATISTICS.items()} | {"eps": np.float32(1e-3)} | change
    return model(f"agraph (float[2,6,5,4] x) => (float[2,6,5,4] y) {{ {text} }}", **used)


@pytest.mark.parametrize("form", BATCH_NORMS)
def test_batch_normalization_with_folded_weights(form):
    proto, x = batch_normalized(BATCH_NORMS[form]), draw(2, 6, 5, 4)
    hub = onnxbridge.convert(proto, "onnx", verify=False).hub
    (node,) = hub.graph
    assert node.op_type == "BatchNormalization"
    assert node.attributes["epsilon"].as_float() == np.float32(1e-3)
    np.testing.assert_allclose(run(onnx_files.to_proto(hub), {"x": x})[0], run(proto, {"x": x})[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("text", "change"),
    [(BATCH_NORMS["tensorflow"].replace("Mul(mean, f)", "Mul(mean, i)"), {}),
     (BATCH_NORMS["centered"], {"var": np.ones((1, 1, 5, 1), np.float32)}), (BATCH_NORMS["centered"].replace("Sqrt", "Neg"), {})],
)  # fmt: skip
def test_similar_batch_normalizations_are_not_recognized(text, change):
    hub = onnxbridge.convert(batch_normalized(text, **change), "onnx", verify=False).hub
    assert "BatchNormalization" not in [node.op_type for node in hub.graph]


PRELUS = {
    "negated slope": "u = Relu(x) b = Neg(x) c = Relu(b) v = Neg(slope) d = Mul(v, c) y = Add(u, d)",
    "negated last": "u = Relu(x) b = Neg(x) c = Relu(b) d = Mul(c, slope) e = Neg(d) y = Add(e, u)",
}


@pytest.mark.parametrize("shape", [(4, 5), (5,), (1,), (4, 1), (1, 5)])
@pytest.mark.parametrize("text", PRELUS.values(), ids=PRELUS)
def test_prelu(text, shape):
    becomes(elementwise(text, slope=draw(*shape)), {"x": draw(4, 5)}, "PRelu")


def test_prelu_with_a_constant_that_was_negated():
    negative, text = draw(5), "u = Relu(x) b = Neg(x) c = Relu(b) d = Mul(c, w) y = Add(u, d)"
    hub = becomes(elementwise(text, w=negative), {"x": draw(4, 5)}, "PRelu")
    np.testing.assert_array_equal(hub.graph[0].inputs[1].const_value.numpy(), -negative)


def test_no_prelu_of_slopes_that_extend_the_input():
    stays(model(f"agraph (float[1,5] x) => (float[4,5] y) {{ {PRELUS['negated last']} }}", slope=draw(4, 5)))
    stays(model("agraph (float[N,5] x, float[M,5] m) => (float[K,5] y) "
                "{ u = Relu(x) b = Neg(x) c = Relu(b) v = Neg(m) d = Mul(v, c) y = Add(u, d) }"))  # fmt: skip
    stays(elementwise("u = Relu(x) b = Neg(x) c = Relu(b) d = Mul(c, x) y = Add(u, d)"))
