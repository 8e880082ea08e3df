"""The executor: sources, inputs, results, and models and inputs that it refuses."""

from __future__ import annotations

import time

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import parser

from onnxbridge.errors import ConversionError, LimitError, UsageError
from onnxbridge.hub.io.resource_limits import Limits
from onnxbridge.runtime import Executor

HEAD = '<ir_version: 10, opset_import: ["" : 26]>'
X = np.array([[1.0, -2.0], [3.0, 4.0]], np.float32)


def model(text: str) -> onnx.ModelProto:
    return parser.parse_model(HEAD + text)


CHAIN = """
agraph (float[2, 2] x) => (float[2, 2] y)
<float[2, 2] w = {1, 2, 3, 4}>
{
    a = MatMul(x, w)
    b = Relu(a)
    unused = Exp(a)
    y = Add(b, w)
}
"""


def test_runs_protos_ir_models_and_files(tmp_path):
    proto = model(CHAIN)
    onnx.save(proto, tmp_path / "m.onnx")
    w = np.array([[1, 2], [3, 4]], np.float32)
    expected = np.maximum(X @ w, 0) + w
    for source in (proto, ir.from_proto(proto), tmp_path / "m.onnx", str(tmp_path / "m.onnx")):
        executor = Executor(source)
        assert (executor.input_names, executor.output_names) == (["x"], ["y"])
        (y,) = executor.run(None, {"x": X})
        assert y.dtype == np.float32
        np.testing.assert_array_equal(y, expected)


def test_returns_intermediate_values_inputs_and_weights_by_name():
    a, w, y, x = Executor(model(CHAIN)).run(["a", "w", "y", "x"], {"x": X})
    np.testing.assert_array_equal(a, X @ w)
    np.testing.assert_array_equal(y, np.maximum(a, 0) + w)
    np.testing.assert_array_equal(x, X)


def test_runs_only_what_the_named_values_need():
    """The Reshape fails if it runs."""
    executor = Executor(model("agraph (float[2,2] x) => (float[n] y) <int64[1] s = {3}> { a = Neg(x)  y = Reshape(a, s) }"))
    np.testing.assert_array_equal(executor.run(["a"], {"x": X})[0], -X)
    with pytest.raises(ValueError, match="reshape") as caught:
        executor.run(None, {"x": X})
    assert "Reshape" in "".join(caught.value.__notes__)


def test_frees_values_after_their_last_use():
    big = np.ones(1 << 22, np.float32)
    few = Limits(tensor_bytes=2 * big.nbytes, total_bytes=int(2.5 * big.nbytes))
    text = "agraph (float[n] x) => (float[n] y) { a = Neg(x)  b = Neg(a)  c = Neg(b)  y = Neg(c) }"
    executor = Executor(model(text), limits=few)
    np.testing.assert_array_equal(executor.run(None, {"x": big})[0], big)
    with pytest.raises(LimitError, match="bytes"):
        executor.run(["a", "b", "c", "y"], {"x": big})


def test_strings_of_inputs_constants_and_initializers_are_equal():
    text = """agraph (string[2] x) => (string[2] y, bool[2] same)
    <string[2] k = {"a", "b"}> { c = Constant <value_strings = ["c", "d"]> ()  t = StringConcat(x, k)
      y = StringConcat(t, c)  same = Equal(x, k) }"""
    y, same = Executor(model(text)).run(None, {"x": np.array(["ü", "b"])})
    assert y.tolist() == ["üac", "bbd"]
    assert same.tolist() == [False, True]


def test_results_do_not_alias_inputs_or_weights():
    text = """agraph (float[2,2] x) => (float[2,2] a, float[2,2] b, float[2,2] c, float[2,2] w)
    <float[2,2] k = {1, 2, 3, 4}, int64[2] s = {2, 2}>
    { a = Identity(x)  b = Transpose(x)  c = Expand(x, s)  w = Identity(k) }"""
    executor, x = Executor(model(text)), X.copy()
    for result in executor.run(None, {"x": x}):
        result[:] = 7
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(executor.run(["w"], {"x": x})[0], [[1, 2], [3, 4]])


