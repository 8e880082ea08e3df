"""Whole Gluon networks, converted to ONNX and back to MXNet, compared with MXNet."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from onnxbridge.backends.mxnet import backend
from onnxbridge.frontends.mxnet import frontend
from onnxbridge.runtime.mxnet import python
from tests.frontends.mxnet.test_operators import run_onnxruntime

SHAPES = {
    "resnet18": (2, 3, 64, 64), "mobilenet": (1, 3, 64, 64), "lstm": (4, 3, 3), "gru": (2, 4, 3), "unrolled": (2, 3, 5),
    "control": (5, 4),
}  # fmt: skip
# about a hundred float32 layers, each with a rounding error of 2^-24
ROUNDING = 2.0**-14


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gluon")
    script = Path(__file__).with_name("export_models.py")
    subprocess.run([python(), str(script), str(folder)], check=True, capture_output=True)
    return folder


def feeds_of(name):
    shape = SHAPES[name]
    feeds = np.random.RandomState(1).uniform(-1, 1, shape).astype(np.float32)
    return {"data": feeds}


def check_equal(found, expected):
    assert list(found) == list(expected)
    for name, reference in expected.items():
        assert found[name].shape == reference.shape and found[name].dtype == reference.dtype
        close = ROUNDING * np.abs(reference).max()
        np.testing.assert_allclose(found[name], reference, rtol=ROUNDING, atol=close)


@pytest.mark.parametrize("name", SHAPES)
def test_to_onnx(models, name):
    feeds = feeds_of(name)
    source = str(models / f"{name}-symbol.json")
    model = frontend.to_hub(source, {n: (v.shape, "float32") for n, v in feeds.items()})
    check_equal(run_onnxruntime(model, feeds), frontend.runner(source)(feeds))


@pytest.mark.parametrize("name", ["resnet18", "mobilenet", "lstm", "gru", "unrolled"])
def test_round_trip(models, name, tmp_path):
    feeds = feeds_of(name)
    source = (models / f"{name}-symbol.json", models / f"{name}-0000.params")
    artifact = backend.from_hub(frontend.to_hub(source, {n: (v.shape, "float32") for n, v in feeds.items()}))
    expected = frontend.runner(source)(feeds)
    check_equal(backend.runner(artifact)(feeds), expected)
    saved = backend.save(artifact, tmp_path / "saved")
    check_equal(frontend.runner(saved)(feeds), expected)  # output names are preserved in MXNet


def test_a_dynamic_batch(models):
    source = (models / "resnet18-symbol.json", models / "resnet18-0000.params")
    model = frontend.to_hub(source, {"data": (("N", 3, 64, 64), "float32")})
    artifact = backend.from_hub(model)
    for batch in (1, 3):
        feeds = {"data": np.random.RandomState(batch).rand(batch, 3, 64, 64).astype(np.float32)}
        expected = frontend.runner(source)(feeds)
        check_equal(run_onnxruntime(model, feeds), expected)
        check_equal(backend.runner(artifact)(feeds), expected)


def test_weights_are_not_copied(models):
    source = (models / "resnet18-symbol.json", models / "resnet18-0000.params")
    model = frontend.to_hub(source, {"data": ((1, 3, 64, 64), "float32")})
    kernels = [v.const_value.numpy() for v in model.graph.initializers.values() if len(v.shape) == 4]
    assert kernels and not any(k.flags.owndata for k in kernels)


@pytest.mark.slow
def test_a_live_block_in_mxnets_own_interpreter(tmp_path):
    """If MXNet is importable, live blocks and symbols are sources."""
    code = """
import sys, os
os.environ.pop("ONNXBRIDGE_MXNET_PYTHON", None)
import mxnet as mx, numpy as np
from onnxbridge.frontends.mxnet import frontend
net = mx.gluon.nn.HybridSequential()
net.add(mx.gluon.nn.Dense(3), mx.gluon.nn.BatchNorm())
net.initialize()
x = np.ones((2, 4), np.float32)
assert frontend.accepts(net)
model = frontend.to_hub(net, {"data": ((2, 4), "float32")})
assert [n.op_type for n in model.graph] == ["Gemm", "BatchNormalization"], [n.op_type for n in model.graph]
(y,) = frontend.runner(net)({"data": x}).values()
assert np.allclose(y, net(mx.nd.array(x)).asnumpy())
symbol = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2, name="fc")
arrays = {"fc_weight": mx.nd.ones((2, 4)), "fc_bias": mx.nd.ones((2,))}
assert frontend.accepts((symbol, arrays))
model = frontend.to_hub((symbol, arrays), {"data": ((2, 4), "float32")})
assert [o.name for o in model.graph.outputs] == ["fc_output"]
import onnxbridge
assert onnxbridge.convert(net, inputs=(mx.nd.array(x),)).report.agrees  # example inputs that are MXNet's own arrays
"""
    import onnxbridge

    source_root = str(Path(onnxbridge.__file__).parents[1])
    done = subprocess.run([python(), "-c", code], capture_output=True, text=True, env={"PYTHONPATH": source_root}, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
