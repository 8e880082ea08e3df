"""Sensitivity: which planted faults a comparison would catch, and how small an error of a weight it sees."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnxbridge.hub.builder.builder import Builder
from onnxbridge.runtime import Executor
from onnxbridge.runtime.mutation.faults import faults_of
from onnxbridge.runtime.mutation.measure import Executors, Sample, measure
from onnxbridge.runtime.verify.compare import Tolerance, compare

FLOAT = ir.DataType.FLOAT


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def chain(depth=4, width=16):
    op = Builder()
    x = h = op.input("x", FLOAT, ["N", width])
    for i in range(depth):
        h = op.Tanh(op.MatMul(h, op.constant(draw(width, width, seed=i) / 4, f"w{i}")))
    return op.model([x], [op.output(h, "y")])


def measured(model, feeds, atol, **options):
    executors = Executors(Executor(model, native=False), Executor(model, precision="float64"))
    names = [v.name for v in model.graph.outputs]
    samples = [Sample(feed, {name: Tolerance(atol, 0.0) for name in names}) for feed in feeds]
    fresh = [{k: draw(*v.shape, seed=99) for k, v in feeds[0].items()}]
    return measure(model, executors, samples, lambda: fresh, **options)


def test_the_share_is_what_comparing_each_planted_model_finds():
    model, feed = chain(), {"x": draw(3, 16, seed=5)}
    (right,) = Executor(model).run(None, feed)
    for atol in (1e-6, 0.05, 0.3):
        found = measured(model, [feed], atol, mutants=1000)
        missed = []
        for fault in faults_of(model.graph):
            (wrong,) = Executor(fault.planted(model)).run(None, feed)
            missed += [str(fault)] if compare("y", right, wrong, Tolerance(atol, 0.0)).passed else []
        assert found.planted == found.possible == len(faults_of(model.graph)) == 12
        assert sorted(map(str, found.missed)) == sorted(missed) and found.caught == 12 - len(missed)


def test_a_fault_that_the_first_sample_does_not_show_may_be_shown_by_another():
    model = chain(depth=1)
    silent, other = np.zeros((3, 16), np.float32), draw(3, 16)
    assert measured(model, [{"x": silent}], 1e-5).share == 0
    assert measured(model, [{"x": silent}, {"x": other}], 1e-5).share == 1


def test_a_fault_that_changes_nothing_is_not_counted():
    op = Builder()
    x = op.input("x", FLOAT, ["N", 4])
    h = op.MatMul(x, op.constant(draw(4, 6), "any scale"))
    model = op.model([x], [op.output(op.LayerNormalization(h, np.ones(6, np.float32), epsilon=0.0), "y")])
    found = measured(model, [{"x": draw(64, 4)}], 1e-4)
    assert found.missed == () and found.equivalent == 1
    assert found.planted + found.equivalent == found.possible


def test_weights_of_zeros_are_not_counted():
    op = Builder()
    x = op.input("x", FLOAT, ["N", 4])
    h = op.Add(op.MatMul(x, op.constant(draw(4, 4), "w")), op.constant(np.zeros(4, np.float32), "zeros"))
    found = measured(op.model([x], [op.output(h, "y")]), [{"x": draw(3, 4)}], 1e-6)
    assert found.missed == () and found.equivalent == 2


def test_weights_that_no_sample_reaches_are_told_from_those_that_are_missed():
    op = Builder()
    x = op.input("x", FLOAT, ["N", 4])
    silent = op.Mul(op.Relu(op.Sub(x, op.constant(np.full(4, 100, np.float32), "threshold"))), op.constant(draw(4), "unreached"))
    model = op.model([x], [op.output(op.Add(op.MatMul(x, op.constant(draw(4, 4), "w")), silent), "y")])
    found = measured(model, [{"x": draw(3, 4)}], 1e-6)
    assert {"unreached times 1.1"} < {f.text for f in found.unreached} and found.equivalent == 0
    assert found.missed == () and found.share == 1
    assert found.planted + len(found.unreached) == found.possible
    assert f"; {len(found.unreached)} more are in weights that no sample reaches" in str(found)


def test_the_smallest_error_of_a_weight_is_the_one_where_the_verdict_changes():
    op = Builder()
    x = op.input("x", FLOAT, ["N", 8])
    model = op.model([x], [op.output(op.MatMul(x, op.constant(draw(8, 8), "w")), "y")])
    feed = {"x": draw(3, 8, seed=1)}
    (right,) = Executor(model).run(None, feed)
    smallest = measured(model, [feed], 0.01).smallest_weight_error
    for factor, passes in ((0.98, True), (1.02, False)):
        wrong = right * np.float32(1 + smallest * factor)
        assert compare("y", right, wrong, Tolerance(0.01, 0.0)).passed == passes
    assert f"sees is {100 * smallest:.2g}%" in str(measured(model, [feed], 0.01))


@pytest.mark.parametrize("mutants", [1, 5, 12])
def test_as_many_faults_are_planted_as_asked_for(mutants):
    assert measured(chain(), [{"x": draw(3, 16)}], 1e-5, mutants=mutants).planted == mutants
    assert measured(chain(), [{"x": draw(3, 16)}], 1e-5, mutants=0) is None


def test_operations_bound_how_many_are_planted(monkeypatch):
    model, feeds = chain(depth=10, width=128), [{"x": draw(64, 128)}]
    executor = Executor(model, native=False)
    executor.run(None, feeds[0])
    work = executor.work
    monkeypatch.setattr("onnxbridge.runtime.mutation.measure.FEWEST", 0)
    few, more = (measured(model, feeds, 1e-5, work=n * work) for n in (4, 12))
    assert 0 < few.planted < more.planted < more.possible
    assert measured(model, feeds, 1e-5, work=0) is None


def test_faults_are_left_out_where_those_missed_cannot_all_be_tried_again(monkeypatch):
    monkeypatch.setattr("onnxbridge.runtime.mutation.measure.FEWEST", 20_000_000)
    model, feed = chain(depth=12), {"x": np.zeros((3, 16), np.float32)}  # the first sample shows none
    found = measured(model, [feed, {"x": draw(3, 16)}], 1e-5)
    assert 4 <= found.planted < found.possible and found.share == 1
    assert measured(model, [feed, {"x": draw(3, 16)}], 1e-5, mutants=36).planted == found.possible == 36


def test_a_model_without_weights_or_attributes_has_no_faults():
    op = Builder()
    x = op.input("x", FLOAT, ["N", 4])
    assert measured(op.model([x], [op.output(op.Exp(x), "y")]), [{"x": draw(3, 4)}], 1e-5) is None


def test_what_was_missed_is_described():
    found = measured(chain(), [{"x": draw(3, 16)}], 0.3, mutants=1000)
    described = found.as_dict()
    assert described["planted"] == 12 and described["caught"] + len(described["missed"]) == 12
    first = described["missed"][0]
    assert first["operator"] == "MatMul" and "w" in first["change"]
    assert set(first["location"]) == {"file", "line", "scope", "node"}
