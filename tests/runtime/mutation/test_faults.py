"""Faults: which ones a graph has, and that each changes what a model computes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.io import onnx_files
from onnxbridge.runtime import Executor, session
from onnxbridge.runtime.mutation.faults import KINDS, faults_of

FLOAT = ir.DataType.FLOAT


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def model_of(build, *shapes):
    op = Builder()
    inputs = [op.input(f"x{i}", FLOAT, list(shape)) for i, shape in enumerate(shapes)]
    return op.model(inputs, [op.output(build(op, *inputs), "y")])


def feeds_of(model):
    return {
        str(v.name): draw(*(d if isinstance(d, int) else 3 for d in v.shape), seed=i) for i, v in enumerate(model.graph.inputs)
    }


def faults(model, kind):
    return [f for f in faults_of(model.graph) if f.kind == kind]


def lstm(op, x):
    w, r = op.constant(draw(1, 24, 4), "w"), op.constant(draw(1, 24, 6), "r")
    return op.LSTM(x, w, r, hidden_size=6)


CASES = {
    "linear": ("weight scaled", lambda op, x: op.MatMul(x, op.constant(draw(4, 5), "w")), [(3, 4)]),
    "conv": ("channel zeroed", lambda op, x: op.Conv(x, op.constant(draw(6, 4, 3, 3), "w")), [(1, 4, 8, 8)]),
    "gemm": ("channel zeroed", lambda op, x: op.Gemm(x, op.constant(draw(5, 4), "w"), transB=1), [(3, 4)]),
    "bias": ("weight zeroed", lambda op, x: op.Add(x, op.constant(draw(4), "b")), [(3, 4)]),
    "quantized": (
        "weight scaled",
        lambda op, x: op.MatMul(
            x, op.DequantizeLinear(op.constant(draw(4, 5).astype(np.int8), "w"), op.constant(np.float32(0.1), "s"))
        ),
        [(3, 4)],
    ),
    "recurrent weights": ("weight scaled", lstm, [(5, 1, 4)]),
    "recurrent direction": ("mode", lstm, [(5, 1, 4)]),
    "softmax": ("axis", lambda op, x: op.Softmax(x), [("N", 4)]),
    "transpose": ("axis", lambda op, x: op.Transpose(x, perm=[0, 2, 1]), [(2, 2, 3)]),
    "sum": ("axis", lambda op, x: op.CumSum(x, np.array(1)), [(3, 4)]),
    "first": ("axis", lambda op, x: op.Gather(x, np.array(0), axis=1), [(3, 3)]),
    "convolution's pads": (
        "pads", lambda op, x: op.Conv(x, op.constant(draw(2, 1, 3, 3), "w"), pads=[1, 1, 1, 1]), [(1, 1, 6, 6)],
    ),
    "pool's pads": ("pads", lambda op, x: op.AveragePool(x, kernel_shape=[3, 3], pads=[1, 1, 1, 1]), [(1, 1, 6, 6)]),
    "automatic pads": ("pads", lambda op, x: op.MaxPool(x, kernel_shape=[2, 2], auto_pad="SAME_UPPER"), [(1, 1, 6, 6)]),
    "pad": ("pads", lambda op, x: op.Pad(x, np.array([0, 1, 0, 1])), [(2, 4)]),
    "norm": ("epsilon", lambda op, x: op.LayerNormalization(x, op.constant(draw(4), "s")), [(3, 4)]),
    "added epsilon": ("epsilon", lambda op, x: op.Sqrt(op.Add(op.Mul(x, x), np.float32(1e-5))), [(3, 4)]),
    "resize": (
        "mode", lambda op, x: op.Resize(x, None, op.constant(np.array([1, 1, 2, 2], np.float32)), mode="linear"), [(1, 1, 4, 4)],
    ),
    "gelu": ("mode", lambda op, x: op.Gelu(x), [(3, 4)]),
    "pool counts pads": ("mode", lambda op, x: op.AveragePool(x, kernel_shape=[3], pads=[1, 1]), [(1, 1, 6)]),
    "difference": ("inputs swapped", lambda op, x, z: op.Sub(x, z), [(3, 4), (3, 4)]),
    "choice": ("inputs swapped", lambda op, x, z: op.Where(op.Greater(x, np.float32(0)), x, z), [(3, 4), (3, 4)]),
    "concatenation": ("inputs swapped", lambda op, x, z: op.Concat(x, z, axis=0), [(3, 4), (3, 4)]),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "build", "shapes"), CASES.values(), ids=CASES)
def test_a_fault_changes_what_the_model_computes(kind, build, shapes):
    model = model_of(build, *shapes)
    feeds = feeds_of(model)
    (right,) = Executor(model).run(None, feeds)
    found = faults(model, kind)
    assert found
    for fault in found:
        (wrong,) = Executor(fault.planted(model)).run(None, feeds)
        assert wrong.shape == right.shape and not np.allclose(wrong, right, rtol=1e-6, atol=1e-7), fault
        assert str(fault) == f"{fault.op} {fault.value}: {fault.text}"
    np.testing.assert_array_equal(Executor(model).run(None, feeds)[0], right, "the model itself is unchanged")


def test_every_kind_has_a_case():
    assert {kind for kind, _, _ in CASES.values()} == set(KINDS)


@pytest.mark.parametrize(
    ("build", "shapes"),
    [
        (lambda op, x: op.MatMul(x, x), [(3, 3)]),  # the inputs are the same
        (lambda op, x: op.Concat(x, op.Exp(x), axis=0), [("N", "N")]),
        (lambda op, x: op.Transpose(x, perm=[1, 0]), [(2, 3)]),  # would change the shape
        (lambda op, x: op.Gather(x, np.array(0), axis=0), [(2, 3)]),
        (lambda op, x: op.ArgMax(x, axis=0, keepdims=1), [(3, 3)]),
    ],
)
def test_no_fault_changes_shapes(build, shapes):
    model = model_of(build, *shapes)
    feeds = feeds_of(model)
    (right,) = Executor(model).run(None, feeds)
    assert all(Executor(f.planted(model)).run(None, feeds)[0].shape == right.shape for f in faults_of(model.graph))


def test_a_planted_model_shares_the_other_weights_and_can_be_written():
    def build(op, x):
        return op.MatMul(op.MatMul(x, op.constant(draw(4, 4), "first")), op.constant(draw(4, 4, seed=1), "second"))

    model = model_of(build, (3, 4))
    fault = next(f for f in faults(model, "weight scaled") if "first" in f.text)
    planted = fault.planted(model)
    assert set(planted.graph.initializers) == {"first.fault", "second"}
    assert planted.graph.initializers["second"].const_value is model.graph.initializers["second"].const_value
    assert fault.value == model.graph.node(0).outputs[0].name and planted.graph.node(0).outputs[0].name == fault.value
    proto = onnx_files.to_proto(planted)
    feeds = feeds_of(model)
    np.testing.assert_allclose(session(planted, "cpu").run(None, feeds)[0], Executor(planted).run(None, feeds)[0], rtol=1e-5)
    np.testing.assert_array_equal(Executor(proto).run(None, feeds)[0], Executor(planted).run(None, feeds)[0])


def test_a_shared_weight_is_changed_for_one_node():
    def build(op, x):
        w = op.constant(draw(4, 4), "w")
        return op.MatMul(op.Relu(op.MatMul(x, w)), w)

    model = model_of(build, (3, 4))
    feeds = feeds_of(model)
    outputs = {f.value: Executor(f.planted(model)).run(None, feeds)[0] for f in faults(model, "weight scaled")}
    first, second = outputs.values()
    np.testing.assert_allclose(first, second, rtol=1e-5)  # both scale the result by 1.1, neither by 1.21
    assert not np.allclose(first, Executor(model).run(None, feeds)[0])


def test_nodes_that_no_output_depends_on_have_no_faults():
    op = Builder()
    x = op.input("x", FLOAT, ["N", 4])
    unused = op.MatMul(x, op.constant(draw(4, 4), "unused"))
    only_its_shape = op.Shape(op.MatMul(x, op.constant(draw(4, 4), "shape")))
    y = op.Reshape(op.Mul(x, np.float32(2)), only_its_shape)
    model = op.model([x], [op.output(y, "y")])
    assert unused.producer() is not None
    assert {f.op for f in faults_of(model.graph)} == {"Mul"}


def test_faults_are_planted_only_where_they_belong():
    model = model_of(lambda op, x: op.Softmax(x), (3, 4))
    (fault,) = faults_of(model.graph)
    with pytest.raises(ValueError, match="no Softmax that computes 'y'"):
        fault.planted(model_of(lambda op, x: op.Exp(x), (3, 4)))


def test_empty_weights_have_no_faults():
    model = model_of(lambda op, x: op.Concat(x, op.constant(np.zeros((0, 4), np.float32), "empty"), axis=0), (3, 4))
    assert faults_of(model.graph) == []
