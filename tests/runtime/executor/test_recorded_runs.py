"""Recorded runs, replayed with other inputs, give the results of the rules."""

from __future__ import annotations

import json
import threading

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from onnxbridge.runtime import Executor
from onnxbridge.runtime.executor.kernels.compile import availability
from tests.runtime.executor.fused import all_compiled

HEAD = '<ir_version: 10, opset_import: ["" : 26]>'
rng = np.random.default_rng(11)
pytestmark = pytest.mark.skipif(not availability.available(), reason="without llvmlite no run is recorded")


def draw(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def model(text, **weights):
    proto = parser.parse_model(HEAD + text)
    proto.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items())
    return proto


def same(executor, feeds, atol=2e-5):
    fused, plain = executor.run(None, feeds), executor.run(executor.output_names, feeds)
    for a, b in zip(fused, plain, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=atol)
    return fused


NET = """agraph (float[n,3,20,20] x) => (float[n,12] y, float[n,20,20,20] b) {
    a = Conv<pads = [1,1,1,1]>(x, w1) b = Relu(a) m = ReduceMean(b, axes) s = Conv(m, w2) t = HardSigmoid(s) c = Mul(b, t)
    d = GlobalAveragePool(c) shape = Shape<start = 0, end = 1>(x) whole = Concat<axis = 0>(shape, rest)
    e = Reshape(d, whole) y = Gemm(e, w3) }"""
WEIGHTS = {"w1": draw(20, 3, 3, 3), "w2": draw(20, 20, 1, 1), "w3": draw(20, 12), "axes": np.array([2, 3]),
           "rest": np.array([20])}  # fmt: skip


def test_a_recorded_run_accepts_other_values_and_shapes():
    executor = Executor(model(NET, **WEIGHTS))
    for n in (1, 1, 1, 2, 2, 2, 1, 3, 1, 1):
        same(executor, {"x": draw(n, 3, 20, 20)})
    assert all_compiled(executor, {"x": draw(1, 3, 20, 20)})


def test_inputs_of_other_strides():
    executor = Executor(model(NET, **WEIGHTS))
    for x in (draw(1, 3, 20, 20), draw(1, 20, 20, 3).transpose(0, 3, 1, 2), draw(1, 3, 40, 20)[:, :, ::2], draw(1, 3, 20, 20)):
        for _ in range(2):
            same(executor, {"x": x})


def test_results_are_not_shared_between_runs():
    executor, x = Executor(model(NET, **WEIGHTS)), draw(1, 3, 20, 20)
    first = executor.run(None, {"x": x})
    copies = [a.copy() for a in first]
    second = executor.run(None, {"x": -x})
    for a, b in zip(first, copies, strict=True):
        np.testing.assert_array_equal(a, b)
    for a in second:
        a[...] = 7
    for a, b in zip(executor.run(None, {"x": x}), copies, strict=True):
        np.testing.assert_array_equal(a, b)


def test_values_computed_from_shapes_are_not_overwritten():
    """Their values are computed once, into buffers of earlier steps, which a replay writes again."""
    text = """agraph (float[40,50] x) => (float[40,50] y) {
        a = Tanh(x) b = Sigmoid(a) c = MatMul(b, w) s = Shape(c) o = ConstantOfShape(s) p = Cos(o) q = Tanh(p)
        d = MatMul(c, w) e = Tanh(d) f = MatMul(e, w) y = Add(f, q) }"""
    executor = Executor(model(text, w=draw(50, 50)))
    for _ in range(4):
        same(executor, {"x": draw(40, 50)})


def test_python_steps_between_kernels():
    text = """agraph (float[4,30] x, int64[5] at) => (float[4,9] y, float[5,9] z) {
        a = MatMul(x, w) b = CumSum(a, one) c = Add(b, a) d = Tanh(c) g = Gather<axis = 0>(d, at)
        y = MatMul(d, v) z = MatMul(g, v) }"""
    executor = Executor(model(text, w=draw(30, 24), v=draw(24, 9), one=np.int64(1)))
    for _ in range(4):
        feeds = {"x": draw(4, 30), "at": rng.integers(0, 4, 5)}
        same(executor, feeds)
    runs = [step.runs for step in executor.explain(feeds)]
    assert {"Python", "compiled kernel"} == set(runs)