def test_scalar_results_have_the_declared_type():
    text = "agraph (float16 x, bfloat16 z) => (float16 y, bfloat16 w) { y = Sqrt(x)  w = Exp(z) }"
    y, w = Executor(model(text)).run(None, {"x": np.array(2, np.float16), "z": np.array(1, ml_dtypes.bfloat16)})
    assert (y.dtype, y.shape, w.dtype, w.shape) == (np.float16, (), ml_dtypes.bfloat16, ())


@pytest.mark.parametrize("kind", ["float", "float16", "bfloat16"])
def test_float64_mode_computes_everything_in_float64(kind):
    text = f"""
    agraph ({kind}[2, 2] x) => ({kind}[2, 2] y, int64[2] s)
    {{
        c = Constant <value = float {{0.1}}> ()
        k = CastLike (c, x)
        m = Mul (x, k)
        h = Cast <to = 10> (m)
        e = Exp (h)
        n = ReduceSum <keepdims = 1> (e)
        d = Div (e, n)
        y = CastLike (d, x)
        s = Shape (y)
    }}
    """
    x = X.astype(np.float64) / 3
    y, s = Executor(model(text), precision="float64").run(None, {"x": x})
    e = np.exp(x * np.float64(np.float32(0.1)))
    assert y.dtype == np.float64
    np.testing.assert_allclose(y, e / e.sum(), rtol=1e-15)
    assert s.dtype == np.int64


def test_float64_mode_casts_bits_of_the_declared_type():
    text = "agraph (float[2, 2] x) => (float[2, 2] y, int32[2, 2] i) { i = BitCast <to = 6> (x)  y = BitCast <to = 1> (i) }"
    y, i = Executor(model(text), precision="float64").run(None, {"x": X})
    np.testing.assert_array_equal(i, X.view(np.int32))
    np.testing.assert_array_equal(y, X.astype(np.float64), strict=True)


def test_float64_mode_is_the_limit_of_float32():
    rng = np.random.default_rng(0)
    w = rng.standard_normal((8, 3, 3, 3)).astype(np.float32)
    text = """agraph (float[1,3,9,9] x, float[8,3,3,3] w) => (float[1,8,1,1] y)
    { c = Conv(x, w) g = Gelu(c) y = GlobalAveragePool(g) }"""
    x = rng.standard_normal((1, 3, 9, 9)).astype(np.float32)
    single = Executor(model(text)).run(None, {"x": x, "w": w})[0]
    double = Executor(model(text), precision="float64").run(None, {"x": x, "w": w})[0]
    assert (single.dtype, double.dtype) == (np.float32, np.float64)
    error = np.abs(single - double).max()
    assert 0 < error < 27 * np.finfo(np.float32).eps * np.abs(w).max() * np.abs(x).max() * 8


def test_branches_and_loops_see_outer_values():
    text = """
    agraph (float[2,2] x, bool c, int64 n) => (float[2,2] y, float[k,2,2] trace)
    {
        two = Constant <value_float = 2.0> ()
        start = If (c) <
            then_branch = yes () => (float[2,2] t) { t = Mul (x, two) },
            else_branch = no () => (float[2,2] f) {
                f = If (c) <then_branch = a () => (float[2,2] p) { p = Neg (x) },
                            else_branch = b () => (float[2,2] q) { q = Add (x, two) }>
            }
        >
        y, trace = Loop (n, , start) <body = step (int64 i, bool go, float[2,2] s)
                                             => (bool keep, float[2,2] next, float[2,2] seen) {
            keep = Identity (go)
            next = Add (s, two)
            seen = Sub (next, x)
        }>
    }
    """
    executor = Executor(model(text))
    y, trace = executor.run(None, {"x": X, "c": np.array(True), "n": np.array(3)})
    np.testing.assert_array_equal(y, X * 2 + 6)
    np.testing.assert_array_equal(trace, np.stack([X + 2, X + 4, X + 6]))
    y, trace = executor.run(None, {"x": X, "c": np.array(False), "n": np.array(0)})
    np.testing.assert_array_equal(y, X + 2)
    assert (trace.shape, trace.dtype) == ((0, 2, 2), np.float32)
    y, trace = Executor(model(text), precision="float64").run(None, {"x": X, "c": np.array(False), "n": np.array(0)})
    assert (y.dtype, trace.dtype) == (np.float64, np.float64)


