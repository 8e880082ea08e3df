"""Verification: what passes and fails, how the tolerance is derived, and what the notes say."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxbridge.errors import LimitError, OnnxbridgeError, VerificationError
from onnxbridge.hub.builder.builder import Builder
from onnxbridge.runtime.executor.executor import Executor
from onnxbridge.runtime.verify.compare import Tolerance, compare, worst
from onnxbridge.runtime.verify.rounding.noise import epsilon
from onnxbridge.runtime.verify.rounding.simulate_precision import SimulatedPrecision
from onnxbridge.runtime.verify.rounding.tolerance import Rounding
from onnxbridge.runtime.verify.runner import Runner
from onnxbridge.runtime.verify.verification import verify_runners

FLOAT = ir.DataType.FLOAT


def network(depth=4, width=32, scale=1.0):
    """A chain of matrix products; a deeper or wider one has larger rounding errors."""
    op = Builder()
    rng = np.random.default_rng(0)
    x = h = op.input("x", FLOAT, ["N", width])
    for i in range(depth):
        weight = (rng.standard_normal((width, width)) / np.sqrt(width) * scale).astype(np.float32)
        h = op.Tanh(op.MatMul(h, op.constant(weight, f"w{i}")))
    return op.model([x], [op.output(h, "y"), op.output(op.ArgMax(h, axis=1), "best")])


def runner(model, title="executor", change=lambda name, value: value, precision=None):
    executor = Executor(model, precision=precision)

    def run(feeds):
        results = dict(zip(executor.output_names, executor.run(None, feeds), strict=True))
        return {k: change(k, np.asarray(v)) for k, v in results.items()}

    return Runner(title, run)


def test_another_order_of_summation_passes():
    model = network()
    wide = runner(model, "float64", lambda name, v: v.astype(np.float32) if v.dtype == np.float64 else v, precision="float64")
    report = verify_runners(model, runner(model), wide)
    assert report.passed and report.samples == 3 and report.seed == 0
    y = report.outputs[0]
    assert 0 < y.max_abs <= y.tolerance.atol < 1e-5 and y.tolerance.origin == "derived"
    assert {s["x"][0] for s in report.sizes} == {2, 3}
    assert "PASSED" in str(report) and report.as_dict()["passed"]


@pytest.mark.parametrize("error", [1e-4, 1e-5])
def test_small_errors_fail(error):
    model = network()
    report = verify_runners(model, runner(model), runner(model, change=lambda n, v: v + np.float32(error) if n == "y" else v))
    assert not report.passed and [o.passed for o in report.outputs] == [False, True]
    assert "FAILED" in str(report) and "FAIL y" in str(report)


def test_runs_that_find_the_sizes_are_cached():
    model = network()
    candidate, inner = runner(model), runner(model)
    seen = []

    def run(feeds):
        seen.append(id(feeds))
        return inner.run(feeds)

    report = verify_runners(model, Runner("counted", run), candidate)
    assert report.passed and report.samples == 3
    assert len(seen) == len(set(seen)) == 3


def test_rounding_of_further_samples_is_measured_within_the_budget(monkeypatch):
    model = network()
    feeds = [{"x": np.full((n, 32), 0.5, np.float32)} for n in (1, 2, 3)]
    for work, many in ((60e9, 3), (0, 1)):
        monkeypatch.setattr("onnxbridge.runtime.verify.rounding.tolerance.WORK", work)
        ran = []
        run = Executor.run
        monkeypatch.setattr(Executor, "run", lambda *given, run=run, ran=ran, **more: ran.append(0) or run(*given, **more))
        rounding = Rounding(model)
        for feed in feeds:
            rounding.measure(feed)
        monkeypatch.undo()
        assert len(ran) == 3 * many


def test_an_error_while_the_tolerance_is_derived_weakens_the_verdict(monkeypatch):
    class Failing(Executor):
        def run(self, *given, **more):
            raise KeyError("slot")

    model = network()
    report = verify_runners(model, runner(model), runner(model))
    assert report.passed and not report.weak
    monkeypatch.setattr("onnxbridge.runtime.verify.rounding.tolerance.Executor", Failing)
    report = verify_runners(model, runner(model), runner(model))
    assert report.verdict == "WEAK"
    assert "the tolerance is a default, since the executor fails with KeyError: 'slot'" in report.weak
    assert report.outputs[0].tolerance.origin.startswith("default")


def test_an_error_on_some_of_the_inputs_weakens_the_verdict(monkeypatch):
    model = network()
    feeds = [{"x": np.full((n, 32), 0.5, np.float32)} for n in (1, 2)]

    class Failing(Executor):
        def run(self, names, given, **more):
            if len(given["x"]) == 2:
                raise KeyError("slot")
            return super().run(names, given, **more)

    monkeypatch.setattr("onnxbridge.runtime.verify.rounding.tolerance.Executor", Failing)
    wrong = runner(model, change=lambda name, v: v + 1)
    report = verify_runners(model, runner(model), wrong, feeds=feeds)
    assert not report.passed
    assert any("since the executor fails with KeyError: 'slot'" in reason for reason in report.weak)


def test_the_tolerance_grows_with_what_rounding_explains():
    feeds = {"x": np.random.default_rng(1).standard_normal((3, 32)).astype(np.float32)}

    def allowed(model):
        rounding = Rounding(model)
        rounding.measure(feeds)
        return rounding.tolerances({"y": np.zeros((3, 32), np.float32)})["y"].atol

    calm, chaotic = allowed(network(4)), allowed(network(30, scale=2.0))
    assert 1e-7 < calm < 1e-5 and chaotic > 3 * calm


def attention_scores(masked, added):
    """Scores of which some are replaced by, or added to, a value that represents minus infinity."""
    op = Builder()
    x = op.input("x", FLOAT, [8, 16])
    weight = (np.random.default_rng(0).standard_normal((16, 8)) / 4).astype(np.float32)
    mask = np.triu(np.ones((8, 8), bool), 1)
    scores = op.MatMul(x, weight)
    shown = op.Add(scores, np.where(mask, masked, 0).astype(np.float32)) if added else op.Where(mask, np.float32(masked), scores)
    return op.model([x], [op.output(shown, "y")])


@pytest.mark.parametrize("masked", [-1e9, float(np.finfo(np.float32).min)])
@pytest.mark.parametrize("added", [False, True])
def test_elements_that_represent_infinity_do_not_hide_errors_in_others(masked, added):
    model = attention_scores(masked, added)
    wide = runner(model, "float64", lambda name, v: v.astype(np.float32), precision="float64")
    report = verify_runners(model, runner(model), wide)
    assert report.passed and 0 < report.outputs[0].tolerance.atol < 1e-4
    wrong = runner(model, change=lambda name, v: v + np.float32(1e-3) * (v > -100))
    assert not verify_runners(model, runner(model), wrong).passed
    assert not verify_runners(model, runner(model), runner(model, change=lambda name, v: np.where(v < -100, v / 2, v))).passed


def test_elements_masked_in_some_runs_only_are_counted():
    """Some elements are compared with their own rounded product, and masked in float64 alone where that is rounded down."""
    op = Builder()
    x, third = op.input("x", FLOAT, [64]), np.float32(1 / 3)
    given = np.random.default_rng(0).uniform(1, 2, 64).astype(np.float32)
    bounds = given * third + np.float32(np.arange(64) >= 8)
    scaled = op.Mul(x, third)
    model = op.model([x], [op.output(op.Where(op.Greater(scaled, bounds), np.float32(-1e9), scaled), "y")])
    masked = np.mean(given.astype(np.float64) * third > bounds)
    rounding = Rounding(model)
    rounding.measure({"x": given})
    allowed = rounding.tolerances({"y": given})["y"]
    assert 0 < masked <= allowed.mismatches < 1
    assert allowed.atol < 1e-5 and allowed.rtol < 1e-5


def close_scores(gap):
    """The four best of forty rows; the two best scores differ by `gap`, the others by much."""
    op = Builder()
    x = op.input("x", FLOAT, [64])
    rng = np.random.default_rng(0)
    weight = np.repeat(rng.standard_normal((64, 1)), 40, 1).astype(np.float32)
    offsets = np.append([0, -gap], -10.0 * np.arange(1, 39)).astype(np.float32)
    _, best = op.TopK(op.Add(op.MatMul(x, weight), offsets), np.array([4]), outputs=2)
    table = rng.standard_normal((40, 3)).astype(np.float32)
    return op.model([x], [op.output(op.Gather(table, best), "y")])


def test_of_two_scores_within_rounding_either_may_come_first():
    feeds = [{"x": np.random.default_rng(n).standard_normal(64).astype(np.float32)} for n in range(2)]
    near, far = close_scores(2e-6), close_scores(1e-2)
    swapped = {"change": lambda name, v: v[[1, 0, 2, 3]]}
    assert not verify_runners(far, runner(far), runner(far, **swapped), feeds=feeds).passed
    report = verify_runners(near, runner(near), runner(near, **swapped), feeds=feeds)
    assert report.verdict == "WEAK" and any("own choices" in note for note in report.outputs[0].notes)
    same = verify_runners(near, runner(near), runner(near), feeds=feeds)
    assert same.outputs[0].tolerance.mismatches == 0, "as long as they agree"
    far_off = runner(near, change=lambda name, v: v + np.float32(1))
    assert not verify_runners(near, runner(near), far_off, feeds=feeds).passed


def test_samples_beyond_the_budget_are_measured_before_they_fail(monkeypatch):
    monkeypatch.setattr("onnxbridge.runtime.verify.rounding.tolerance.WORK", 0)
    model = network(30, scale=2.0)
    rng = np.random.default_rng(0)
    feeds = [{"x": np.zeros((1, 32), np.float32)}, {"x": rng.standard_normal((64, 32)).astype(np.float32)}]
    wide = runner(model, "float64", lambda name, v: v.astype(np.float32) if name == "y" else v, precision="float64")
    rounding = Rounding(model)
    rounding.measure(feeds[0])
    assert rounding.tolerances({"y": np.zeros((1, 32), np.float32)})["y"].atol == 0, "zeros stay zeros"
    assert verify_runners(model, runner(model), wide, feeds=feeds).passed
    wrong = runner(model, change=lambda name, v: v + np.float32(1e-2) if name == "y" else v)
    assert not verify_runners(model, runner(model), wrong, feeds=feeds).passed


def test_given_tolerances_override_the_derived_one():
    model = network()
    off = runner(model, change=lambda n, v: v + np.float32(1e-3) if n == "y" else v)
    assert verify_runners(model, runner(model), off, atol=1e-2, rtol=0.0).passed
    assert verify_runners(model, runner(model), off, atol={"y": 1e-2}).passed
    assert not verify_runners(model, runner(model), off, atol={"y": 1e-5}).passed


def test_a_missing_output_and_a_crash_fail():
    model = network()
    report = verify_runners(model, runner(model), Runner("half", lambda f: {"y": runner(model).run(f)["y"]}))
    assert not report.passed and "no output 'best'" in str(report)

    def crash(feeds):
        raise RuntimeError("kernel died\nlong log")

    with pytest.raises(VerificationError, match=r"broken cannot run the model on x\[2, 32\]: RuntimeError: kernel died"):
        verify_runners(model, runner(model), Runner("broken", crash))


def test_the_budget_is_checked_before_the_frameworks_run():
    op = Builder()
    x = op.input("x", ir.DataType.INT64, [1])
    model = op.model([x], [op.output(op.ConstantOfShape(op.Add(x, 1 << 36)), "y")])

    def never(feeds):
        raise AssertionError("ran before the budget was checked")

    with pytest.raises(LimitError, match="ConstantOfShape"):
        verify_runners(model, Runner("a", never), Runner("b", never))


def one(reference, candidate, atol=1e-6, rtol=0.0, mismatches=0.0):
    return compare("y", np.asarray(reference), np.asarray(candidate), Tolerance(atol, rtol, mismatches))


def test_largest_differences():
    found = one(np.array([1.0, 100.0]), np.array([1.0, 101.0]))
    assert (found.max_abs, round(found.max_rel, 6), found.passed) == (1.0, 0.01, False)
    assert one(np.array([1.0, 100.0]), np.array([1.0, 101.0]), rtol=0.011).passed


def test_nan_and_infinity():
    both = one([1.0, np.nan, np.inf], [1.0, np.nan, np.inf])
    assert both.passed and "NaN in 1 elements of the reference" in both.notes
    assert not one([1.0, 2.0], [1.0, np.nan]).passed
    assert not one([1.0, np.inf], [1.0, -np.inf]).passed
    assert not one([1.0, np.inf], [1.0, 3e38]).passed


def test_constant_and_empty_outputs_are_noted():
    same, other = one([2.0, 2.0], [2.0, 2.0]), one([3.0, 3.0], [3.0, 3.0])
    assert worst([same, same]).weak == "it is constant (2.0)" and not worst([same, other]).weak
    assert "it is constant (2.0): agreement proves little" in worst([same, same]).notes
    assert "empty output: nothing is compared" in one(np.zeros((0, 2)), np.zeros((0, 2))).notes


def test_sizes_of_rows_of_no_iteration_may_be_unknown():
    """ONNX Runtime has 0 for sizes that a Loop does not declare."""
    for shape in ((0,), (0, 0), (0, 0, 4), (0, 3, 4)):
        assert one(np.zeros(shape), np.zeros((0, 3, 4))).passed == (shape != (0, 0))
    assert not one(np.zeros((0, 2)), np.zeros((0, 3))).passed and not one(np.zeros((1, 0)), np.zeros((1, 3))).passed


def test_a_tolerance_wider_than_the_output_is_noted():
    def notes(atol, origin="derived"):
        return worst([compare("y", np.float32([0.1, -0.4]), np.float32([0.3, 0.2]), Tolerance(atol, 0.0, origin=origin))]).notes

    assert any("wider than the output, which is 0.4 at most" in note for note in notes(1.8))
    assert not notes(0.3) and not notes(1.8, "given")


def test_a_wide_tolerance_fails_outputs_that_do_not_correlate_with_the_reference():
    tolerance = Tolerance(4.0, 0.0, 1.0, origin="derived")
    reference = np.random.default_rng(0).standard_normal(100).astype(np.float32)
    near = compare("y", reference, reference + np.float32(0.3), tolerance)
    assert near.passed and "agreement proves little" in str(worst([near]).notes)
    for other in (np.zeros_like(reference), -reference, reference[::-1].copy()):
        lost = compare("y", reference, other, tolerance)
        assert not lost.passed and lost.excess > 0 and "a constant would be as close" in str(lost.notes)


def test_a_wide_tolerance_allows_what_the_choice_among_equal_numbers_changes():
    tolerance = Tolerance(40.0, 0.0, 1.0, origin="derived", ties=1.0)
    reference = np.random.default_rng(0).integers(0, 20, 100).astype(np.float32)
    chosen = compare("classes", reference, reference[::-1].copy(), tolerance)
    assert chosen.passed and "agreement proves little" in str(worst([chosen]).notes)
    assert not compare("classes", reference, reference[::-1].copy(), replace(tolerance, ties=0.2)).passed


def test_shapes_dtypes_and_exact_outputs():
    assert not one(np.zeros(2), np.zeros((2, 1))).passed
    assert not one(np.zeros(2), np.zeros(2, np.int64)).passed
    assert "dtype float32 instead of float64" in one(np.ones(2), np.ones(2, np.float32)).notes
    assert not one(np.array([1, 2]), np.array([1, 3]), atol=0).passed
    assert one(np.array(["a", "b"]), np.array(["a", "b"])).passed and not one(np.array(["a"]), np.array(["b"])).passed
    assert not one(np.array([True, False]), np.array([True, True])).passed


def halving(times):
    """A network that halves an image, and fails or computes nothing where that is impossible."""
    op = Builder()
    x = h = op.input("x", FLOAT, ["N", 1, "H", "W"])
    for _ in range(times):
        h = op.MaxPool(h, kernel_shape=[2, 2], strides=[2, 2])
    return op.model([x], [op.output(op.ReduceMean(h, np.array([2, 3]), keepdims=0), "y")])


def test_samples_are_as_large_as_the_model_requires(recwarn):
    model = halving(5)
    report = verify_runners(model, runner(model), runner(model))
    assert report.passed and not recwarn.list
    assert [s["x"] for s in report.sizes] == [(2, 1, 32, 32), (3, 1, 64, 64), (2, 1, 32, 32)]


def test_a_reference_that_accepts_no_random_inputs_asks_for_inputs():
    def refuses(feeds):
        raise OnnxbridgeError("wants a sample rate")

    with pytest.raises(VerificationError, match=r"a cannot run the model on .*wants a sample rate; describe inputs"):
        verify_runners(network(), Runner("a", refuses), runner(network()))


def test_a_saturated_sigmoid_has_the_error_of_one_half():
    op = Builder()
    x = op.input("x", FLOAT, [8])
    model = op.model([x], [op.output(op.Unsqueeze(op.Sigmoid(op.Sub(x, 15.0)), np.array([0])), "y")])
    step = np.float32(2**-24)
    rounded = runner(model, change=lambda name, v: np.round(v / step) * step)
    assert verify_runners(model, runner(model), rounded).agrees
    assert not verify_runners(model, runner(model), runner(model, change=lambda name, v: v + np.float32(1e-5))).passed


def test_a_closed_gate_of_an_lstm_has_the_error_of_one_half():
    op = Builder()
    x = op.input("x", FLOAT, [3, 1, 2])
    bias = np.zeros((1, 16), np.float32)
    bias[0, 2:4] = -74  # Sigmoid is 7e-33, and 0 in a library that computes it as 1/2 plus a polynomial
    w, r = (np.random.default_rng(seed).normal(size=(1, 8, 2)).astype(np.float32) for seed in range(2))
    model = op.model([x], [op.output(op.LSTM(x, w, r, bias, hidden_size=2, outputs=2)[0], "y")])
    flushed = runner(model, change=lambda name, v: np.where(np.abs(v) < 1e-20, np.float32(0), v))
    assert verify_runners(model, flushed, runner(model)).agrees
    assert not verify_runners(model, flushed, runner(model, change=lambda name, v: v + np.float32(1e-5))).agrees


def test_a_window_has_the_error_of_one():
    """Its first element is 0.42 - 0.5 + 0.08: what remains of it is rounding."""
    text = """<ir_version: 10, opset_import: ["" : 21]>
    agraph (int64 n) => (float[m] y) { y = BlackmanWindow <periodic = 0> (n) }"""
    model = ir.from_proto(onnx.parser.parse_model(text))
    feeds = [{"n": np.int64(9)}]
    opposite = runner(model, change=lambda name, v: np.where(np.abs(v) < 1e-6, -v, v))
    assert verify_runners(model, runner(model), opposite, feeds=feeds).agrees
    moved = runner(model, change=lambda name, v: v + np.float32(1e-5))
    assert not verify_runners(model, runner(model), moved, feeds=feeds).agrees


def test_the_mean_of_a_sigmoid_in_a_branch_has_the_error_of_one_half():
    text = """<ir_version: 10, opset_import: ["" : 21]> agraph (float[8] x, bool some) => (float[1] y) {
        s = Constant<value = float {15.0}>() d = Sub(x, s)
        y = If(some) <then_branch = a () => (float[1] u) { p = Sigmoid(d) u = ReduceMean(p) },
                      else_branch = b () => (float[1] v) { q = Sigmoid(d) v = ReduceMax(q) }> }"""
    model = ir.serde.deserialize_model(onnx.parser.parse_model(text))
    step = np.float32(2**-24)
    rounded = runner(model, change=lambda name, v: np.round(v / step) * step)
    feeds = [{"x": np.linspace(-1, 1, 8, dtype=np.float32), "some": np.array(some)} for some in (True, False)]
    assert verify_runners(model, runner(model), rounded, feeds=feeds).agrees
    wrong = runner(model, change=lambda name, v: v + np.float32(1e-5))
    assert not verify_runners(model, runner(model), wrong, feeds=feeds).passed


def test_simulated_precision_rounds_to_neighbors_without_bias():
    simulated = SimulatedPrecision(2.0**-11)
    x = np.random.default_rng(0).standard_normal((300, 400)).astype(np.float32)
    for dtype in (np.float32, np.float64):
        y = simulated(x.astype(dtype))
        assert y.dtype == dtype and np.array_equal(y.astype(np.float16), y)
        off = (y - x) / np.abs(x)
        normal = np.abs(x) > 2.0**-14
        assert 2.0**-11 < np.abs(off[normal]).max() <= 2.0**-10 and abs(off[normal].mean()) < 1e-5
    held = np.float32([0, -0.0, 1, -1.5, 2.0**-15, np.inf, -np.inf, 65504, 1024])
    assert np.array_equal(simulated(held), held) and np.isnan(simulated(np.float32([np.nan]))).all()
    assert simulated(np.float32([1e-9]))[0] == np.float32(2.0**-24)  # the logarithm of 0 would say nothing
    assert simulated.constant(np.float32([1e-9]))[0] == np.float32(1e-9)
    assert simulated(np.arange(3)).dtype == np.int64 and simulated(x.T).shape == (400, 300)


@pytest.mark.parametrize(("error", "passes"), [(0.0, True), (0.05, False)])
def test_half_precision_is_allowed_its_own_error_and_no_more(error, passes):
    model = network(depth=12)
    executor = Executor(model)

    def half(feeds):
        results = executor.run(None, feeds, simulated=SimulatedPrecision(2.0**-11, seed=5))
        found = dict(zip(executor.output_names, results, strict=True))
        return found | {"y": found["y"] + np.float32(error)}

    report = verify_runners(model, runner(model), Runner("half", half, unit=2.0**-11))
    y = report.outputs[0]
    assert y.passed == passes and 1e-3 < y.tolerance.atol < 0.04


def chooser():
    """Rows in the order of their scores; rounding swaps rows with nearly equal scores."""
    op = Builder()
    x = op.input("x", FLOAT, [64])
    rows = op.constant(np.random.default_rng(0).standard_normal((64, 50)).astype(np.float32), "rows")
    _, order = op.TopK(x, np.array([40]), outputs=2)
    return op.model([x], [op.output(op.Gather(rows, order, axis=0), "y")])


def test_other_choices_are_counted_and_other_elements_compared_closely():
    x = np.random.default_rng(3).standard_normal(64).astype(np.float32)
    order = np.argsort(-x)
    x[order[11]] = x[order[10]] * (1 - np.float32(2e-5))  # the same in float16
    model = chooser()

    def changed(value):
        swapped = value.copy()
        swapped[[10, 11]] = value[[11, 10]]
        return swapped

    def report(change):
        half = Runner("half", runner(model, change=change).run, unit=2.0**-11)
        return verify_runners(model, runner(model), half, feeds=[{"x": x}])

    swap = report(lambda n, v: changed(v))
    assert swap.agrees and 0 < swap.outputs[0].tolerance.mismatches < 0.2 and swap.outputs[0].max_abs > 1
    assert "within the variation from the model's own choices" in str(swap)
    assert swap.outputs[0].tolerance.atol < 0.4 and not report(lambda n, v: v + np.float32(0.5)).passed
    assert not report(lambda n, v: v[::-1].copy()).passed


def quantizing(width=96):
    """Products whose results are quantized dynamically."""
    op = Builder()
    rng = np.random.default_rng(0)
    weights = [op.constant((rng.standard_normal((width, width)) / np.sqrt(width)).astype(np.float32), f"w{i}") for i in range(3)]
    x = h = op.input("x", FLOAT, [64, width])
    for weight in weights:
        codes, scale, zero = op.DynamicQuantizeLinear(op.MatMul(h, weight), outputs=3)
        h = op.DequantizeLinear(codes, scale, zero)
    return op.model([x], [op.output(h, "y")])


def test_quantized_values_that_rounding_changes_pass_and_others_fail():
    model = quantizing()
    wide = runner(model, "float64", lambda name, v: v.astype(np.float32), precision="float64")
    reports = [verify_runners(model, runner(model), wide, samples=1, seed=seed) for seed in range(8)]
    assert all(r.passed for r in reports)
    largest = [r.outputs[0].max_abs for r in reports]
    assert max(largest) > 100 * min(largest), "some changed a quantized value, others none"
    assert all(r.outputs[0].tolerance.atol < 0.3 for r in reports), "numbers up to 4, two or three steps of 1/40"
    wrong = runner(model, change=lambda name, v: v * np.float32(1.1))
    assert not any(verify_runners(model, runner(model), wrong, samples=1, seed=seed).passed for seed in range(8))


def test_integers_of_four_bits_have_no_rounding_errors():
    assert epsilon(np.dtype(ml_dtypes.uint4)) == epsilon(np.dtype(ml_dtypes.int2)) == 0
    assert epsilon(np.dtype(ml_dtypes.float8_e4m3fn)) == 2**-3


def test_outputs_of_strings_are_named_so():
    expected = np.array(["a", "b"], object)
    assert compare("y", expected, np.array(["a", "b"]), Tolerance(0.0, 0.0)).dtype == "string"
    assert not compare("y", expected, np.array(["a", "c"], object), Tolerance(0.0, 0.0)).passed
