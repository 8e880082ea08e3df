"""Small models that request huge results: refused immediately and before allocation, with exit code 6."""

from __future__ import annotations

import time

import numpy as np
import onnx
import pytest
from onnx import helper, parser

from onnxbridge.errors import LimitError, UnsafeFileError
from onnxbridge.hub.io.resource_limits import Limits
from onnxbridge.runtime import Executor

HEAD = '<ir_version: 10, opset_import: ["" : 26]>'
HUGE = 1 << 36
INITIALIZERS = """float[1,1] one = {1}, int64[1] o = {1}, int64[4] four = {1,1,1,1}, int64[3] three = {1,1,1},
    int64[1] m = {4194304}, int64[2] tall = {4194304, 1}, int64[2] broad = {1, 4194304}"""
PAIR = "p = Expand(one, tall) q = Expand(one, broad)"
HUGE_RESULTS = {
    "Gather": "p = Expand(one, broad) i = ConstantOfShape<value=int64[1] {0}>(m) y = Gather<axis=0>(p, i)",
    "GatherND": "p = Expand(one, broad) i = ConstantOfShape<value=int64[1] {0}>(tall) y = GatherND(p, i)",
    "Where": f"{PAIR} c = Cast<to=9>(p) y = Where(c, q, q)",
    "Max": f"{PAIR} y = Max(p, q)",
    "Sum": f"{PAIR} y = Sum(p, q)",
    "Pow": f"{PAIR} y = Pow(p, q)",
    "PRelu": f"{PAIR} y = PRelu(p, q)",
    "Less": f"{PAIR} z = Less(p, q) y = Cast<to=1>(z)",
    "Gemm": f"{PAIR} y = Gemm(p, q)",
    "MatMulInteger": f"{PAIR} a = Cast<to=2>(p) b = Cast<to=2>(q) z = MatMulInteger(a, b) y = Cast<to=1>(z)",
    "Conv": f"r = Reshape(one, four) y = Conv<pads=[0,{HUGE},0,0]>(r, r)",
    "ConvInteger": f"r = Reshape(one, four) a = Cast<to=2>(r) z = ConvInteger<pads=[0,{HUGE},0,0]>(a, a) y = Cast<to=1>(z)",
    "MaxPool": f"r = Reshape(one, four) y = MaxPool<kernel_shape=[1,1], pads=[0,{HUGE},0,0]>(r)",
    "Concat": "p = Expand(one, tall) a = Concat<axis=0>(p,p,p,p,p,p,p,p) b = Concat<axis=0>(a,a,a,a,a,a,a,a) "
    "c = Concat<axis=0>(b,b,b,b,b,b,b,b) y = Concat<axis=0>(c,c,c,c,c,c,c,c)",
    "Multinomial": f"z = Multinomial<sample_size={HUGE}>(one) y = Cast<to=1>(z)",
    "RoiAlign": f"b = Constant<value_floats=[0.,0.,1.,1.]>() s = Constant<value_ints=[1,4]>() t = Reshape(b, s) "
    f"n = Constant<value_ints=[0]>() r = Reshape(one, four) y = RoiAlign<output_height={HUGE}>(r, t, n)",
    "AffineGrid": f"t = ConstantOfShape(three) s = Constant<value_ints=[1,2,3]>() u = Expand(t, s) "
    f"z = Constant<value_ints=[1,1,{HUGE},1]>() y = AffineGrid(u, z)",
    "MaxUnpool": f"r = Reshape(one, four) i = Cast<to=7>(r) s = Constant<value_ints=[1,1,{HUGE},1]>() "
    "y = MaxUnpool<kernel_shape=[1,1]>(r, i, s)",
    "DFT": f"n = Constant<value_int={HUGE}>() r = Reshape(one, four) y = DFT(r, n)",
    "STFT": f"r = Reshape(one, three) s = Constant<value_int=1>() n = Constant<value_int={HUGE}>() y = STFT(r, s, , n)",
    "Attention": "s = Constant<value_ints=[1,1,4194304,1]>() r = Reshape(one, four) k = Expand(r, s) y = Attention(k, k, k)",
    "TfIdfVectorizer": 'y = TfIdfVectorizer<max_gram_length=1, min_gram_length=1, max_skip_count=0, mode="TF", ngram_counts=[0], '
    f"ngram_indexes=[{HUGE}], pool_int64s=[1]>(o)",
    "MaxRoiPool": "r = Reshape(one, four) b = Constant<value_floats=[0.,0.,0.,1.,1.]>() s = Constant<value_ints=[1,5]>() "
    "t = Reshape(b, s) y = MaxRoiPool<pooled_shape=[65536,65536]>(r, t)",
    "GridSample": "r = Reshape(one, four) s = Constant<value_ints=[1,16384,16384,2]>() "
    "z = ConstantOfShape<value=float16[1] {0}>(s) g = Cast<to=1>(z) y = GridSample(r, g)",
    "EyeLike": "s = Constant<value_ints=[8192,8192]>() z = ConstantOfShape<value=bool[1] {0}>(s) y = EyeLike<dtype=1>(z)",
    "Einsum": "s = Constant<value_ints=[64]>() v = Constant<value_float=1.>() e = Expand(v, s) "
    'y = Einsum<equation="a,b,c,d,e,f,g->abcdefg">(e, e, e, e, e, e, e)',
    "CenterCropPad": f"s = Constant<value_ints=[{HUGE},1]>() y = CenterCropPad(one, s)",
    "Resize": 'r = Reshape(one, four) s = Constant<value_floats=[1.,1.,100000.,100000.]>() y = Resize<mode="linear">(r, , s)',
    "a loop that doubles": "z = Constant<value_int=4611686018427387904>() y = Loop(z, , one) <body = t "
    "(int64 i, bool g, float[a,b] s) => (bool k, float[c,b] u) { k = Identity(g) u = Concat<axis=0>(s, s) }>",
    "a loop that adds dimensions": "z = Constant<value_int=4611686018427387904>() y = Loop(z, , one) <body = t "
    "(int64 i, bool g, float[a,b] s) => (bool k, float u) "
    "{ k = Identity(g) h = Constant<value_ints=[0]>() u = Unsqueeze(s, h) }>",
    "LSTM": "r = Reshape(one, three) s = Constant<value_ints=[4194304,1,1]>() x = Expand(r, s) "
    "u = Constant<value_ints=[1,65536,1]>() "
    "w = Expand(r, u) v = Constant<value_ints=[1,65536,16384]>() k = Expand(r, v) y, h, c = LSTM<hidden_size=16384>(x, w, k)",
}


