"""Quantized and compressed tensors: QUANTIZE, DEQUANTIZE, sparse constants, and weights that are stored in few bits."""

from __future__ import annotations

import numpy as np
import pytest

import onnxbridge
from onnxbridge.formats.tflite.schema import schema
from tests.frontends.tflite.build import G, Op, T, model
from tests.frontends.tflite.compare import agree, saved

VALUES = np.random.default_rng(3).uniform(-3, 3, (4, 5)).astype(np.float32)


def _one(tmp_path, *tensors, op, options=""):
    *inputs, y = tensors
    fed = [t for t in inputs if not t.constant]
    return saved(tmp_path, model(G(fed, [y], [Op(op, inputs, [y], options)])))


@pytest.mark.parametrize(("kind", "zero_point"), [("INT8", 3), ("UINT8", 128), ("INT16", 0)])
def test_quantize(tmp_path, kind, zero_point):
    x, y = T(VALUES, name="x"), T(type=kind, scale=0.03, zero_point=zero_point, name="y")
    agree(_one(tmp_path, x, y, op="QUANTIZE"), {"x": VALUES}, steps=1)


def test_quantize_with_other_parameters(tmp_path):
    stored = np.arange(-128, 128, dtype=np.int8)
    x, y = T(stored, name="x", scale=0.03, zero_point=3), T(type="INT8", scale=0.05, zero_point=-7, name="y")
    agree(_one(tmp_path, x, y, op="QUANTIZE"), {"x": stored}, steps=1)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
def test_dequantize(tmp_path, dtype):
    stored = np.random.default_rng(1).integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (4, 5)).astype(dtype)
    x = T(stored, name="x", scale=0.03, zero_point=0 if dtype == np.int16 else 3)
    agree(_one(tmp_path, x, T(type="FLOAT32", name="y"), op="DEQUANTIZE"), {"x": stored})


def test_dequantize_of_float16(tmp_path):
    w, x = T(VALUES.astype(np.float16), constant=True), T(VALUES, name="x")
    wide, y = T(type="FLOAT32", shape=(4, 5)), T(type="FLOAT32", name="y")
    source = saved(tmp_path, model(G([x], [y], [Op("DEQUANTIZE", [w], [wide]), Op("ADD", [x, wide], [y], "AddOptions")])))
    agree(source, {"x": VALUES})


def test_densify(tmp_path):
    """A matrix [3, 4] with a dense first and a compressed second dimension."""
    s = schema()
    dense = np.array([[0, 1, 0, 2], [0, 0, 0, 0], [3, 0, 4, 0]], np.float32)
    sparsity = s.SparsityParametersT()
    sparsity.traversalOrder = [0, 1]
    rows, columns = s.DimensionMetadataT(), s.DimensionMetadataT()
    rows.format, rows.denseSize = s.DimensionType.DENSE, 3
    columns.format = s.DimensionType.SPARSE_CSR
    for name, numbers in (("arraySegments", [0, 2, 2, 4]), ("arrayIndices", [1, 3, 0, 2])):
        vector = s.Int32VectorT()
        vector.values = numbers
        setattr(columns, name, vector)
        setattr(columns, f"{name}Type", s.SparseIndexVector.Int32Vector)
    sparsity.dimMetadata = [rows, columns]
    stored = T(np.zeros((3, 4), np.float32), constant=True, raw=dense[dense != 0].tobytes(), sparsity=sparsity)
    x, made = T(VALUES[:3, :4], name="x"), T(type="FLOAT32", shape=(3, 4))
    y = T(type="FLOAT32", name="y")
    source = saved(tmp_path, model(G([x], [y], [Op("DENSIFY", [stored], [made]), Op("ADD", [x, made], [y], "AddOptions")])))
    agree(source, {"x": VALUES[:3, :4]})