def test_calls_functions_of_the_model():
    text = """
    <ir_version: 10, opset_import: ["" : 26, "mine" : 1]>
    agraph (float[2,2] x) => (float[2,2] y) { a = mine.outer <slope = 0.5> (x)  y = mine.outer <slope = 2.0> (a) }
    <domain: "mine", opset_import: ["" : 26, "mine" : 1]>
    outer <slope> (v) => (w) { i = mine.inner (v)  w = LeakyRelu <alpha: float = @slope> (i) }
    <domain: "mine", opset_import: ["" : 26]>
    inner (v) => (w) { w = Neg (v) }
    """
    source = ir.from_proto(parser.parse_model(text))
    (y,) = Executor(source).run(None, {"x": X})

    def leaky(v, slope):
        return np.where(v < 0, slope * v, v)

    np.testing.assert_array_equal(y, leaky(-leaky(-X, 0.5), 2.0))
    assert len(source.functions) == 2  # the source model is unchanged


def test_reports_every_missing_operator_at_once():
    text = """<ir_version: 10, opset_import: ["" : 26, "theirs" : 1]>
    agraph (float[2,2] x) => (float[2,2] y) { a = theirs.One(x)  b = theirs.Two(a)  c = theirs.One(b)  y = Relu(c) }"""
    with pytest.raises(ConversionError) as caught:
        Executor(parser.parse_model(text))
    assert [(p.op, len(p.locations)) for p in caught.value.problems] == [("theirs::One", 2), ("theirs::Two", 1)]


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({}, "'x' is missing"),
        ({"x": X, "z": X}, "no input named 'z'"),
        ({"x": X.astype(np.float64)}, "is float64, the model declares float32"),
        ({"x": X[:1]}, r"has shape \[1, 2\], the model declares \[2, 2\]"),
        ({"x": X[0]}, r"has shape \[2\]"),
    ],
)
def test_refuses_inputs_that_do_not_match_the_declaration(feeds, message):
    with pytest.raises(UsageError, match=message):
        Executor(model(CHAIN)).run(None, feeds)


def test_refuses_an_unknown_name():
    with pytest.raises(UsageError, match="no value named 'nothing'"):
        Executor(model(CHAIN)).run(["nothing"], {"x": X})


HUGE = 1 << 36
HUGE_RESULTS = {
    "ConstantOfShape": f"<int64[1] n = {{{HUGE}}}> {{ y = ConstantOfShape(n) }}",
    "Expand": f"<int64[2] n = {{{HUGE}, 2}}> {{ y = Expand(one, n) }}",
    "Tile": f"<int64[2] n = {{{HUGE}, 1}}> {{ y = Tile(one, n) }}",
    "Range": f"<int64 a = {{0}}, int64 n = {{{HUGE}}}, int64 d = {{1}}> {{ y = Range(a, n, d) }}",
    "Pad": f"<int64[4] n = {{0, 0, {HUGE}, 0}}> {{ y = Pad(one, n) }}",
    "Pad edge": f'<int64[4] n = {{0, 0, {HUGE}, 0}}> {{ y = Pad<mode = "edge">(one, n) }}',
    "Resize": f'<int64[2] n = {{{HUGE}, 1}}> {{ y = Resize<mode = "nearest">(one, , , n) }}',
    "OneHot": f"<int64[1] i = {{0}}, int64 n = {{{HUGE}}}, float[2] v = {{0, 1}}> {{ y = OneHot(i, n, v) }}",
    "CenterCropPad": f"<int64[2] n = {{{HUGE}, 1}}> {{ y = CenterCropPad(one, n) }}",
    "RandomNormal": f"{{ y = RandomNormal<shape = [{HUGE}]>() }}",
    "HannWindow": f"<int64 n = {{{HUGE}}}> {{ y = HannWindow(n) }}",
    "Add": "<int64[2] a = {16777216, 1}, int64[2] b = {1, 16777216}> { p = Expand(one, a)  q = Expand(one, b)  y = Add(p, q) }",
    "MatMul": "<int64[2] a = {4194304, 1}, int64[2] b = {1, 4194304}> { p = Expand(one, a) q = Expand(one, b) y = MatMul(p, q) }",
    "Einsum": '<int64[1] a = {4194304}> { r = Reshape(one, o) p = Expand(r, a) y = Einsum<equation = "i,j->ij">(p, p) }',
    "AveragePool": f"{{ r = Reshape(one, four) y = AveragePool<kernel_shape = [1, 1], pads = [0, {HUGE}, 0, 0]>(r) }}",
    "ConvTranspose": f"{{ r = Reshape(one, four) y = ConvTranspose<output_padding = [0, {HUGE}]>(r, r) }}",
}


