"""Arithmetic with constants in TensorFlow is bit-exact, although its graph optimizer would rewrite it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
import tensorflow as tf

from onnxbridge.backends.tensorflow import backend
from onnxbridge.frontends.tensorflow import frontend
from onnxbridge.hub.builder.builder import Builder

F = ir.DataType.FLOAT
SCALES = [0.1, 0.3, 0.5, 7.0, 1e-3, 255.0, 1 / 127]


def _model(write, dtype=F, shape=("n",)):
    op = Builder()
    x = op.input("x", dtype, list(shape))
    return op.model([x], [op.output(write(op, x), "y")])


def _outputs(model, x, tmp_path):
    """The outputs of the module, and of the SavedModel as a user loads it."""
    module = backend.from_hub(model)
    direct = backend.runner(module)({"x": x})["y"]
    backend.save(module, tmp_path / "m")
    loaded = tf.saved_model.load(str(tmp_path / "m")).signatures["serving_default"](x=tf.constant(x))["y"].numpy()
    np.testing.assert_array_equal(direct, loaded)
    return direct


@pytest.mark.parametrize("scale", SCALES)
def test_quantize(scale, tmp_path):
    scale = np.float32(scale)
    x = (np.arange(-140, 140, 0.5) * scale).astype(np.float32)
    expected = np.clip(np.round(x / scale) + 3, -128, 127).astype(np.int8)
    np.testing.assert_array_equal(_outputs(_model(lambda op, x: op.QuantizeLinear(x, scale, np.int8(3))), x, tmp_path), expected)


def test_quantize_by_axis_and_by_block(tmp_path):
    scales = np.float32([0.1, 0.3, 7.0])
    x = (np.arange(-60, 60, 0.5)[:, None] * scales).astype(np.float32)
    expected = np.clip(np.round(x / scales), -128, 127).astype(np.int8)
    zeros = np.zeros(3, np.int8)
    by_axis = _model(lambda op, x: op.QuantizeLinear(x, scales, zeros, axis=1), shape=("n", 3))
    np.testing.assert_array_equal(_outputs(by_axis, x, tmp_path), expected)
    rows = np.repeat(scales, 2).astype(np.float32)[:, None]
    x = (np.arange(-60, 60, 0.5)[None] * rows).astype(np.float32)
    blocks = np.broadcast_to(scales[:, None], (3, 240)).copy()
    by_block = _model(lambda op, x: op.QuantizeLinear(x, blocks, output_dtype=3, axis=0, block_size=2), shape=(6, 240))
    np.testing.assert_array_equal(
        _outputs(by_block, x, tmp_path / "blocks"), np.clip(np.round(x / rows), -128, 127).astype(np.int8)
    )


@pytest.mark.parametrize("dtype", ["FLOAT", "DOUBLE", "FLOAT16"])
@pytest.mark.parametrize("scale", SCALES)
def test_division_by_a_constant(scale, dtype, tmp_path):
    kind = ir.DataType[dtype].numpy()
    divisor, x = np.array(scale, kind), np.linspace(-300, 300, 5001).astype(kind)
    np.testing.assert_array_equal(
        _outputs(_model(lambda op, x: op.Div(x, divisor), ir.DataType[dtype]), x, tmp_path), x / divisor
    )


def test_division_by_a_constant_with_zeros(tmp_path):
    divisor = np.float32([0, -0.0, 7, 255])
    x = np.float32([[1, 1, 1, 1], [-1, -1, -1, -1], [0, 0, 0, 0], [np.nan, np.inf, 10, 10]])
    with np.errstate(all="ignore"):
        expected = x / divisor
    np.testing.assert_array_equal(_outputs(_model(lambda op, x: op.Div(x, divisor), shape=("n", 4)), x, tmp_path), expected)


def test_mean_of_three_inputs(tmp_path):
    x = np.linspace(-300, 300, 5001).astype(np.float32)
    expected = (x + x + x) / np.float32(3)
    np.testing.assert_array_equal(_outputs(_model(lambda op, x: op.Mean(x, x, x)), x, tmp_path), expected)


def test_division_round_trips_as_div():
    module = backend.from_hub(_model(lambda op, x: op.Div(x, np.float32(7))))
    hub = frontend.to_hub(module, {"x": (("n",), "float32")})
    assert [node.op_type for node in hub.graph] == ["Div"]


@pytest.mark.parametrize(("dtype", "large"), [("FLOAT", 1.5 * 2**23), ("DOUBLE", 1.5 * 2**52), ("FLOAT16", 1536.0)])
@pytest.mark.parametrize("form", ["x + c - c", "c + x - c", "x - c + c", "-c + (x + c)", "c - (c - x)"])
def test_rounding_by_a_large_constant(dtype, large, form, tmp_path):
    kind = ir.DataType[dtype].numpy()
    c, x = np.array(large, kind), np.linspace(-40, 40, 1001).astype(kind)

    def write(op, x):
        return {
            "x + c - c": lambda: op.Sub(op.Add(x, c), c), "c + x - c": lambda: op.Sub(op.Add(c, x), c),
            "x - c + c": lambda: op.Add(op.Sub(x, c), c), "-c + (x + c)": lambda: op.Add(-c, op.Add(x, c)),
            "c - (c - x)": lambda: op.Sub(c, op.Sub(c, x)),
        }[form]()  # fmt: skip

    np.testing.assert_array_equal(_outputs(_model(write, ir.DataType[dtype]), x, tmp_path), np.round(x))