def test_weights_of_four_bits(tmp_path):
    """Weights [out, in] in int4 by channel, in a quantized layer."""
    weights = np.random.default_rng(5).integers(-7, 8, (6, 8)).astype(np.int8)
    low = weights.reshape(-1).view(np.uint8) & 15
    packed = (low[::2] | low[1::2] << 4).astype(np.uint8).tobytes()
    stored = np.random.default_rng(6).integers(-128, 128, (3, 8)).astype(np.int8)
    x = T(stored, name="x", scale=0.02, zero_point=1)
    scales = np.linspace(0.01, 0.02, 6).astype(np.float32)
    w = T(weights, type="INT4", constant=True, scale=scales, raw=packed)
    bias = T(np.arange(6, dtype=np.int32), constant=True, scale=scales * np.float32(0.02))
    y = T(type="INT8", name="y", scale=0.05, zero_point=-3)
    source = saved(tmp_path, model(G([x], [y], [Op("FULLY_CONNECTED", [x, w, bias], [y], "FullyConnectedOptions", version=7)])))
    agree(source, {"x": stored}, steps=1)


def test_operators_that_move_values_move_integers(tmp_path):
    stored = np.arange(-10, 10, dtype=np.int8).reshape(4, 5)
    quantized = {"scale": 0.03, "zero_point": 3}
    x, y = T(stored, name="x", **quantized), T(type="INT8", name="y", **quantized)
    order = T(np.array([1, 0], np.int32), constant=True)
    model_of_it = agree(_one(tmp_path, x, order, y, op="TRANSPOSE", options="TransposeOptions"), {"x": stored})
    assert [n.op_type for n in model_of_it.graph] == ["Transpose"]


@pytest.mark.parametrize("op", ["REVERSE_V2", "MAX_POOL_2D"])
def test_kernels_that_move_integers_ignore_other_parameters_of_the_output(tmp_path, op):
    """The converter writes such a file for REVERSE_V2, which it forgets to give the parameters of its input."""
    stored = np.arange(-8, 8, dtype=np.int8).reshape(1, 4, 4, 1)
    x, y = T(stored, name="x", scale=0.1), T(type="INT8", name="y", shape=(1, 4, 4, 1), scale=0.05, zero_point=3)
    if op == "REVERSE_V2":
        source = _one(tmp_path, x, T(np.array([1], np.int32), constant=True), y, op=op, options="ReverseV2Options")
    else:
        source = saved(tmp_path, model(G([x], [y], [Op(op, [x], [y], "Pool2DOptions", POOL)])))
    agree(source, {"x": stored})


POOL = {"padding": 1, "stride_w": 1, "stride_h": 1, "filter_width": 1, "filter_height": 1}


@pytest.mark.parametrize("activation", [1, 3])
def test_an_activation_of_moved_integers(tmp_path, activation):
    """RELU and RELU6 begin at the zero point."""
    stored = np.linspace(-128, 127, 16).astype(np.int8).reshape(1, 4, 4, 1)
    x, y = (T(stored, name="x", scale=0.1, zero_point=-3), T(type="INT8", name="y", shape=(1, 4, 4, 1), scale=0.1, zero_point=-3))
    options = {**POOL, "fused_activation_function": activation}
    agree(saved(tmp_path, model(G([x], [y], [Op("MAX_POOL_2D", [x], [y], "Pool2DOptions", options)]))), {"x": stored})


def test_kernels_of_means_are_up_to_a_step_away(tmp_path):
    """They round the zero point of the input, 192.25 steps of the output, before they round the mean."""
    stored = np.random.default_rng(0).integers(-128, 128, (2, 7, 9, 4)).astype(np.int8)
    x, y = T(stored, name="x", scale=0.0273, zero_point=15), T(type="INT8", name="y", scale=0.00213, zero_point=14, shape=(2, 4))
    axes = T(np.array([1, 2], np.int32), constant=True)
    source = saved(tmp_path, model(G([x], [y], [Op("MEAN", [x, axes], [y], "ReducerOptions", {"keep_dims": False})])))
    report = onnxbridge.convert(source).report
    assert report.agrees and report.outputs[0].tolerance.atol <= 2