@pytest.mark.parametrize("kind", HUGE_RESULTS)
def test_a_huge_result_is_a_limit_error_immediately(kind):
    body = HUGE_RESULTS[kind]
    weights = "float[1,1] one = {1}, int64[1] o = {1}, int64[4] four = {1, 1, 1, 1}"
    body = body.replace("<", f"<{weights}, ", 1) if body.startswith("<") else f"<{weights}> {body}"
    proto = model(f"agraph () => (float[n] y) {body}")
    Executor(model("agraph (float[1, 1, 1, 1] x) => (float[1, 1, 1, 1] y) { y = ConvTranspose(x, x) }")).run(  # imports Numba
        None, {"x": np.ones((1, 1, 1, 1), np.float32)}
    )
    begin = time.process_time()
    with pytest.raises(LimitError) as caught:
        Executor(proto).run(None, {})
    assert time.process_time() - begin < 1
    message = str(caught.value)
    assert kind.split()[0] in message
    assert "bytes" in message
    assert "limit" in message
    assert "\n" not in message


LOOP = """
agraph (int64 n) => (int64 y)
<int64 zero = {0}>
{
    y = Loop (n, , zero) <body = step (int64 i, bool go, int64 s) => (bool keep, int64 next) {
        keep = Identity(go)
        next = Add(s, i)
    }>
}
"""


def test_loops_are_limited_in_iterations_and_time():
    n = np.array(1 << 62)
    with pytest.raises(LimitError, match="Loop exceeds the limit of 1000 loop iterations"):
        Executor(model(LOOP), limits=Limits(loop_iterations=1000)).run(None, {"n": n})
    begin = time.perf_counter()
    with pytest.raises(LimitError, match=r"0\.1 seconds"):
        Executor(model(LOOP), limits=Limits(seconds=0.1)).run(None, {"n": n})
    assert time.perf_counter() - begin < 2
    assert Executor(model(LOOP)).run(None, {"n": np.array(5)})[0] == 10


def test_sequences_are_limited_in_items():
    text = """
    agraph (int64 n, float[2,2] x) => (int64 y)
    {
        s = SequenceEmpty ()
        t = Loop (n, , s) <body = step (int64 i, bool go, seq(float[2,2]) q) => (bool keep, seq(float[2,2]) r) {
            keep = Identity(go)
            r = SequenceInsert(q, x)
        }>
        y = SequenceLength(t)
    }"""
    assert Executor(model(text)).run(None, {"n": np.array(9), "x": X})[0] == 9
    with pytest.raises(LimitError, match="sequence of 11 items"):
        Executor(model(text), limits=Limits(items=10)).run(None, {"n": np.array(1 << 40), "x": X})


def test_the_total_size_of_values_is_limited():
    text = "agraph (int64[1] n) => (float[a] y, float[b] z) { y = ConstantOfShape(n) z = ConstantOfShape(n) }"
    limits = Limits(tensor_bytes=1 << 23, total_bytes=1 << 23)
    with pytest.raises(LimitError, match="are in use"):
        Executor(model(text), limits=limits).run(None, {"n": np.array([1 << 20 | 1 << 19])})