def model(body: str) -> onnx.ModelProto:
    return parser.parse_model(f"{HEAD} agraph () => (float[n] y) <{INITIALIZERS}> {{ {body} }}")


@pytest.mark.parametrize("kind", HUGE_RESULTS)
def test_a_huge_result_is_refused_before_allocation(kind):
    # limits of our own, so that the result does not depend on the memory of the machine
    executor = Executor(model(HUGE_RESULTS[kind]), limits=Limits(tensor_bytes=1 << 27, total_bytes=1 << 30))
    for _ in range(2):  # the first run may have to compile loops
        begin = time.process_time()
        with pytest.raises(LimitError, match="limit") as caught:
            executor.run(None, {})
    assert caught.value.exit_code == 6
    assert time.process_time() - begin < 1


@pytest.mark.parametrize("op", ["Unsqueeze", "Expand"])
def test_dimensions_are_bounded(op):
    axes = ",".join(map(str, range(60))) if op == "Unsqueeze" else ",".join("1" * 60)
    with pytest.raises(LimitError, match="dimensions"):
        Executor(model(f"a = Constant<value_ints=[{axes}]>() y = {op}(one, a)")).run(None, {})


@pytest.mark.parametrize("pattern", ["(a+)+", "(a|aa)+", "((a*)b?)*", "(?:a{2,}b?){4,}"])
def test_an_exponential_regex_is_refused_for_long_strings(pattern):
    text = f"""{HEAD} agraph (string[n] x) => (bool[n] y) {{ y = RegexFullMatch<pattern = "{pattern}">(x) }}"""
    executor = Executor(parser.parse_model(text))
    assert executor.run(None, {"x": np.array(["aaaaaaaa", "-"])})[0].tolist() == [True, False]
    with pytest.raises(LimitError, match="exponential time"):
        executor.run(None, {"x": np.array(["a" * 40 + "-"])})


