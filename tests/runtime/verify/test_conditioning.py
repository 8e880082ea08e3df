"""Samples on which a model is well-conditioned, and the sizes that samples vary."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import onnxbridge
from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.io import onnx_files
from onnxbridge.runtime.executor.executor import Executor
from onnxbridge.runtime.verify.rounding.tolerance import Rounding
from onnxbridge.runtime.verify.runner import Runner
from onnxbridge.runtime.verify.verification import verify_runners


def wave(frequency):
    """A model that amplifies errors of its input `frequency` times."""
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, [4, 8])
    return op.model([x], [op.output(op.Sin(op.Mul(x, np.float32(frequency))), "y")])


def runner(model):
    executor = Executor(model)
    return Runner("executor", lambda feeds: dict(zip(executor.output_names, executor.run(None, feeds), strict=True)))


def test_inputs_become_smaller_where_rounding_moves_the_output_far():
    model = wave(3e4)
    report = verify_runners(model, runner(model), runner(model))
    note = next(n for n in report.notes if n.startswith("floating-point numbers are"))
    assert "rounding may move an output by" in note
    assert report.agrees and report.samples == 3


def test_nothing_is_tried_on_a_well_conditioned_model(monkeypatch):
    model = wave(10)
    forgotten = []
    monkeypatch.setattr(Rounding, "forget", lambda self: forgotten.append(self))
    report = verify_runners(model, runner(model), runner(model))
    assert report.passed and not forgotten and not report.notes


def test_a_model_that_nothing_helps_keeps_its_samples():
    model = wave(1e12)
    report = verify_runners(model, runner(model), runner(model))
    assert not any("numbers are" in n for n in report.notes)


def test_rounding_does_not_move_indices_in_floating_point():
    """On indices moved by half of eps, truncated, the output would have the rows before those that are meant."""
    op = Builder()
    ids = op.input("ids", ir.DataType.FLOAT, [8])
    table = np.random.default_rng(0).standard_normal((50, 3)).astype(np.float32)
    model = op.model([ids], [op.output(op.Sin(op.Gather(table, op.Cast(ids, to=ir.DataType.INT64))), "y")])
    assert Rounding(model).share({"ids": np.arange(8, dtype=np.float32) * 6}) < 1e-5
    report = verify_runners(model, runner(model), runner(model))
    assert report.passed and not report.notes


def test_the_share_of_the_range_is_measured_once():
    model = wave(1e5)
    rounding = Rounding(model)
    feed = {"x": np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)}
    share = rounding.share(feed)
    assert 1e-3 < share < 1
    work = rounding.tolerances(runner(model).run(feed))["y"].atol
    rounding.measure(feed)
    assert rounding.tolerances(runner(model).run(feed))["y"].atol == work
    rounding.forget()
    assert rounding.share({"x": feed["x"] * np.float32(0.01)}) < share / 4


@pytest.mark.parametrize("sizes", [["N", 8], [3, "length"], ["N", "M"], ["p2o.Dynamic.0", 8], [2, 8]])
def test_the_report_says_which_sizes_were_varied(tmp_path, sizes):
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, sizes)
    onnx_files.write(op.model([x], [op.output(op.Relu(x), "y")]), tmp_path / "m.onnx")
    report = onnxbridge.verify(tmp_path / "m.onnx", tmp_path / "m.onnx")
    names = [s for s in sizes if isinstance(s, str)]
    assert list(report.varied_sizes) == names and all(len(v) == 2 for v in report.varied_sizes.values())
    assert (f"sizes varied: {'; '.join(f'{n} = 2, 3' for n in names)}" in str(report)) == bool(names)
    assert report.as_dict()["varied_sizes"] == {n: [2, 3] for n in names}
