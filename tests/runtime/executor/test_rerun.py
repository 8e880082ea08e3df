"""Variants of a model beside it: the same results as of the whole changed model, at the cost of what differs."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnxbridge.hub.builder.builder import Builder
from onnxbridge.runtime import Executor
from onnxbridge.runtime.mutation.faults import faults_of

FLOAT = ir.DataType.FLOAT


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def network():
    """A convolutional network with a decomposed operator, a branch, an output in the middle and one at the end."""
    op = Builder()
    x = op.input("x", FLOAT, ["N", 3, 8, 8])
    h = op.Relu(op.Conv(x, op.constant(draw(6, 3, 3, 3), "w0"), pads=[1, 1, 1, 1]))
    skip = op.Mish(op.Conv(h, op.constant(draw(6, 6, 1, 1, seed=1), "w1")))
    h = op.Add(h, skip)
    middle = op.ReduceMean(h, np.array([2, 3]), keepdims=0)
    y = op.Softmax(op.Add(op.MatMul(middle, op.constant(draw(6, 5, seed=2), "w2")), op.constant(draw(5), "b2")))
    positive = op.Greater(op.ReduceSum(y), np.float32(0))
    z = op.If(positive, then_branch=lambda: op.Mul(y, np.float32(2)), else_branch=lambda: op.Neg(y))
    return op.model([x], [op.output(middle, "middle"), op.output(z, "z")])


def variants_of(rerunner, graph, faults):
    nodes = {n.outputs[0].name: n for n in graph}
    return [rerunner.variant(f.changed_node(nodes[f.value])) for f in faults]


@pytest.mark.parametrize("precision", [None, "float64"])
def test_each_variant_gives_what_the_changed_model_gives(precision):
    model, feeds = network(), {"x": draw(2, 3, 8, 8, seed=3)}
    faults = faults_of(model.graph)
    executor = Executor(model, precision=precision, native=False)
    rerunner = executor.rerunner()
    found = rerunner.run(variants_of(rerunner, model.graph, faults), feeds)
    assert len(faults) > 10
    for a, b in zip(found.outputs, executor.run(executor.output_names, feeds), strict=True):
        np.testing.assert_array_equal(a, b)
    for fault, outputs in zip(faults, found.variants, strict=True):
        changed = Executor(fault.planted(model), precision=precision, native=False)
        for a, b in zip(outputs, changed.run(changed.output_names, feeds), strict=True):
            np.testing.assert_array_equal(a, b, str(fault))


def test_only_what_is_downstream_is_computed():
    model, feeds = network(), {"x": draw(2, 3, 8, 8)}
    rerunner = Executor(model, native=False).rerunner()
    alone = rerunner.run([], feeds).work
    faults = {f.text.split()[0]: f for f in faults_of(model.graph) if f.kind == "weight scaled"}
    works = {}
    for name in ("w0", "w1", "w2", "b2"):
        (variant,) = variants_of(rerunner, model.graph, [faults[name]])
        works[name] = rerunner.run([variant], feeds).work - alone
        assert works[name] <= 1.2 * rerunner.cost([faults[name].value])
    assert alone > works["w0"] > works["w1"] > works["w2"] > works["b2"] > 0
    assert rerunner.own_cost == alone


def test_a_variant_ends_where_its_values_are_those_of_the_model():
    op = Builder()
    x = op.input("x", FLOAT, [4, 64])
    clipped = op.Clip(op.Mul(x, op.constant(draw(64), "w")), np.float32(0), np.float32(0))
    h = clipped
    for _ in range(50):
        h = op.Sin(h)
    model = op.model([x], [op.output(h, "y")])
    fault = next(f for f in faults_of(model.graph) if f.kind == "weight scaled")
    rerunner = Executor(model, native=False).rerunner()
    feeds = {"x": draw(4, 64)}
    alone = rerunner.run([], feeds).work
    (variant,) = variants_of(rerunner, model.graph, [fault])
    found = rerunner.run([variant], feeds)
    assert found.work - alone < alone / 5 and rerunner.cost([fault.value]) > alone / 2
    np.testing.assert_array_equal(found.variants[0][0], found.outputs[0])


def test_a_variant_that_fails_does_not_end_the_others():
    op = Builder()
    x = op.input("x", FLOAT, [4, 6])
    two = op.constant(np.array([2, 12], np.float32), "sizes")
    sizes = op.Cast(op.Mul(op.ReduceMax(x, keepdims=0), two), to=ir.DataType.INT64)
    y = op.Mul(op.Reshape(x, sizes), op.constant(draw(1), "w"))
    model = op.model([x], [op.output(y, "y")])
    faults = [f for f in faults_of(model.graph) if f.kind == "weight scaled"]
    rerunner = Executor(model, native=False).rerunner()
    found = rerunner.run(variants_of(rerunner, model.graph, faults), {"x": np.ones((4, 6), np.float32)})
    by_text = dict(zip([f.text for f in faults], found.variants, strict=True))
    assert isinstance(by_text["sizes times 1.1"], ValueError)
    np.testing.assert_allclose(by_text["w times 1.1"][0], found.outputs[0] * 1.1, rtol=1e-6)
