"""Models that choose among equal numbers: frameworks take different ones, which is told from a fault."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

import onnxbridge
from onnxbridge.runtime.verify.rounding.ties import with_other_ties

COUNT = 40


def detector(path, scores, *, order=None, shift=0.0):
    """Boxes x * i of the 8 highest of constant scores, taken in another order of equal ones by the permutation `order`."""
    order = np.arange(COUNT) if order is None else order
    constants = [
        helper.make_tensor("scores", TensorProto.FLOAT, [COUNT], np.asarray(scores, np.float32)[order]),
        helper.make_tensor("order", TensorProto.INT64, [COUNT], order),
        helper.make_tensor("steps", TensorProto.FLOAT, [COUNT], np.arange(1, COUNT + 1, dtype=np.float32)),
        helper.make_tensor("k", TensorProto.INT64, [1], [8]),
        helper.make_tensor("shift", TensorProto.FLOAT, [], [shift]),
    ]
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], keepdims=0),
        helper.make_node("Mul", ["mean", "zero"], ["nothing"]),
        helper.make_node("Add", ["scores", "nothing"], ["depending"]),
        helper.make_node("TopK", ["depending", "k"], ["best", "at"]),
        helper.make_node("Gather", ["order", "at"], ["index"]),
        helper.make_node("Gather", ["steps", "index"], ["step"]),
        helper.make_node("Add", ["mean", "shift"], ["base"]),
        helper.make_node("Add", ["step", "base"], ["boxes"]),
    ]
    constants.append(helper.make_tensor("zero", TensorProto.FLOAT, [], [0.0]))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
    boxes = helper.make_tensor_value_info("boxes", TensorProto.FLOAT, [8])
    graph = helper.make_graph(nodes, "g", [x], [boxes], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    return str(path)


@pytest.fixture
def reversed_order():
    return np.arange(COUNT)[::-1].copy()


def test_other_choices_among_equal_scores_are_no_fault(tmp_path, reversed_order):
    equal = np.ones(COUNT)
    report = onnxbridge.verify(detector(tmp_path / "a.onnx", equal), detector(tmp_path / "b.onnx", equal, order=reversed_order))
    assert report.verdict == "WEAK" and "the choice among equal numbers decides" in str(report)


def test_a_fault_behind_different_scores_is_one(tmp_path, reversed_order):
    """Of the 8 highest scores 6 are unlike all others, so that at most 2 of 8 boxes may differ."""
    scores = np.ones(COUNT)
    scores[:6] = np.arange(16, 10, -1)
    first = detector(tmp_path / "a.onnx", scores)
    assert onnxbridge.verify(first, detector(tmp_path / "b.onnx", scores, order=reversed_order)).agrees
    wrong = detector(tmp_path / "c.onnx", scores, order=reversed_order, shift=0.5)
    assert onnxbridge.verify(first, wrong).verdict == "FAILED"


def test_different_scores_leave_no_choice(tmp_path, reversed_order):
    scores = np.linspace(1, 2, COUNT)
    first = detector(tmp_path / "a.onnx", scores)
    report = onnxbridge.verify(first, detector(tmp_path / "b.onnx", scores, order=reversed_order))
    assert report.agrees and "equal numbers" not in str(report)
    assert onnxbridge.verify(first, detector(tmp_path / "c.onnx", scores, shift=0.5)).verdict == "FAILED"


def test_the_copy_chooses_differently(tmp_path):
    model = onnxbridge.load(detector(tmp_path / "a.onnx", np.ones(COUNT)))
    before = ir.serde.serialize_model(model).SerializeToString()
    runs = [onnxbridge.runtime.Executor(m).run(None, {"x": np.ones(4, np.float32)})[0] for m in (
        model, with_other_ties(model, 0), with_other_ties(model, 1),
    )]  # fmt: skip
    assert not any(np.array_equal(runs[0], run) for run in runs[1:]) and not np.array_equal(runs[1], runs[2])
    assert ir.serde.serialize_model(model).SerializeToString() == before


def test_a_model_that_does_not_choose_is_not_copied(tmp_path):
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )  # fmt: skip
    onnx.save(helper.make_model(graph), tmp_path / "relu.onnx")
    assert with_other_ties(onnxbridge.load(tmp_path / "relu.onnx"), 0) is None
