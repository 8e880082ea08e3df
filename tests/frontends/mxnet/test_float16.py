"""Symbols of automatic mixed precision: MXNet's CPU computes them in float32, and the report says so."""

from __future__ import annotations

import numpy as np
import pytest

import onnxbridge
from tests.frontends.mxnet.build import operator, save, variable

RANDOM = np.random.RandomState(2)
WEIGHT, BIAS = (RANDOM.uniform(-1, 1, shape) for shape in ((4, 3, 3, 3), (4,)))


def symbol(folder, dtype, casts=True, output="float32"):
    """A convolution between casts, as mxnet.contrib.amp writes it, whose parameters have the given dtype."""
    nodes = [variable("data"), variable("weight"), variable("bias")]
    inputs = [(i, 0) for i in range(3)]
    if casts:
        for i in range(3):
            nodes.append(operator("amp_cast", f"{nodes[i]['name']}_half", [(i, 0)], {"dtype": "float16"}))
        inputs = [(i, 0) for i in range(3, 6)]
    nodes.append(operator("Convolution", "conv", inputs, {"kernel": "(3, 3)", "num_filter": 4}))
    nodes.append(operator("amp_cast", "out", [(len(nodes) - 1, 0)], {"dtype": output}))
    parameters = {"arg:weight": WEIGHT.astype(dtype), "arg:bias": BIAS.astype(dtype)}
    return save(folder, nodes, [(len(nodes) - 1, 0)], parameters)


@pytest.mark.parametrize("output", ["float32", "float16"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_casts(tmp_path, dtype, output):
    made = onnxbridge.convert(symbol(tmp_path, dtype, output=output), inputs={"data": ((2, 3, 6, 6), "float32")})
    assert made.report.agrees
    assert "MXNet (in float32, since its CPU has no float16 Convolution)" in str(made.report)


def test_parameters_without_casts(tmp_path):
    files = symbol(tmp_path, "float16", casts=False, output="float16")
    assert onnxbridge.convert(files, inputs={"data": ((2, 3, 6, 6), "float16")}).report.agrees
    with pytest.raises(onnxbridge.ConversionError, match="its data is float32 and its weight float16") as error:
        onnxbridge.convert(files, inputs={"data": ((2, 3, 6, 6), "float32")})
    assert "--inputs data:float16" in str(error.value)


def test_layers_are_measured(tmp_path):
    report = onnxbridge.convert(symbol(tmp_path, "float16"), inputs={"data": ((2, 3, 6, 6), "float32")}, layers=True).report
    assert report.agrees and report.layers


def test_float32_is_left_alone(tmp_path):
    nodes = [variable("data"), variable("weight"), operator("dot", "y", [(0, 0), (1, 0)])]
    files = save(tmp_path, nodes, [(2, 0)], {"arg:weight": WEIGHT.reshape(4, -1).T.astype(np.float32)})
    assert "in float32" not in str(onnxbridge.convert(files, inputs={"data": ((2, 27), "float32")}).report)
