"""Inputs given with an MXNet model, and missing ones."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import onnxbridge
from onnxbridge.cli import group
from onnxbridge.errors import ConversionError, OnnxbridgeError, UsageError
from onnxbridge.frontends.mxnet import frontend
from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.runtime.mxnet import python, service
from tests.frontends.mxnet.build import operator, save, single, variable
from tests.frontends.mxnet.test_operators import run_onnxruntime

X = ((1, 3), "float32")


def dense(folder, arrays, **attrs):
    nodes = [variable("data"), variable("fc_weight", __shape__=(4, 3), **attrs), variable("fc_bias", __shape__=(4,), **attrs),
             operator("FullyConnected", "fc", [(0, 0), (1, 0), (2, 0)], {"num_hidden": 4})]  # fmt: skip
    return save(folder, nodes, [(3, 0)], arrays)


W, B = np.ones((4, 3), np.float32), np.ones(4, np.float32)


def test_missing_parameters_are_named(tmp_path):
    symbol, values = dense(tmp_path, {"arg:fc_weight": W})
    with pytest.raises(UsageError, match=r"parameters fc_bias have no values: they are not in the \.params file; pass the pair"):
        frontend.to_hub((symbol, values), {"data": X})
    _, gluon = dense(tmp_path, {"0.weight": W, "0.bias": B})
    with pytest.raises(UsageError, match=r"has others \(0\.weight, 0\.bias, \.\.\.\), as block\.save_parameters"):
        frontend.to_hub((symbol, gluon), {"data": X})
    values.unlink()
    with pytest.raises(UsageError, match=r"fc_weight, fc_bias have no values: there is no \.params file"):
        frontend.to_hub(symbol, {"data": X})
    out = str(tmp_path / "net.onnx")
    arguments = ["convert", str(symbol), "--to", "onnx", "-o", out, "--inputs", "data:float32[1,3]"]
    result = CliRunner().invoke(group, arguments)
    assert isinstance(result.exception, UsageError) and not os.path.exists(out)


def test_a_dense_layer_with_two_users(tmp_path):
    """MXNet's own optimizer gives both users the result with the activation."""
    nodes = [variable("data"), variable("fc_weight"), variable("fc_bias"),
             operator("FullyConnected", "fc", [(0, 0), (1, 0), (2, 0)], {"num_hidden": 4}),
             operator("sigmoid", "gate", [(3, 0)]), operator("Activation", "act", [(3, 0)], {"act_type": "softrelu"}),
             operator("elemwise_mul", "y", [(4, 0), (5, 0)])]  # fmt: skip
    weight = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    files = save(tmp_path, nodes, [(6, 0)], {"arg:fc_weight": weight, "arg:fc_bias": B})
    feeds = {"data": np.array([[1, -2, 3]], np.float32)}
    fc = feeds["data"] @ weight.T + B
    [result] = frontend.runner(files)(feeds).values()
    np.testing.assert_allclose(result, 1 / (1 + np.exp(-fc)) * np.log1p(np.exp(fc)), rtol=1e-5)
    assert onnxbridge.convert(files, inputs={"data": X}).report.passed


def test_described_parameters_are_inputs(tmp_path):
    symbol, _ = dense(tmp_path, {})
    model = frontend.to_hub((symbol, None), {"data": X, "fc_weight": ((4, 3), "float32"), "fc_bias": ((4,), "float32")})
    assert [v.name for v in model.graph.inputs] == ["data", "fc_weight", "fc_bias"]


def test_missing_parameters_of_any_operator_are_named(tmp_path):
    """Gluon marks every parameter with its learning rate."""
    nodes = [variable("data"), variable("scale", __shape__=(1, 3), __lr_mult__="1.0", __wd_mult__="1.0"),
             operator("broadcast_mul", "y", [(0, 0), (1, 0)])]  # fmt: skip
    symbol, values = save(tmp_path, nodes, [(2, 0)])
    with pytest.raises(UsageError, match="scale"):
        frontend.to_hub((symbol, values), {"data": X})


