"""Element types of eight bits and fewer, which TensorFlow carries in wider ones."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
import tensorflow as tf

from onnxbridge.backends.tensorflow import backend
from onnxbridge.hub.builder.builder import Builder
from onnxbridge.runtime import Executor

D = ir.DataType
INTEGERS = [D.INT4, D.UINT4, D.INT2, D.UINT2]
FLOATS = [D.FLOAT4E2M1, D.FLOAT8E4M3FN, D.FLOAT8E4M3FNUZ, D.FLOAT8E5M2, D.FLOAT8E5M2FNUZ, D.FLOAT8E8M0]
EDGES = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 2.0**-127, 1e38, -1e38]
VALUES = np.float32([*EDGES, *np.random.default_rng(0).standard_normal(300) * 10.0 ** np.linspace(-10, 6, 300)])


def _model(dtype, write):
    op = Builder()
    x = op.input("x", dtype, ["n"])
    results = write(op, x)
    return op.model([x], [op.output(y, f"y{i}") for i, y in enumerate(results if isinstance(results, tuple) else (results,))])


def _same(model, x):
    """The outputs of the module, which are those of the executor bit by bit, in the types of the hub."""
    module = backend.from_hub(model)
    found = backend.runner(module)({"x": x})
    for (name, got), want in zip(found.items(), Executor(ir.to_proto(model)).run(None, {"x": x}), strict=True):
        assert got.dtype == want.dtype, name
        got, want = (v.astype(np.float64) for v in (got, want))
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(np.signbit(got) & (got == got), np.signbit(want) & (want == want))
    return module, found


@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("to", FLOATS, ids=str)
def test_cast_to_narrow_floats(to, saturate):
    model = _model(D.FLOAT, lambda op, x: (op.Cast(x, to=to, saturate=saturate), op.Cast(op.Cast(x, to=to), to=D.DOUBLE)))
    _same(model, VALUES if to != D.FLOAT4E2M1 else VALUES[~np.isnan(VALUES)])


@pytest.mark.parametrize("round_mode", ["up", "down", "nearest"])
def test_cast_to_powers_of_two(round_mode):
    _same(_model(D.FLOAT, lambda op, x: op.Cast(x, to=D.FLOAT8E8M0, round_mode=round_mode)), VALUES)


@pytest.mark.parametrize("to", INTEGERS, ids=str)
def test_integers_of_a_few_bits(to):
    x = np.arange(-20, 20, dtype=np.int32)

    def write(op, x):
        narrow = op.Cast(x, to=to)
        return narrow, op.Cast(op.Reshape(narrow, [2, -1]), to=D.FLOAT)

    _same(_model(D.INT32, write), x)


@pytest.mark.parametrize("to", [*INTEGERS, *FLOATS[:5]], ids=str)
def test_quantization(to):
    scale = np.float32(0.37)

    def write(op, x):
        quantized = op.QuantizeLinear(x, scale, output_dtype=to)
        return quantized, op.DequantizeLinear(quantized, scale)

    _same(_model(D.FLOAT, write), np.linspace(-30, 30, 101, dtype=np.float32))


@pytest.mark.parametrize("dtype", [D.INT4, D.UINT2, D.FLOAT4E2M1, D.FLOAT8E4M3FNUZ], ids=str)
def test_inputs_weights_and_files(dtype, tmp_path):
    weights = np.array([1, 0, 1, 1]).astype(dtype.numpy())
    x = np.array([0, 1, 1, 0]).astype(dtype.numpy())

    def write(op, x):
        total = op.Add(op.Cast(x, to=D.FLOAT), op.Cast(op.constant(weights), to=D.FLOAT))
        return op.CastLike(total, x), op.Identity(x), total

    model = _model(dtype, write)
    module, found = _same(model, x)
    backend.save(module, tmp_path / "m")
    signature = tf.saved_model.load(str(tmp_path / "m")).signatures["serving_default"]
    carried = signature(x=tf.constant(x.astype(module.signature[0].dtype.as_numpy_dtype)))
    np.testing.assert_array_equal(carried["y0"].numpy().astype(np.float32), found["y0"].astype(np.float32))


@pytest.mark.parametrize("condition", [True, False])
def test_through_branches_and_loops(condition):
    def write(op, x):
        narrow = op.Cast(x, to=D.UINT4)
        is_positive = op.Greater(op.ReduceSum(x, keepdims=0), np.int32(0))
        chosen = op.If(is_positive, then_branch=lambda: narrow, else_branch=lambda: op.Identity(narrow))

        def body(iteration, condition, state):
            return [condition, op.Cast(op.Add(op.Cast(state, to=D.INT32), np.int32(7)), to=D.UINT4), state]

        _, states = op.Loop(np.int64(3), True, narrow, body=body, outputs=2)
        return chosen, op.Cast(states, to=D.FLOAT)

    _same(_model(D.INT32, write), np.int32([3, 15, 8]) * (1 if condition else -1))


@pytest.mark.parametrize("bits", [[0, 1, 1], [1, 0, 0]])
def test_bit_cast_of_booleans(bits):
    _same(_model(D.BOOL, lambda op, x: op.BitCast(x, to=D.UINT8)), np.array(bits, bool))
    _same(_model(D.UINT8, lambda op, x: op.BitCast(x, to=D.BOOL)), np.array(bits, np.uint8))


@pytest.mark.parametrize("to", FLOATS[:5], ids=str)
def test_float64_is_rounded_once(to):
    """Just beside the middle of two neighbors, where float32 is exactly between them."""
    step = float(ml_dtypes.finfo(to.numpy()).eps)
    x = np.array([1 + step / 2 + 1e-12, 1 + step / 2 - 1e-12])
    found = backend.runner(backend.from_hub(_model(D.DOUBLE, lambda op, x: op.Cast(x, to=to))))({"x": x})["y0"]
    assert list(found.astype(float)) == [1 + step, 1]


@pytest.mark.parametrize("to", [D.FLOAT8E4M3FN, D.FLOAT8E5M2], ids=str)
def test_nan_and_infinity_of_eight_bits(to):
    x = VALUES.astype(to.numpy())
    _same(_model(to, lambda op, x: (op.IsNaN(x), op.IsInf(x)) if to == D.FLOAT8E5M2 else op.IsNaN(x)), x)
