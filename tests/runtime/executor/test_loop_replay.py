"""Recorded loop bodies give the results of ONNX Runtime, in single and in batched iterations."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import parser

from onnxbridge.errors import LimitError
from onnxbridge.hub.io.limits import Limits
from onnxbridge.runtime import Executor
from onnxbridge.runtime.executor import loop_replay
from onnxbridge.runtime.executor.kernels.run.thread_pool import Table

rng = np.random.default_rng(3)


def numbers(count):
    return ", ".join(f"{v:.4f}" for v in 0.3 * rng.standard_normal(count))


HEAD = '<ir_version: 10, opset_import: ["": 21]>'

RECURRENT = f"""{HEAD}
g (float[T, N, 6] x, float[N, 5] h0) => (float[N, 5] h, float[K, N, 5] hs, float[N, L] sums) {{
    w = Constant <value = float[6, 5] {{{numbers(30)}}}> () r = Constant <value = float[5, 5] {{{numbers(25)}}}> ()
    h, hs, sums = Scan <num_scan_inputs = 1, scan_output_axes = [0, 1], body = step (float[N, 5] before, float[N, 6] row)
        => (float[N, 5] after, float[N, 5] seen, float[N] sum) {{
            a = MatMul(row, w) b = MatMul(before, r) c = Add(a, b) after = Tanh(c) seen = Identity(after)
            axis = Constant <value_ints = [1]> () sum = ReduceSumSquare <keepdims = 0> (after, axis)
        }}> (h0, x)
}}"""

BACKWARDS = f"""{HEAD}
g (float[N, T] x, float[3] c) => (float[3] s, float[N, K] y) {{
    s, y = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_input_directions = [1], scan_output_axes = [1],
        scan_output_directions = [1], body = step (float[3] before, float[N] row) => (float[3] after, float[N] out) {{
            after = Identity(before) two = Constant <value_float = 2.0> () a = Mul(row, two) out = Relu(a)
        }}> (c, x)
}}"""

COUNTED = f"""{HEAD}
g (int64 n, float[4] x) => (float[4] y, float[K, 4] all, int64[L] indices) {{
    yes = Constant <value_int = 1> () go = Cast <to = 9> (yes)
    y, all, indices = Loop (n, go, x) <body = step (int64 i, bool on, float[4] a)
        => (bool still, float[4] b, float[4] c, int64 j) {{
            still = Identity(on) half = Constant <value_float = 0.5> () b0 = Mul(a, half) b = Add(b0, x)
            c = Identity(a) j = Identity(i)
        }}>
}}"""

PLAIN = (
    COUNTED.replace(", int64 j)", ")").replace(" j = Identity(i)", "").replace(", int64[L] indices", "").replace(", indices", "")
)

UNTIL = f"""{HEAD}
g (float[2] x, float limit) => (float[2] y, float[K, 2] all) {{
    yes = Constant <value_int = 1> () go = Cast <to = 9> (yes)
    y, all = Loop (, go, x) <body = step (int64 i, bool on, float[2] a) => (bool still, float[2] b, float[2] c) {{
        more = Constant <value_float = 1.25> () b = Mul(a, more) c = Neg(b)
        top = ReduceMax <keepdims = 0> (b) still = Less(top, limit)
    }}>
}}"""

SWAPPED = f"""{HEAD}
g (float[T, 3] x, float[3] p, float[3] q) => (float[3] u, float[3] v, float[K, 3] y) {{
    u, v, y = Scan <num_scan_inputs = 1, body = step (float[3] a, float[3] b, float[3] row)
        => (float[3] c, float[3] d, float[3] e) {{ c = Identity(b) d = Add(a, row) e = Sub(d, b) }}> (p, q, x)
}}"""

SCALARS = f"""{HEAD}
g (float[T] x, float s) => (float sum, float[K] sums) {{
    sum, sums = Scan <num_scan_inputs = 1, body = step (float a, float row)
        => (float b, float c) {{ b = Add(a, row) c = Mul(b, a) }}> (s, x)
}}"""

INNER = f"""{HEAD}
g (float[T, S, 3] x, float[3] p) => (float[3] u, float[K, 3] y) {{
    u, y = Scan <num_scan_inputs = 1, body = outer (float[3] a, float[S, 3] rows) => (float[3] c, float[3] e) {{
        c = Scan <num_scan_inputs = 1, body = inner (float[3] before, float[3] row) => (float[3] after) {{
            s = Add(before, row) after = Tanh(s) }}> (a, rows)
        e = Neg(c)
    }}> (p, x)
}}"""


def normal(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def feeds_of(case, n):
    if case == "recurrent":
        return {"x": normal(n, 2, 6), "h0": normal(2, 5)}
    if case == "backwards":
        return {"x": normal(2, n), "c": normal(3)}
    if case == "until":
        return {"x": np.array([0.5, 0.01], np.float32), "limit": np.array(1.25**n, np.float32)}
    if case == "swapped":
        return {"x": normal(n, 3), "p": normal(3), "q": normal(3)}
    if case == "scalars":
        return {"x": normal(n), "s": np.array(0.1, np.float32)}
    if case == "inner":
        return {"x": normal(n, 7, 3), "p": normal(3)}
    return {"n": np.array(n), "x": normal(4)}


CASES = {
    "recurrent": RECURRENT, "backwards": BACKWARDS, "counted": COUNTED, "plain": PLAIN, "until": UNTIL, "swapped": SWAPPED,
    "inner": INNER, "scalars": SCALARS,
}  # fmt: skip
SIZES = (12, 12, 5, 12, 1, 40, 3)
BATCHED = {"scalars", "recurrent", "backwards", "plain", "inner"}


@pytest.mark.parametrize("case", CASES)
def test_iterations_agree_with_onnxruntime(case, monkeypatch):
    model = parser.parse_model(CASES[case])
    onnx.checker.check_model(model)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    executor, counts = Executor(model), []
    run = Table.run
    monkeypatch.setattr(Table, "run", lambda table, *args: counts.extend(args[:1]) or run(table, *args))
    for n in SIZES:
        feeds = feeds_of(case, n)
        got, want = executor.run(None, feeds), session.run(None, feeds)
        for g, w in zip(got, want, strict=True):
            assert g.dtype == w.dtype
            np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6)
    assert bool(counts) == (case in BATCHED)
    if case == "plain":
        assert sum(counts) == sum(max(0, n - 3) for n in SIZES)


def test_results_are_not_overwritten_by_later_runs():
    executor = Executor(parser.parse_model(RECURRENT))
    feeds = [feeds_of("recurrent", 9) for _ in range(3)]
    first = [executor.run(None, f) for f in feeds]
    for f, before in zip(feeds, first, strict=True):
        for g, w in zip(executor.run(None, f), before, strict=True):
            np.testing.assert_array_equal(g, w)


def test_batched_iterations_respect_the_limits():
    model = parser.parse_model(PLAIN)
    x = normal(4)
    assert Executor(model, limits=Limits(loop_iterations=50)).run(None, {"n": np.array(50), "x": x})[1].shape == (50, 4)
    with pytest.raises(LimitError, match="50 loop iterations"):
        Executor(model, limits=Limits(loop_iterations=50)).run(None, {"n": np.array(51), "x": x})
    with pytest.raises(LimitError, match="bytes"):
        Executor(model, limits=Limits(tensor_bytes=1 << 12)).run(None, {"n": np.array(1 << 40), "x": x})


def test_iterations_of_changing_sizes_run_step_by_step():
    text = f"""{HEAD}
    g (int64 n, float[K] x) => (float[L] y) {{
        yes = Constant <value_int = 1> () go = Cast <to = 9> (yes)
        y = Loop (n, go, x) <body = step (int64 i, bool on, float[M] a) => (bool still, float[P] b) {{
            still = Identity(on) c = Neg(a) b = Concat <axis = 0> (a, c) }}>
    }}"""
    (y,) = Executor(parser.parse_model(text)).run(None, {"n": np.array(12), "x": np.ones(1, np.float32)})
    want = np.ones(1, np.float32)
    for _ in range(12):
        want = np.concatenate([want, -want])
    np.testing.assert_array_equal(y, want)
    assert loop_replay._MAX_MISSES < 12
