"""Layers written with `mx.np`, converted to ONNX and back to MXNet, compared with what MXNet computes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

import onnxbridge
from onnxbridge.frontends.mxnet import frontend
from onnxbridge.runtime.mxnet import python
from tests.frontends.mxnet.test_operators import run_onnxruntime

SCRIPT = Path(__file__).with_name("export_numpy_models.py")
NAMES = re.findall(r"^def (\w+)\(np, npx, net", SCRIPT.read_text(), re.MULTILINE)
# a few dozen float32 operations, each with a rounding error of 2^-24, and some approximations of MXNet
ROUNDING = 2.0**-16


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("numpy")
    subprocess.run([python(), str(SCRIPT), str(folder)], check=True, capture_output=True)
    return folder


def load(folder, name):
    """The path of a symbol, its inputs, and the outputs of MXNet."""
    arrays = dict(np.load(folder / f"{name}.npz"))
    inputs = {k: v for k, v in arrays.items() if k.startswith("data")}
    return str(folder / f"{name}-symbol.json"), inputs, [v for k, v in arrays.items() if k not in inputs]


def test_every_layer_is_tested(models):
    assert {p.stem for p in models.glob("*.npz")} == set(NAMES) and len(NAMES) >= 65


@pytest.mark.parametrize("name", NAMES)
def test_to_onnx(models, name):
    source, inputs, expected = load(models, name)
    model = frontend.to_hub(source, {n: (v.shape, v.dtype) for n, v in inputs.items()})
    found = list(run_onnxruntime(model, inputs).values())
    assert [(v.shape, v.dtype) for v in found] == [(v.shape, v.dtype) for v in expected]
    for output, reference in zip(found, expected, strict=True):
        if reference.dtype.kind == "f":
            close = ROUNDING * np.abs(reference).max(initial=0)
            np.testing.assert_allclose(output, reference, rtol=ROUNDING, atol=close)
        else:
            np.testing.assert_array_equal(output, reference)


@pytest.mark.parametrize("name", NAMES)
def test_round_trip(models, name):
    source, inputs, _ = load(models, name)
    result = onnxbridge.convert(source, to="mxnet", inputs={n: (v.shape, str(v.dtype)) for n, v in inputs.items()})
    assert result.report.verdict in ("PASSED", "WEAK")