def test_a_linear_regex_accepts_long_strings():
    text = HEAD + r"""agraph (string[n] x) => (bool[n] y) { y = RegexFullMatch<pattern = "(\\d{1,3}\\.){3}\\d{1,3} .*">(x) }"""
    x = np.array(["192.168.100.200 " + "a" * 9999, "192.168.100 " + "a" * 9999])
    assert Executor(parser.parse_model(text)).run(None, {"x": x})[0].tolist() == [True, False]


def nested(depth: int) -> onnx.ModelProto:
    """Nested branches, of which the innermost uses a value of the outermost graph."""
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y0"])], "g0", [], [helper.make_tensor_value_info("y0", 1, None)])
    for i in range(1, depth):
        node = helper.make_node("If", ["c"], [f"y{i}"], then_branch=graph, else_branch=_zero(i))
        graph = helper.make_graph([node], f"g{i}", [], [helper.make_tensor_value_info(f"y{i}", 1, None)])
    graph.input.extend([helper.make_tensor_value_info("x", 1, [2]), helper.make_tensor_value_info("c", 9, [])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _zero(i: int) -> onnx.GraphProto:
    node = helper.make_node("Sub", ["x", "x"], [f"z{i}"])
    return helper.make_graph([node], f"z{i}", [], [helper.make_tensor_value_info(f"z{i}", 1, None)])


def test_deeply_nested_branches_run():
    x = np.array([1, 2], np.float32)
    (y,) = Executor(nested(20)).run(None, {"x": x, "c": np.array(True)})
    np.testing.assert_array_equal(y, -x)


def test_a_function_that_calls_itself_is_refused():
    text = """<ir_version: 10, opset_import: ["" : 21, "mine" : 1]> agraph (float[2] x) => (float[2] y) { y = mine.f(x) }
    <domain: "mine", opset_import: ["" : 21, "mine" : 1]> f (v) => (w) { w = mine.f(v) }"""
    with pytest.raises(UnsafeFileError, match="recursively"):
        Executor(parser.parse_model(text))


def exponential_calls(depth: int) -> onnx.ModelProto:
    """Functions, each of which calls the previous one twice."""
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("mine", 1)]
    functions = [helper.make_function("mine", "f0", ["v"], ["w"], [helper.make_node("Neg", ["v"], ["w"])], imports)]
    for i in range(1, depth):
        twice = [helper.make_node(f"f{i - 1}", [a], [b], domain="mine") for a, b in ("va", "aw")]
        functions.append(helper.make_function("mine", f"f{i}", ["v"], ["w"], twice, imports))
    value = helper.make_tensor_value_info
    call = helper.make_node(f"f{depth - 1}", ["x"], ["y"], domain="mine")
    graph = helper.make_graph([call], "g", [value("x", 1, [2])], [value("y", 1, [2])])
    return helper.make_model(graph, functions=functions, opset_imports=imports, ir_version=10)


def test_exponentially_nested_function_calls_are_refused():
    x = np.array([1, 2], np.float32)
    np.testing.assert_array_equal(Executor(exponential_calls(4)).run(None, {"x": x})[0], x)
    begin = time.process_time()
    with pytest.raises(LimitError, match="549755813888 nodes"):
        Executor(exponential_calls(40))
    assert time.process_time() - begin < 1


def test_scan_outputs_of_a_loop_are_limited_in_bytes_and_time():
    text = f"""{HEAD} agraph (int64 n, float[1024] x) => (float[k,1024] y) {{
        y = Loop(n, ) <body = step (int64 i, bool go) => (bool keep, float[1024] seen) {{ keep = Identity(go) seen = Neg(x) }}>
    }}"""
    feeds = {"n": np.array(1 << 60), "x": np.zeros(1024, np.float32)}
    with pytest.raises(LimitError, match="limit"):
        Executor(parser.parse_model(text), limits=Limits(tensor_bytes=1 << 22)).run(None, feeds)
    with pytest.raises(LimitError, match=r"0\.2 seconds"):
        Executor(parser.parse_model(text), limits=Limits(seconds=0.2, tensor_bytes=1 << 40)).run(None, feeds)


def test_growing_strings_are_limited_in_bytes():
    text = f"""{HEAD} agraph (int64 n, string[1] x) => (string[1] y) {{
        y = Loop(n, , x) <body = step (int64 i, bool go, string[1] s) => (bool keep, string[1] t) {{
            keep = Identity(go) t = StringConcat(s, s) }}> }}"""
    feeds = {"n": np.array(1 << 60), "x": np.array(["text"], object)}
    with pytest.raises(LimitError, match="StringConcat requests"):
        Executor(parser.parse_model(text), limits=Limits(tensor_bytes=1 << 20)).run(None, feeds)


def test_non_max_suppression_stops_at_the_time_limit():
    boxes = "b = Expand(one, s) t = Constant<value_ints=[1,1,60000]>() c = Expand(one, t) k = Constant<value_int=60000>()"
    head = f"s = Constant<value_ints=[1,60000,4]>() {boxes} z = NonMaxSuppression(b, c, k) y = Cast<to=1>(z)"
    with pytest.raises(LimitError, match=r"0\.2 seconds"):
        Executor(model(head), limits=Limits(seconds=0.2)).run(None, {})


def test_huge_strides_are_refused():
    body = "r = Reshape(one, four) s = Constant<value_ints=[1,1,2,2]>() e = Expand(r, s) "
    body += f"y = ConvTranspose<strides=[{HUGE},{HUGE}]>(e, w)"
    text = f"{HEAD} agraph () => (float[n] y) <{INITIALIZERS}, float[1,1,1,1] w = {{1}}> {{ {body} }}"
    with pytest.raises(LimitError, match="limit"):
        Executor(parser.parse_model(text)).run(None, {})


def test_ngrams_with_huge_skips_stop_at_the_time_limit():
    body = "x = ConstantOfShape<value=int64[1] {1}>(m) y = TfIdfVectorizer<max_gram_length=2, min_gram_length=2, "
    body += 'max_skip_count=4000000000, mode="TF", ngram_counts=[0,0], ngram_indexes=[0], pool_int64s=[1,1]>(x)'
    with pytest.raises(LimitError, match=r"0\.2 seconds"):
        Executor(model(body), limits=Limits(seconds=0.2)).run(None, {})


def test_lrn_with_a_size_beyond_the_channels_finishes():
    executor = Executor(model(f"r = Reshape(one, four) y = LRN<size={HUGE + 1}>(r)"))
    assert executor.run(None, {})[0].shape == (1, 1, 1, 1)


MALFORMED = {
    "Reshape": "s = Constant<value_ints=[-5]>() y = Reshape(one, s)",
    "Expand": "s = Constant<value_ints=[4294967296,4294967296]>() y = Expand(one, s)",
    "ConstantOfShape": "s = Constant<value_ints=[-1]>() y = ConstantOfShape(s)",
    "Tile": "s = Constant<value_ints=[1,-3]>() y = Tile(one, s)",
    "Split": "s = Constant<value_ints=[-1,2]>() y, z = Split(one, s)",
    "Resize": "r = Reshape(one, four) s = Constant<value_ints=[1,1,-4,4]>() y = Resize(r, , , s)",
    "Range": "a = Constant<value_int=0>() b = Constant<value_int=9>() z = Range(a, b, a) y = Cast<to=1>(z)",
    "TopK": "s = Constant<value_ints=[-1]>() y, z = TopK(one, s)",
    "MaxPool, no kernel": "r = Reshape(one, four) y = MaxPool<kernel_shape=[-1,1]>(r)",
    "MaxPool, no strides": "r = Reshape(one, four) y = MaxPool<kernel_shape=[1,1], strides=[0,1]>(r)",
    "AveragePool": "r = Reshape(one, four) y = AveragePool<kernel_shape=[1,1], dilations=[1,-1]>(r)",
    "Conv": "r = Reshape(one, four) y = Conv<strides=[-1,1]>(r, r)",
    "Gather": f"i = Constant<value_ints=[{HUGE}]>() y = Gather(one, i)",
    "ScatterND": f"i = Constant<value_ints=[{HUGE}]>() j = Reshape(i, m1) y = ScatterND(one, j, one)",
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_an_invalid_size_or_index_is_reported_immediately(kind):
    """The executor raises an error of NumPy or its own, and returns no result."""
    text = f"{HEAD} agraph () => (float[n] y) <{INITIALIZERS}, int64[2] m1 = {{1, 1}}> {{ {MALFORMED[kind]} }}"
    begin = time.process_time()
    with pytest.raises((ValueError, IndexError)):
        Executor(parser.parse_model(text)).run(None, {})
    assert time.process_time() - begin < 1
