"""Networks that MXNet has quantized or fused, against the outputs of MXNet's own run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

import onnxbridge
from onnxbridge.frontends.mxnet import frontend, symbol_for_cpu
from onnxbridge.frontends.mxnet.symbol_for_cpu import adds_in_16_bits
from onnxbridge.runtime.mxnet import python
from tests.frontends.mxnet.test_operators import run_onnxruntime

NAMES = [
    *[f"residual-{k}" for k in ("float32", "int8", "auto", "smart", "channels", "uncalibrated")],
    *[f"activations-{k}" for k in ("float32", "int8", "auto", "smart", "channels")],
    *[f"branches-{k}" for k in ("float32", "int8", "auto", "smart", "channels")],
    *[f"attention-{k}" for k in ("float32", "auto", "smart", "channels")],
    *[f"plain-{k}" for k in ("float32", "unfused")],
]
REFUSED = "activations-uncalibrated"
DATA = {"data": ((2, 4, 12, 12), "float32")}
ROUNDING = 2.0**-18
"""The same integers on both sides: what differs is float32 arithmetic behind the last of them."""
OVERFLOWS = adds_in_16_bits()
"""On such a processor MXNet's own sums overflow, so that its outputs are only near those of the integers."""


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quantized")
    script = Path(__file__).with_name("export_quantized_models.py")
    subprocess.run([python(), str(script), str(folder)], check=True, capture_output=True)
    return folder


def test_every_exported_network_is_tested(models):
    assert {p.stem for p in models.glob("*.npz")} == {*NAMES, REFUSED}


@pytest.mark.parametrize("name", NAMES)
def test_equals_the_run_of_mxnet(models, name):
    data, expected = np.load(models / f"{name}.npz").values()
    model = frontend.to_hub(str(models / f"{name}-symbol.json"), {"data": (data.shape, "float32")})
    (found,) = run_onnxruntime(model, {"data": data}).values()
    if OVERFLOWS and not name.endswith("float32"):
        assert np.linalg.norm(found - expected) < np.linalg.norm(expected) / 2
    else:
        np.testing.assert_allclose(found, expected, rtol=0, atol=ROUNDING * np.abs(expected).max())
    kinds = {n.op_type for n in model.graph}
    assert ("QuantizeLinear" in kinds and "DequantizeLinear" in kinds) != name.endswith("float32")


def test_layers_without_a_range_that_they_need(models):
    source = str(models / f"{REFUSED}-symbol.json")
    with pytest.raises(onnxbridge.ConversionError, match="a fused convolution with a clip without a calibrated range") as error:
        onnxbridge.convert(source, inputs={"data": ((2, 4, 5, 5), "float32")})
    assert "calibrate the model" in str(error.value)


@pytest.mark.parametrize("overflows", [False, True])
def test_a_processor_whose_sums_overflow_is_no_reference(models, monkeypatch, overflows):
    monkeypatch.setattr(symbol_for_cpu, "adds_in_16_bits", lambda: overflows)
    for name, quantized in (("residual-auto", True), ("residual-float32", False)):
        made = onnxbridge.convert(str(models / f"{name}-symbol.json"), "onnx", inputs=DATA, atol=1e3)
        refused = "not compared with MXNet, which does not run here: the sums of MXNet's int8 layers overflow"
        assert any(refused in reason for reason in made.report.weak) == (overflows and quantized)


@pytest.mark.parametrize("target", ["pytorch", "tensorflow", "coreml"])
def test_other_targets(models, target):
    source = str(models / "residual-auto-symbol.json")
    made = onnxbridge.convert(source, target, inputs=DATA)
    assert made.report.agrees
