"""Repeated rows and columns become a Resize; what looks like them and is something else stays."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnxbridge.hub import passes
from onnxbridge.hub.builder.builder import Builder
from onnxbridge.runtime import devices


@pytest.mark.parametrize(
    ("sizes", "extended", "repeats", "shape", "found"),
    [
        (["N", 3, 5, 4], [-1, 3, 1, 5, 1, 4], [1, 1, 2, 1, 3, 1], [-1, 6, 15, 4], True),
        ([2, 4, 3, 5], [2, 4, 3, 1, 5, 1], [1, 1, 1, 2, 1, 2], [2, 4, 6, 10], True),
        ([2, 1, 1, 4], [2, 1, 1, 1, 1, 4], [1, 1, 2, 1, 2, 1], [2, 2, 2, 4], True),
        (["N", 3, 5, 4], [-1, 3, 1, 5, 1, 4], [1, 1, 2, 1, 1, 1], [-1, 6, 5, 4], False),  # one axis
        (["N", 3, 5, 4], [-1, 1, 3, 1, 5, 4], [1, 2, 1, 2, 1, 1], [-1, 6, 10, 4], False),  # the image is repeated, not its rows
        (["N", 3, 5, 4], [-1, 3, 1, 5, 1, 4], [1, 1, 2, 2, 2, 1], [-1, 6, 20, 4], False),
        (["N", 3, 5, 4], [-1, 3, 1, 5, 1, 4], [1, 1, 2, 1, 2, 1], [-1, 10, 6, 4], False),  # not merged as they were added
        (["N", 4, 4, 4], [-1, 2, 1, 8, 1, 4], [1, 1, 2, 1, 2, 1], [-1, 8, 8, 4], False),  # the first Reshape does more
    ],
)
def test_repeats(sizes, extended, repeats, shape, found):
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, sizes)
    y = op.Reshape(op.Tile(op.Reshape(x, extended), repeats), shape)
    model = op.model([x], [op.output(op.Relu(y), "y")])
    feed = {"x": np.random.default_rng(0).normal(size=[2 if s == "N" else s for s in sizes]).astype(np.float32)}
    expected = devices.run(devices.session(model, "cpu"), feed)["y"]
    cleaned = passes.clean(model)
    assert ("Resize" in [n.op_type for n in cleaned.graph]) == found
    np.testing.assert_array_equal(devices.run(devices.session(cleaned, "cpu"), feed)["y"], expected)


def test_a_batch_without_a_name():
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, ["N", "M", 3, 5, 4])
    images = op.Reshape(x, [-1, 3, 5, 4])
    y = op.Reshape(op.Tile(op.Reshape(images, [-1, 3, 1, 5, 1, 4]), [1, 1, 2, 1, 2, 1]), [-1, 6, 10, 4])
    model = passes.clean(op.model([x], [op.output(y, "y")]))
    assert [n.op_type for n in model.graph] == ["Reshape", "Resize"]


@pytest.mark.parametrize("scale", [2, 3, 7])
def test_every_row_is_the_one_that_was_repeated(scale):
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, [1, 33, 41, 1])
    y = op.Reshape(op.Tile(op.Reshape(x, [1, 33, 1, 41, 1, 1]), [1, 1, scale, 1, scale, 1]), [1, 33 * scale, 41 * scale, 1])
    model = passes.clean(op.model([x], [op.output(y, "y")]))
    rows = np.arange(33 * 41, dtype=np.float32).reshape(1, 33, 41, 1)
    result = devices.run(devices.session(model, "cpu"), {"x": rows})["y"]
    np.testing.assert_array_equal(result, rows.repeat(scale, 1).repeat(scale, 2))
    assert "Resize" in [n.op_type for n in model.graph] and model.graph.outputs[0].name == "y"


def test_axes_that_are_added_one_after_the_other():
    """As tf.stack writes it."""
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, ["N", 3, 5, 4])
    wide = op.Tile(op.Unsqueeze(x, [3]), [1, 1, 1, 2, 1])
    y = op.Reshape(op.Tile(op.Unsqueeze(wide, [2]), [1, 1, 3, 1, 1, 1]), [-1, 9, 10, 4])
    model = passes.clean(op.model([x], [op.output(y, "y")]))
    assert [n.op_type for n in model.graph] == ["Resize"]
    feed = {"x": np.random.default_rng(0).normal(size=(2, 3, 5, 4)).astype(np.float32)}
    np.testing.assert_array_equal(devices.run(devices.session(model, "cpu"), feed)["y"], feed["x"].repeat(3, 1).repeat(2, 2))


def test_integers_stay_since_runtimes_do_not_resize_them():
    op = Builder()
    x = op.input("x", ir.DataType.INT64, [1, 3, 5, 4])
    y = op.Reshape(op.Tile(op.Reshape(x, [1, 3, 1, 5, 1, 4]), [1, 1, 2, 1, 2, 1]), [1, 6, 10, 4])
    assert "Tile" in [n.op_type for n in passes.clean(op.model([x], [op.output(y, "y")])).graph]


def test_a_long_chain_of_repeats_is_left_alone():
    op = Builder()
    x = y = op.input("x", ir.DataType.FLOAT, [1, 3, 5, 4])
    for _ in range(3000):
        y = op.Tile(y, [1, 1, 1, 1])
    model = passes.clean(op.model([x], [op.output(op.Reshape(y, [1, 3, 20]), "y")]))
    assert len(model.graph) == 3001
