"""Networks that MXNet 2.0.0b1 has exported, whose parameters are in an `.npz` archive."""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest

import onnxbridge
from onnxbridge.errors import UnsafeFileError
from onnxbridge.formats.mxnet import read_params
from onnxbridge.frontends.mxnet import frontend
from onnxbridge.hub.io.detect_format import detect_format
from tests.frontends.mxnet.test_operators import run_onnxruntime

NAMES = ["layers", "resnet", "mobilenet", "recurrent", "attention", "arrays"]
# about a hundred float32 layers, each with a rounding error of 2^-24
ROUNDING = 2.0**-14


@pytest.fixture(autouse=True)
def mxnet_2(monkeypatch):
    monkeypatch.setenv("ONNXBRIDGE_MXNET_PYTHON", os.environ["ONNXBRIDGE_MXNET_2_PYTHON"])


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("version_2")
    script = Path(__file__).with_name("export_models_of_version_2.py")
    subprocess.run([os.environ["ONNXBRIDGE_MXNET_2_PYTHON"], str(script), str(folder)], check=True, capture_output=True)
    return folder


def arrays_of(folder, name):
    """The inputs by name, and the outputs."""
    with np.load(folder / f"{name}.npz") as arrays:
        inputs = [arrays[k] for k in arrays.files if k.startswith("input")]
        outputs = [arrays[k] for k in arrays.files if k.startswith("output")]
    return dict(zip(["data"] if len(inputs) == 1 else ["data0", "data1"], inputs, strict=True)), outputs


@pytest.mark.parametrize("name", NAMES)
def test_to_onnx(models, name):
    feeds, expected = arrays_of(models, name)
    model = frontend.to_hub(str(models / f"{name}-symbol.json"), {n: (v.shape, v.dtype) for n, v in feeds.items()})
    for found, reference in zip(run_onnxruntime(model, feeds).values(), expected, strict=True):
        assert (found.shape, found.dtype) == (reference.shape, reference.dtype)
        np.testing.assert_allclose(found, reference, rtol=ROUNDING, atol=ROUNDING * np.abs(reference).max())


@pytest.mark.parametrize("target", ["onnx", "pytorch"])
@pytest.mark.parametrize("name", ["layers", "attention"])
def test_compared_with_mxnet_2(models, name, target):
    feeds, _ = arrays_of(models, name)
    made = onnxbridge.convert(str(models / name), target, inputs={n: (v.shape, str(v.dtype)) for n, v in feeds.items()})
    assert made.report.agrees and not made.report.weak


def test_control_flow_is_refused(models):
    with pytest.raises(onnxbridge.ConversionError, match="_npx_foreach x1: MXNet 2 writes control flow without"):
        frontend.to_hub(str(models / "control"), {"data": ((3, 4), "float32")})


def test_archives_of_parameters(models, tmp_path):
    params = models / "layers-0000.params"
    assert detect_format(params) == "mxnet-params"
    with np.load(params) as expected:
        found = read_params.read(params)
        assert found.keys() == set(expected.files) and found
        for name, array in found.items():
            np.testing.assert_array_equal(array, expected[name])
    compressed = tmp_path / "net.params"
    values = {"arg:a": np.arange(6, dtype=np.int8).reshape(2, 3), "aux:b": np.asfortranarray(np.ones((2, 3))), "c": np.float16(2)}
    np.savez_compressed(compressed.with_suffix(".npz"), **values)
    compressed.with_suffix(".npz").rename(compressed)
    for name, array in read_params.read(compressed).items():
        np.testing.assert_array_equal(array, values[name])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.npy", b"no array", "is not an array"),
        ("a.npy", b"\x93NUMPY\x01\x00\x10\x00" + b"{'descr': 9999} ".ljust(16), "is not an array"),
        ("a.npy", b"\x93NUMPY\x01\x00\x04\x00{'a\n", "is not an array"),
        ("a.txt", b"", "is no array"),
        ("a/indices.npy", b"", "belongs to a sparse array"),
    ],
)  # fmt: skip
def test_damaged_archives(tmp_path, name, content, message):
    with zipfile.ZipFile(tmp_path / "net.params", "w") as archive:
        archive.writestr(name, content)
    with pytest.raises(UnsafeFileError, match=message):
        read_params.read(tmp_path / "net.params")


@pytest.mark.parametrize("array", [np.array([object()]), np.array(["text"], object)])
def test_python_objects_are_refused(tmp_path, array):
    np.savez(tmp_path / "net.npz", a=array)
    with pytest.raises(UnsafeFileError, match="no array of numbers"):
        read_params.read(tmp_path / "net.npz")
