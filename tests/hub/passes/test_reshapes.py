"""Sizes that reshapes compute keep their names, and reshapes that only flatten the batch of a product are removed."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnxbridge.hub import passes
from onnxbridge.hub.builder.builder import Builder
from onnxbridge.runtime import devices


def _names(value):
    return [d if isinstance(d, int) else d.value for d in value.shape]


@pytest.mark.parametrize(("shape", "expected"), [
    ([-1, 4, 2, 3], ["N", 4, 2, 3]), ([0, 4, -1], ["N", 4, 6]), ([0, 2, -1], ["N", 2, 12]), ([-1, 6], [None, 6]),
    ([4, -1, 6], [4, "N", 6]),
])  # fmt: skip
def test_sizes_of_reshapes_are_named(shape, expected):
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, ["N", 4, 6])
    assert _names(op.Reshape(x, shape)) == expected


def test_computed_sizes_are_named():
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, ["N", "L", 6])
    sizes = op.Cast(op.Gather(op.Shape(x), [1, 0]), to=ir.DataType.INT32)
    shape = op.Cast(op.Concat(sizes, np.array([6], np.int32), axis=0), to=ir.DataType.INT64)
    assert _names(op.Reshape(x, shape)) == ["L", "N", 6]
    assert _names(op.Expand(op.constant(np.ones((1, 1, 6), np.float32)), shape)) == ["L", "N", 6]
    assert _names(op.Reshape(x, [-1, 6])) == [None, 6]


@pytest.mark.parametrize("swapped", [False, True])
def test_products_of_rows_need_no_reshapes(swapped):
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, ["N", "L", 6])
    weight = op.constant(np.arange(24, dtype=np.float32).reshape(6, 4), "weight")
    rows, columns = (op.Shape(x, start=i, end=i + 1) for i in range(2))
    shape = op.Concat(*((columns, rows) if swapped else (rows, columns)), [4], axis=0)
    model = op.model([x], [op.output(op.Relu(op.Reshape(op.MatMul(op.Reshape(x, [-1, 6]), weight), shape)), "y")])
    feeds = {"x": np.random.default_rng(0).normal(size=(2, 3, 6)).astype(np.float32)}
    expected = devices.run(devices.session(model, "cpu"), feeds)["y"]
    cleaned = passes.clean(model)
    assert ([n.op_type for n in cleaned.graph] == ["MatMul", "Relu"]) != swapped
    np.testing.assert_allclose(devices.run(devices.session(cleaned, "cpu"), feeds)["y"], expected, rtol=1e-5)


def test_a_size_that_the_number_of_elements_determines():
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, ["N", 5, 6])
    weight = op.constant(np.arange(24, dtype=np.float32).reshape(6, 4), "weight")
    results = [op.Reshape(op.MatMul(op.Reshape(x, [-1, 6]), weight), shape) for shape in ([-1, 5, 4], [5, -1, 4])]
    model = op.model([x], [op.output(op.Relu(r), f"y{i}") for i, r in enumerate(results)])
    kinds = sorted(n.op_type for n in passes.clean(model).graph)
    assert kinds == ["MatMul", "MatMul", "Relu", "Relu", "Reshape", "Reshape"]  # those of the second stay
