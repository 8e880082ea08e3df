"""Operators that the user keeps in float32."""

import numpy as np
import onnx_ir as ir
import pytest

import onnxbridge
from onnxbridge.backends.coreml import backend
from onnxbridge.errors import UsageError
from onnxbridge.hub.builder.builder import Builder

FLOAT, INT8, INT64 = ir.DataType.FLOAT, ir.DataType.INT8, ir.DataType.INT64
R = np.random.default_rng(1)
WEIGHT = R.standard_normal((8, 8)).astype(np.float32)


def overflowing():
    """x * 300 * 300 exceeds 65504; the reciprocal makes it small again."""
    op = Builder()
    x = op.input("x", FLOAT, [2, 8])
    large = op.Mul(op.Mul(op.Add(op.Abs(x), np.float32(1)), np.float32(300)), np.float32(300))
    large.name = "large"
    y = op.MatMul(op.Reciprocal(large), WEIGHT)
    return op.model([x], [op.output(y, "y")])


def dtypes(artifact):
    """The dtype of each operator's first result, by the name that the hub gives it."""
    spec = artifact.model.get_spec()
    (block,) = spec.mlProgram.functions["main"].block_specializations.values()
    return {(o.type, o.outputs[0].name): o.outputs[0].type.tensorType.dataType for o in block.operations}


def error(artifact):
    x = {"x": R.standard_normal((2, 8)).astype(np.float32)}
    want = onnxbridge.runtime.Executor(overflowing()).run(None, x)[0]
    return float(np.abs(artifact.run(x)["y"] - want).max() / np.abs(want).max())


def test_operators_that_overflow_are_kept_in_float32_by_type_and_by_name():
    assert error(backend.from_hub(overflowing(), compute_precision="fp16")) == 1.0  # the reciprocal of infinity
    for names in (["Mul", "Reciprocal"], ["large", "Reciprocal"], ["lar*", "Recip*"]):
        made = backend.from_hub(overflowing(), compute_precision="fp16", float32_ops=names)
        assert error(made) < 0.01
        (note,) = (n for n in made.notes if "requested by float32_ops" in n)
        assert "large" in note
    assert not [n for n in backend.from_hub(overflowing(), compute_precision="fp16").notes if "requested" in n]


def test_operator_that_is_fused_with_the_next_one():
    op = Builder()
    x = op.input("x", FLOAT, [2, 8])
    y = op.Add(op.MatMul(x, WEIGHT), WEIGHT[0])
    made = op.model([x], [op.output(op.Neg(y), "y")])
    artifact = backend.from_hub(made, compute_precision="fp16", float32_ops=["MatMul"])
    (linear,) = (dtype for (kind, _), dtype in dtypes(artifact).items() if kind == "linear")
    assert linear == 11  # float32


def test_program_says_what_it_computes_in_float32():
    made = overflowing()
    artifact = backend.from_hub(made, compute_precision="fp16", float32_ops=["large"], minimum_deployment_target="iOS16")
    assert backend.float32_values(artifact, made) == {"large"}
    assert dict(backend.options_of(artifact)) == {
        "compute_precision": "fp16", "float32_ops": ["large"], "minimum_deployment_target": "iOS16",
    }  # fmt: skip
    assert not backend.float32_values(backend.from_hub(made, compute_precision="fp16"), made)


def test_reopened_program_has_its_bounds_and_interface(tmp_path):
    op = Builder()
    x = op.input("x", FLOAT, ["N", 3, 8, 8])
    made = op.model([x], [op.output(op.Sigmoid(x), "y")])
    options = {"compute_precision": "fp16", "bounds": {"N": (2, 5)}}
    (path,) = backend.save(backend.from_hub(made, **options), tmp_path / "net.mlpackage")
    assert dict(backend.options_of(backend.open(path))) == options
    options = {"compute_precision": "fp16", "image": ["x:BGR,scale=0.5,bias=1/2/3,layout=NCHW"], "shapes": ["x:1x3x8x8"]}
    again = backend.options_of(backend.from_hub(made, **options))
    assert dict(backend.options_of(backend.from_hub(made, **again))) == dict(again) and again["image"] == options["image"]


def test_division_by_a_constant_and_transposes_that_coremltools_rewrites():
    op = Builder()
    x = op.input("x", FLOAT, [2, 8, 8])
    y = op.MatMul(op.Div(x, np.float32(3)), op.Transpose(op.Exp(x), perm=[0, 2, 1]))
    made = op.model([x], [op.output(y, "y")])
    found = dtypes(backend.from_hub(made, compute_precision="fp16", float32_ops=["*"]))
    assert {"mul", "matmul"} <= {kind for kind, _ in found}
    assert not [name for (kind, name), dtype in found.items() if dtype == 10 and kind not in ("const", "cast")]  # float16


def test_unknown_name_is_reported_with_those_of_the_model():
    with pytest.raises(UsageError, match=r"no operator and no value 'larg', the nearest is 'large'; give .*MatMul"):
        backend.from_hub(overflowing(), compute_precision="fp16", float32_ops=["larg"])


def test_option_requires_half_precision():
    with pytest.raises(UsageError, match="float32_ops requires compute_precision"):
        onnxbridge.convert(overflowing(), "coreml", float32_ops=["Mul"])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_quantized_table_is_stored_in_its_own_dtype(dtype):
    table = R.integers(0 if dtype == np.uint8 else -128, 128, (500, 16)).astype(dtype)
    op = Builder()
    ids = op.input("ids", INT64, [3])
    y = op.DequantizeLinear(op.Gather(table, ids), np.float32(0.5), dtype(3))
    made = op.model([ids], [op.output(y, "y")])
    artifact = backend.from_hub(made)
    assert artifact.model.get_spec().ByteSize() < table.size  # it is in the weight file, not in the program
    feeds = {"ids": np.array([0, 7, 499])}
    assert np.array_equal(artifact.run(feeds)["y"], (table[feeds["ids"]].astype(np.float32) - 3) / 2)