def test_data_dependent_shapes():
    text = """agraph (float[6,8] x) => (float[k,9] y) {
        p = ReduceSum<keepdims = 0>(x, axes) q = Greater(p, zero) r = Compress<axis = 0>(x, q) s = MatMul(r, w) t = Tanh(s)
        y = MatMul(t, v) }"""
    executor = Executor(model(text, w=draw(8, 8), v=draw(8, 9), zero=np.float32(0), axes=np.array([1])))
    for _ in range(6):
        same(executor, {"x": draw(6, 8)})


def test_slice_bounds_from_inputs_are_not_recorded_as_constants():
    text = """agraph (float[6,8] x, int64[1] from, int64[1] to) => (float[a,8] y) {
        m = MatMul(x, w) s = Slice(m, from, to) t = Tanh(s) y = MatMul(t, w) }"""
    executor = Executor(model(text, w=draw(8, 8)))
    for k in (0, 1, 2, 1, 3, 0):
        same(executor, {"x": draw(6, 8), "from": np.array([k]), "to": np.array([k + 2])})


def test_axes_from_inputs_are_not_recorded_as_constants():
    proto = model("""agraph (float[2,4,5,5] x, int64[2] axes) => (float[a,b,c,d] y) { u = Relu(x) y = ReduceMean(u, axes) }""")
    executor = Executor(proto)
    for axes in ([2, 3], [2, 3], [2, 3], [1, 2], [3, 2], [0, 1]):
        x = draw(2, 4, 5, 5)
        (y,) = executor.run(None, {"x": x, "axes": np.array(axes)})
        np.testing.assert_allclose(y, np.maximum(x, 0).mean(tuple(axes), keepdims=True), rtol=1e-5, atol=1e-6)