def test_missing_written_parameters_are_an_error(tmp_path):
    symbol, values = dense(tmp_path, {"arg:fc_weight": W, "arg:fc_bias": B})
    (tmp_path / "out").mkdir()
    conversion = onnxbridge.convert((symbol, values), to="mxnet", inputs={"data": X}, verify=False)
    conversion.save(tmp_path / "out" / "net")
    (tmp_path / "out" / "net-0000.params").unlink()
    with pytest.raises(UsageError, match="have no values"):
        frontend.to_hub(tmp_path / "out" / "net-symbol.json", {"data": X})


@pytest.mark.parametrize("item", [(1, 3, 64, 64), "x", 3, ((1, 3), object())])
def test_invalid_inputs(tmp_path, item):
    symbol, values = dense(tmp_path, {"arg:fc_weight": W, "arg:fc_bias": B})
    with pytest.raises(UsageError, match="an input is an array or a pair"):
        frontend.to_hub((symbol, values), {"data": item})


LIVE = """
import json, mxnet as mx, onnxbridge, warnings
from onnxbridge.errors import UsageError
warnings.simplefilter("ignore")

def net(dtype="float32"):
    made = mx.gluon.nn.HybridSequential()
    made.add(mx.gluon.nn.Conv2D(4, 3), mx.gluon.nn.Dense(2))
    made.initialize()
    made.cast(dtype)
    return made

found = {}
for name, inputs, dtype in (
    ("arrays", (mx.nd.ones((1, 3, 8, 8)),), "float32"), ("array", mx.nd.ones((1, 3, 8, 8)), "float32"),
    ("list", [mx.nd.ones((1, 3, 8, 8))], "float32"), ("named", {"data": mx.nd.ones((1, 3, 8, 8))}, "float32"),
    ("pair", ((1, 3, 8, 8), "float16"), "float16"), ("pairs", (((1, 3, 8, 8), "float16"),), "float16"),
    ("half", (mx.nd.ones((1, 3, 8, 8), dtype="float16"),), "float16"),
    ("shape", (1, 3, 8, 8), "float32"), ("named size", ((("N", 3, 8, 8), "float32"),), "float32"),
):
    try:
        model = onnxbridge.convert(net(dtype), to="onnx", inputs=inputs, verify=False).model
        found[name] = [str(model.graph.input[0].type.tensor_type.elem_type), len(model.graph.initializer)]
    except UsageError as error:
        found[name] = str(error)
print(json.dumps(found))
"""


def test_inputs_of_a_block_that_has_not_run():
    environment = os.environ | {"PYTHONPATH": str(Path(onnxbridge.__file__).parents[1])}
    result = subprocess.run([python(), "-c", LIVE], capture_output=True, text=True, env=environment, timeout=300)
    assert result.returncode == 0, result.stderr[-3000:]
    found = json.loads(result.stdout.splitlines()[-1])
    assert [found.pop(name)[0] for name in ("arrays", "array", "list", "named")] == ["1"] * 4
    assert [found.pop(name)[0] for name in ("pair", "pairs", "half")] == ["10"] * 3
    assert "an input is an array or a pair" in found["shape"]
    assert "call it once after hybridize()" in found["named size"]


LIVE_SOURCES = """
import json, sys, mxnet as mx, onnxbridge, warnings
from onnxbridge.errors import UsageError
warnings.simplefilter("ignore")

class Plain(mx.gluon.Block):
    def forward(self, x):
        return x + 1

dense = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=4, name="fc")
module = mx.mod.Module(dense, label_names=None)
found = {}

def convert(name, source):
    try:
        model = onnxbridge.convert(source, to="onnx", inputs=(mx.nd.ones((1, 3)),), verify=False).model
        found[name] = sorted(v.name for v in model.graph.initializer)
    except UsageError as error:
        found[name] = str(error)

convert("module without parameters", module)
module.bind([("data", (1, 3))], for_training=False)
module.init_params()
convert("module", module)
module.save_checkpoint(sys.argv[1], 1)
convert("symbol block", mx.gluon.SymbolBlock.imports(sys.argv[1] + "-symbol.json", ["data"], sys.argv[1] + "-0001.params"))
convert("plain block", Plain())
print(json.dumps(found))
"""


