"""The builder: promotion, checks, types, folding, bodies, names."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from onnxbridge.errors import SourceLocation, Unsupported
from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.ir import source_locations

FLOAT, INT64 = ir.DataType.FLOAT, ir.DataType.INT64


@pytest.fixture
def op():
    return Builder()


def built(op, inputs, *outputs):
    """The finished model, checked by onnx."""
    model = op.model(inputs, [op.output(v, f"out{i}") for i, v in enumerate(outputs)])
    proto = ir.to_proto(model)
    proto.ir_version = 10
    onnx.checker.check_model(proto, full_check=True)
    return proto


def computed(proto, **feeds):
    return onnxruntime.InferenceSession(proto.SerializeToString()).run(None, feeds)


def test_constants_get_the_dtype_of_the_operand(op):
    for dtype in (FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE, INT64, ir.DataType.INT8):
        x = op.input(f"x_{dtype.name}", dtype, [2])
        assert op.Add(x, 1).dtype == dtype
        assert op.Clip(x, 0, 6).dtype == dtype


def test_an_unrepresentable_constant_is_an_error(op):
    x = op.input("x", INT64, [2])
    with pytest.raises(TypeError, match="0.5 for 'B' is not a INT64"):
        op.Add(x, 0.5)
    with pytest.raises(TypeError, match="out of range"):
        op.Add(op.input("b", ir.DataType.UINT8, [2]), 300)


def test_arrays_keep_their_dtype(op):
    x = op.input("x", FLOAT, [2])
    with pytest.raises(TypeError, match="'B' is DOUBLE, its other operand is FLOAT"):
        op.Add(x, np.zeros(2))


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda op, x: op.Conv(x), "Conv needs 2 inputs, not 1"),
        (lambda op, x: op.Relu(x, x), "Relu takes 1 inputs, not 2"),
        (lambda op, x: op.Softmax(x, dim=1), "Softmax has no attribute 'dim'"),
        (lambda op, x: op.Softmax(x, axis="1"), "attribute 'axis' must be int"),
        (lambda op, x: op.Cast(x), "Cast needs the attribute 'to'"),
        (lambda op, x: op.And(x, x), "ONNX's And does not take float as 'A'"),
        (lambda op, x: op.MatMul(x, np.zeros((5, 5), np.float32)), "MatMul: .*ncompatible"),
    ],
)
def test_invalid_nodes_are_refused_when_created(op, write, message):
    with pytest.raises(TypeError, match=message):
        write(op, op.input("x", FLOAT, [2, 3]))


def test_a_dtype_that_an_operator_does_not_take_is_refused_and_not_a_fault(op):
    with pytest.raises(Unsupported, match="ONNX's And does not take float as 'A'") as error:
        op.And(*[op.input("x", FLOAT, [2])] * 2)
    assert error.value.hint == "cast it to a dtype that it takes"


@pytest.mark.parametrize("dtype", [ir.DataType.BFLOAT16, ir.DataType.FLOAT16])
def test_what_onnx_lacks_for_half_precision_is_computed_in_float32(op, dtype):
    x = op.input("x", dtype, [2, 3])
    bounds = [op.input(name, dtype, []) for name in "abc"]
    y = op.Einsum(x, x, equation="ij,kj->ik") if dtype == ir.DataType.BFLOAT16 else op.Range(*bounds)
    assert y.dtype == dtype
    assert y.producer().op_type == "Cast" and y.producer().inputs[0].dtype == FLOAT


def test_a_refused_half_precision_keeps_its_name(op):
    with pytest.raises(Unsupported, match="ONNX's And does not take bfloat16 as 'A'"):
        op.And(*[op.input("x", ir.DataType.BFLOAT16, [2])] * 2)


def test_an_unknown_operator_is_an_error(op):
    with pytest.raises(ValueError, match="ONNX has no operator Rleu at opset 26"):
        op.Rleu(op.input("x", FLOAT, [2]))


def test_types_and_shapes_are_inferred_when_nodes_are_created(op):
    x = op.input("x", FLOAT, ["N", 3, 9, 9])
    y = op.Conv(x, np.zeros((4, 3, 3, 3), np.float32), strides=[2, 2])
    assert y.dtype == FLOAT and str(y.shape) == "[N,4,4,4]"
    values, indices = op.TopK(op.Flatten(y), [2], outputs=2)
    assert indices.dtype == INT64 and str(values.shape) == "[N,2]"


def test_constant_results_are_folded(op):
    x = op.input("x", FLOAT, ["N", 3, 4])
    kernel = op.constant(np.arange(6, dtype=np.float32).reshape(2, 3), "kernel")
    transposed = op.Transpose(kernel, perm=[1, 0])
    assert transposed.const_value.numpy().base is not None, "a view, not a copy"
    assert transposed.name == "kernel.transpose"
    rest = op.Shape(x, start=1)
    assert rest.const_value.numpy().tolist() == [3, 4]
    assert op.Gather(op.Shape(x), [2]).const_value.numpy().tolist() == [4]
    assert op.Gather(op.Shape(x), [0]).const_value is None
    assert op.ConstantOfShape([1 << 30]).const_value is None, "large results stay a node"
    assert op.size(x, 2) == 4 and op.size(x, -3).const_value is None


def test_a_shape_of_integers_and_values(op):
    x = op.input("x", FLOAT, ["N", "M", 4])
    n, m = op.size(x, 0), op.size(x, 1)
    y = op.Reshape(x, op.dims([op.Mul(n, m), 2, 2]))
    z = op.reshape(x, [n, 2, m, 2])
    w = op.reshape(y, [n, -1, 2])
    proto = built(op, [x], y, z, w)
    got = computed(proto, x=np.arange(24, dtype=np.float32).reshape(2, 3, 4))
    assert [g.shape for g in got] == [(6, 2, 2), (2, 2, 3, 2), (2, 6, 2)]


def test_branches_and_loops_are_callables(op):
    x = op.input("x", FLOAT, [2])
    total = op.ReduceSum(x, keepdims=0)
    y = op.If(op.Greater(total, 0), then_branch=lambda: op.Neg(x), else_branch=lambda: x)
    n, z = op.Loop(
        4, True, op.constant(np.int64(0)), x, body=lambda i, cond, count, v: (cond, op.Add(count, i), op.Mul(v, 2)), outputs=2
    )
    assert y.dtype == FLOAT and n.dtype == INT64
    got = computed(built(op, [x], y, n, z), x=np.array([1, 2], np.float32))
    assert got[0].tolist() == [-1, -2] and got[1] == 6 and got[2].tolist() == [16, 32]


def test_outputs_keep_their_names_whatever_they_are(op):
    x = op.input("x", FLOAT, [2])
    y = op.Relu(x)
    proto = built(op, [x], y, y, x, op.constant(np.ones(2, np.float32)))
    assert [o.name for o in proto.graph.output] == ["out0", "out1", "out2", "out3"]


def test_nodes_have_a_source_location(op):
    x = op.input("x", FLOAT, [2])
    where = SourceLocation("net.py", 22, "encoder.layer.0", "relu_1")
    with op.scope("relu_1", where):
        y = op.Relu(op.Neg(x))
        op.rename(y, "relu_1")
    assert y.name == "relu_1" and y.producer().inputs[0].name == "relu_1/Neg"
    assert source_locations.read(y.producer()) == where


def test_equal_weights_are_not_merged(op):
    zeros = np.zeros(4, np.float32)
    assert op.constant(zeros, "a.bias") is not op.constant(zeros, "b.bias")


def test_equal_small_constants_are_merged(op):
    x = op.input("x", FLOAT, [2])
    first = op.Add(x, 1.0).producer().inputs[1]
    assert op.Mul(x, 1.0).producer().inputs[1] is first
    assert op.Add(op.input("i", INT64, [2]), 1).producer().inputs[1] is not first


@pytest.mark.parametrize("value", ["käfer", "käfer".encode(), np.array("käfer".encode()), np.str_("käfer")])
def test_strings_are_stored_as_utf8(op, value):
    value_ = op.constant(value)
    assert value_.dtype == ir.DataType.STRING and value_.const_value.string_data() == ["käfer".encode()]
    labels = op.call("LabelEncoder", op.input("s", ir.DataType.STRING, [1]), domain="ai.onnx.ml", keys_strings=[value],
                     values_int64s=[1]) if not isinstance(value, np.ndarray) else None  # fmt: skip
    if labels is not None:
        assert list(labels.producer().attributes["keys_strings"].value) == ["käfer"]


def test_invalid_utf8_and_non_strings_are_errors(op):
    with pytest.raises(Unsupported, match="not valid UTF-8"):
        op.constant(b"\xff")
    with pytest.raises(TypeError, match="not a string"):
        op.constant(np.array([3, None], dtype=object))