CASES = {
    "conv": ("agraph (float[2,20,19,18] x) => (float[a,b,c,d] y) { u = Conv<pads = [1,1,1,1]>(x, w) y = HardSwish(u) }",
             {"w": draw(70, 20, 3, 3)}, (2, 20, 19, 18)),
    "stride": ("agraph (float[2,20,19,18] x) => (float[a,b,c,d] y) { u = Conv<strides = [2,2]>(x, w) y = Relu(u) }",
               {"w": draw(70, 20, 3, 3)}, (2, 20, 19, 18)),
    "small": ("agraph (float[1,64,3,3] x) => (float[a,b,c,d] y) { u = Conv(x, w) y = Sigmoid(u) }", {"w": draw(200, 64, 1, 1)},
              (1, 64, 3, 3)),
    "groups": ("agraph (float[1,24,9,9] x) => (float[a,b,c,d] y) { u = Conv<group = 6>(x, w) y = Tanh(u) }",
               {"w": draw(30, 4, 3, 3)}, (1, 24, 9, 9)),
    "depthwise": ("agraph (float[1,70,9,9] x) => (float[a,b,c,d] y) { u = Conv<group = 70>(x, w) y = HardSwish(u) }",
                  {"w": draw(70, 1, 3, 3)}, (1, 70, 9, 9)),
    "concat": ("""agraph (float[2,20,19,18] x) => (float[a,b,c,d] y) { p = Conv<pads = [1,1,1,1]>(x, w) q = HardSwish(p)
               r = Conv(x, v) s = MaxPool<kernel_shape = [3,3], pads = [1,1,1,1]>(x) t = Conv<group = 20, pads = [1,1,1,1]>(s, u)
               o = Conv(s, v) a = Add(o, r) m = Conv(s, v) z = Add(m, b) y = Concat<axis = 1>(q, s, r, t, a, z) }""",
               {"w": draw(70, 20, 3, 3), "v": draw(18, 20, 1, 1), "u": draw(20, 1, 3, 3), "b": draw(19, 18)}, (2, 20, 19, 18)),
    "product": ("agraph (float[7,900] x) => (float[a,b] y) { u = MatMul(x, w) y = Gelu(u) }",
                {"w": draw(900, 130) / 30}, (7, 900)),
    "tall": ("agraph (float[300,40] x) => (float[a,b] y) { u = MatMul(x, w) s = Softmax(u) y = Add(s, u) }", {"w": draw(40, 33)},
             (300, 40)),
    "attention": ("""agraph (float[2,3,17,8] x) => (float[a,b,c,d] y) { t = Transpose<perm = [0,1,3,2]>(x) s = MatMul(x, t)
                  p = Softmax(s) u = MatMul(p, x) y = LayerNormalization(u, w) }""", {"w": draw(8)}, (2, 3, 17, 8)),
    "image": ("""agraph (float[2,3,19,18] x) => (float[a,b,c,d] y, float[e,f,g,h] z) { y = Conv<pads = [1,2,0,3]>(x, w)
                z = MaxPool<kernel_shape = [2,2]>(x) }""", {"w": draw(70, 3, 3, 3)}, (2, 3, 19, 18)),
    "pools": ("""agraph (float[1,20,19,18] x) => (float[a,b,c,d] y) { u = MaxPool<kernel_shape = [3,3]>(x)
              v = AveragePool<kernel_shape = [3,3], pads = [1,1,1,1]>(u) l = LRN<size = 5>(v)
              n = BatchNormalization(l, w, w, w, one) y = Concat<axis = 1>(n, u) }""",
              {"w": draw(20), "one": np.abs(draw(20)) + 1}, (1, 20, 19, 18)),
    "lstm": ("""agraph (float[9,2,20] x) => (float[a,b,c,d] y, float[e,f,g] h)
             { y, h = LSTM<hidden_size = 40, direction = "bidirectional">(x, w, r) }""",
             {"w": draw(2, 160, 20) / 4, "r": draw(2, 160, 40) / 6}, (9, 2, 20)),
    "gru": ("""agraph (float[9,2,20] x) => (float[a,b,c,d] y, float[e,f,g] h)
            { y, h = GRU<hidden_size = 40, linear_before_reset = 1>(x, w, r) }""",
            {"w": draw(1, 120, 20) / 4, "r": draw(1, 120, 40) / 6}, (9, 2, 20)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_work_is_split_between_threads(name, small_work_items):
    small_work_items(3)
    text, weights, shape = CASES[name]
    executor = Executor(model(text, **weights))
    for _ in range(3):
        same(executor, {"x": draw(*shape)}, atol=1e-4)
    assert any(step.pieces > 1 for step in executor.explain())


def test_one_executor_in_several_threads(small_work_items):
    small_work_items(3)
    executor = Executor(model(NET, **WEIGHTS))
    feeds = [draw(1, 3, 20, 20) for _ in range(4)]
    expected = [executor.run(None, {"x": x}) for x in feeds]
    wrong = []

    def call(k):
        for _ in range(20):
            for a, b in zip(executor.run(None, {"x": feeds[k]}), expected[k], strict=True):
                if not np.allclose(a, b, rtol=1e-5, atol=1e-6):
                    wrong.append(k)

    threads = [threading.Thread(target=call, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_a_plan_reports_fused_operators_and_their_cost():
    text = """agraph (float[n,16,20,20] x, int64[2] at) => (float[a,b,c,d] y) {
        u = Conv<pads = [1,1,1,1]>(x, w) v = BatchNormalization(u, s, s, s, one) r = Relu(v) g = Gather<axis = 1>(r, at)
        k = Shape(x) z = Slice(k, from, to) t = Cast<to = 1>(z) q = Mul(g, t) y = Tanh(q) }"""
    weights = {"w": draw(24, 16, 3, 3), "s": draw(24), "one": np.abs(draw(24)) + 1, "from": np.array([3]), "to": np.array([4])}
    steps = Executor(model(text, **weights)).explain({"x": draw(2, 16, 20, 20), "at": np.array([3, 4])})
    assert [(s.operators, s.runs) for s in steps] == [
        (("Conv", "BatchNormalization", "Relu"), "compiled kernel"), (("Gather",), "Python"), (("Mul",), "compiled kernel"),
        (("Tanh",), "compiled kernel"),
    ]  # fmt: skip
    conv = steps[0]
    assert conv.shapes == ((2, 24, 20, 20),)
    assert conv.flops == 2 * 2 * 24 * 20 * 20 * 16 * 9
    assert conv.bytes == 4 * 2 * (16 + 24) * 20 * 20
    assert "Winograd" in conv.algorithm


def test_a_plan_without_inputs_uses_random_ones():
    executor = Executor(model(NET, **WEIGHTS))
    assert executor.explain()[0].operators == ("Conv", "Relu")


def test_the_command_shows_the_plan(cli, tmp_path):
    onnx.save(model(NET, **WEIGHTS), tmp_path / "net.onnx")
    assert "step " not in cli("inspect", tmp_path / "net.onnx").out
    out = cli("inspect", tmp_path / "net.onnx", "--plan").out
    assert "step    Conv+Relu -> 2x20x20x20: compiled kernel, tiles over rows of the kernel; " in out
    found = json.loads(cli("inspect", tmp_path / "net.onnx", "--plan", "--json").out)["plan"]
    assert found[0]["operators"] == ["Conv", "Relu"]
    assert found[0]["flops"] == 2 * 2 * 20 * 20 * 20 * 27


def test_gather_and_reshape_of_strided_views():
    text = """agraph (float[2,6,12] x) => (float[a,b,c] y, float[d,e] z) {
        m = MatMul(x, w) r = Reshape(m, heads) t = Transpose<perm = [2,0,3,1,4]>(r)
        q = Gather<axis = 0>(t, zero) k = Gather<axis = 0>(t, last) s = Add(q, k) u = Transpose<perm = [0,2,1,3]>(s)
        y = Reshape(u, back) z = Flatten<axis = 2>(s) }"""
    shapes = {"heads": np.array([2, 6, 3, 2, 4]), "back": np.array([2, 6, 8])}
    executor = Executor(model(text, w=draw(12, 24), zero=np.int64(0), last=np.int64(-1), **shapes))
    for _ in range(3):
        same(executor, {"x": draw(2, 6, 12)})
    assert all_compiled(executor, {"x": draw(2, 6, 12)})


def test_an_out_of_range_index_is_refused():
    executor = Executor(model("agraph (float[2,6] x) => (float[6] y) { t = Tanh(x) y = Gather(t, k) }", k=np.int64(2)))
    with pytest.raises(IndexError):
        executor.run(None, {"x": draw(2, 6)})


def test_one_array_passed_for_two_inputs():
    executor = Executor(model("agraph (float[4,30] x, float[4,30] y) => (float[4,30] z) { t = Sub(x, y) z = Relu(t) }"))
    x = draw(4, 30)
    same(executor, {"x": x, "y": x})
    for _ in range(3):
        same(executor, {"x": draw(4, 30), "y": draw(4, 30)})
    same(executor, {"x": x, "y": x})


def test_views_of_inputs():
    text = """agraph (float[2,4,30] x) => (float[4,9] y, float[a,b] z, float[30,4] t) {
        a = Gather<axis = 0>(x, one) b = Transpose<perm = [1,0]>(a) c = Transpose<perm = [1,0]>(b) y = MatMul(c, w)
        n = NonZero(b) s = CumSum(a, zero) e = MatMul(s, w) first, second = Split<axis = 0, num_outputs = 2>(x) q = Tanh(second)
        u = MatMul(b, v) r = CumSum(u, zero) o = Sub(q, first) z = ReduceSum<keepdims = 0>(o, last) t = Identity(b) }"""
    executor = Executor(model(text, one=np.int64(1), zero=np.int64(0), last=np.array([0, 2]), w=draw(30, 9), v=draw(4, 5)))
    for _ in range(4):
        same(executor, {"x": draw(2, 4, 30)})