def test_other_live_sources(tmp_path):
    environment = os.environ | {"PYTHONPATH": str(Path(onnxbridge.__file__).parents[1])}
    command = [python(), "-c", LIVE_SOURCES, str(tmp_path / "net")]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert result.returncode == 0, result.stderr[-3000:]
    found = json.loads(result.stdout.splitlines()[-1])
    assert found["module"] == found["symbol block"] == ["fc_bias", "fc_weight"]
    assert "call its bind and init_params" in found["module without parameters"]
    assert "Plain is a gluon.Block" in found["plain block"] and "HybridBlock" in found["plain block"]


@pytest.mark.parametrize("op", ["_npi_var", "_npi_std", "moments"])
def test_variances_of_small_integers_are_refused(tmp_path, op):
    symbol, _ = save(tmp_path, [variable("data"), operator(op, "y", [(0, 0)], {})], [(1, 0)])
    with pytest.raises(ConversionError, match="integers of 16 bits or fewer, whose squares overflow"):
        frontend.to_hub(symbol, {"data": ((2, 3), "uint8")})


@pytest.mark.parametrize("rows", [0, 3, 5, 8])
def test_sections_of_a_dynamic_size(tmp_path, rows):
    split = operator("_split_v2", "y", [(0, 0)], {"indices": "[]", "sections": 4, "axis": 0})
    symbol, _ = save(tmp_path, [variable("data"), split], [(1, i) for i in range(4)], np_shape=True)
    model = frontend.to_hub(symbol, {"data": (("N", 3), "float32")})
    data = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
    for found, expected in zip(run_onnxruntime(model, {"data": data}).values(), np.array_split(data, 4), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_the_determinant_of_an_empty_matrix_is_1(tmp_path):
    nodes = [variable("data"), operator("_npi_slogdet", "y", [(0, 0)], {})]
    symbol, _ = save(tmp_path, nodes, [(1, 0), (1, 1)], np_shape=True)
    model = frontend.to_hub(symbol, {"data": ((2, 0, 0), "float32")})
    sign, logarithm = run_onnxruntime(model, {"data": np.zeros((2, 0, 0), np.float32)}).values()
    assert sign.tolist() == [1, 1] and logarithm.tolist() == [0, 0]


def test_custom_operators_are_named(tmp_path):
    symbol, values = save(tmp_path, [variable("data"), operator("Custom", "c", [(0, 0)], {"op_type": "soft_clip"})], [(1, 0)])
    with pytest.raises(ConversionError, match="Custom:soft_clip x1: no rule"):
        frontend.to_hub((symbol, values), {"data": X})

    def soft_clip(op, data, *, limit=1.0):
        return op.Mul(op.Tanh(data), limit)

    rule("Custom:soft_clip")(soft_clip)
    try:
        assert [n.op_type for n in frontend.to_hub((symbol, values), {"data": X}).graph] == ["Tanh", "Mul"]
    finally:
        del rule["Custom:soft_clip"]


@pytest.mark.parametrize(
    ("op", "arrays", "attrs", "message"),
    [
        ("_linalg_potrf", [-np.ones((2, 2), np.float32)], {}, "not positive definite"),
        ("dot", [W, W], {}, "dot shape error"),
        ("nosuchop", [W], {}, "nosuchop is not registered"),
    ],
)
def test_the_relevant_line_of_an_error(tmp_path, op, arrays, attrs, message):
    (symbol, values), feeds = single(tmp_path, op, arrays, attrs)
    with pytest.raises(OnnxbridgeError, match=message) as raised:
        service().run(symbol, values, feeds)
    assert "\n" not in str(raised.value) and "Traceback" not in str(raised.value)


@pytest.mark.parametrize("op", ["sign", "_npi_sign", "_contrib_sign_ste"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
def test_the_sign_of_nan(tmp_path, op, dtype):
    import onnx_ir as ir
    import onnxruntime

    x = np.array([-2, 0, 3, np.nan if dtype != np.int32 else 1, -np.inf if dtype != np.int32 else -1]).astype(dtype)
    (symbol, values), feeds = single(tmp_path, op, [x], {})
    model = frontend.to_hub((symbol, values), {"data0": x})
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    expected = service().run(symbol, values, feeds)
    np.testing.assert_array_equal(session.run(None, {"data0": x})[0], next(iter(expected.values())))
