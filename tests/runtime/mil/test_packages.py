"""Modified Core ML packages: nothing outside of a package is read, and nothing in it is changed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
from pathlib import Path

import coremltools as ct
import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from coremltools.converters.mil import Builder as mb

import onnxbridge
from onnxbridge.backends.coreml import backend
from onnxbridge.cli import group
from onnxbridge.errors import OnnxbridgeError, UnsafeFileError
from onnxbridge.runtime.mil import Interpreter

MODEL = os.path.join("Data", "com.apple.CoreML", "model.mlmodel")
WEIGHTS = os.path.join("Data", "com.apple.CoreML", "weights")


@pytest.fixture(scope="session")
def valid_package(tmp_path_factory):
    weight = np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)

    @mb.program(input_specs=[mb.TensorSpec((1, 32))])
    def program(x):
        return mb.linear(x=x, weight=weight)

    path = tmp_path_factory.mktemp("coreml") / "net.mlpackage"
    ct.convert(program, compute_precision=ct.precision.FLOAT32, skip_model_load=True).save(str(path))
    return path


@pytest.fixture
def net(valid_package, tmp_path):
    return shutil.copytree(valid_package, tmp_path / "net.mlpackage")


def folder_state(folder):
    """Name, type, modification time and content of everything in a folder."""
    found = {}
    for root, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = Path(root, name)
            data = b"" if name in folders else path.read_bytes()
            found[str(path)] = (os.lstat(path).st_mtime_ns, os.lstat(path).st_ino, hashlib.sha256(data).hexdigest())
    found["itself"] = os.lstat(folder).st_mtime_ns
    return found


@pytest.mark.parametrize("command", ["inspect", "check", "convert", "verify"])
def test_packages_are_not_changed(net, tmp_path, command):
    manifest = net / "Manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text())))  # formatted differently
    out = str(tmp_path / "net.onnx")
    if command == "verify":
        assert CliRunner().invoke(group, ["convert", str(net), "--to", "onnx", "-o", out]).exit_code == 0
    before = folder_state(net)
    options = {"convert": ["--to", "onnx", "-o", out], "verify": [out]}.get(command, [])
    result = CliRunner().invoke(group, [command, str(net), *options])
    assert result.exit_code == 0, (result.output, result.exception)
    assert folder_state(net) == before


@pytest.fixture(scope="session")
def written_package(tmp_path_factory):
    """A package written by onnxbridge."""
    weight = np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])], "g",
            [onnx.helper.make_tensor_value_info("x", 1, [1, 64])], [onnx.helper.make_tensor_value_info("y", 1, [1, 32])],
            [onnx.numpy_helper.from_array(weight, "w")],
        ), opset_imports=[onnx.helper.make_opsetid("", 21)],
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("written")
    onnx.save(model, folder / "net.onnx")
    onnxbridge.convert(folder / "net.onnx", to="coreml").save(folder / "net.mlpackage")
    return folder / "net.mlpackage"


def test_opening_a_written_package_does_not_change_it(written_package):
    before = folder_state(written_package)
    model = backend.reopen(written_package).artifact.model
    assert folder_state(written_package) == before
    x = np.ones((1, 64), np.float32)
    for name, value in Interpreter(written_package).run({"x": x}).items():
        np.testing.assert_array_equal(value, Interpreter(model).run({"x": x})[name])


def manifest(path, change):
    file = path / "Manifest.json"
    found = json.loads(file.read_text())
    change(found)
    file.write_text(json.dumps(found))


def root(path, location):
    def change(found):
        found["itemInfoEntries"][found["rootModelIdentifier"]]["path"] = location

    manifest(path, change)


def replace_file(path, make):
    """Move a file out of the package, and replace it."""
    holder = next(p for p in path.parents if p.suffix == ".mlpackage")
    outside = holder.parent / f"outside-{path.name}"
    shutil.move(path, outside)
    make(outside, path)


MALICIOUS = {
    "path out of the package": lambda p: (shutil.copy(p / MODEL, p.parent / "other.mlmodel"), root(p, "../../other.mlmodel")),
    "path out of the data": lambda p: (shutil.copy(p / MODEL, p / "other.mlmodel"), root(p, "../other.mlmodel")),
    "absolute path": lambda p: (shutil.copy(p / MODEL, p.parent / "other.mlmodel"), root(p, str(p.parent / "other.mlmodel"))),
    "path that is no text": lambda p: root(p, 3),
    "no root": lambda p: manifest(p, lambda m: m.pop("rootModelIdentifier")),
    "no entries": lambda p: manifest(p, lambda m: m.update(itemInfoEntries=[])),
    "deep manifest": lambda p: (p / "Manifest.json").write_text("[" * 100_000),
    "manifest is no text": lambda p: (p / "Manifest.json").write_bytes(b"\xff\xfe\x00"),
    "linked manifest": lambda p: replace_file(p / "Manifest.json", lambda old, new: new.symlink_to(old)),
    "hard-linked manifest": lambda p: replace_file(p / "Manifest.json", lambda old, new: os.link(old, new)),
    "pipe for a manifest": lambda p: replace_file(p / "Manifest.json", lambda old, new: os.mkfifo(new)),
    "linked model": lambda p: replace_file(p / MODEL, lambda old, new: new.symlink_to(old)),
    "hard-linked model": lambda p: replace_file(p / MODEL, lambda old, new: os.link(old, new)),
    "pipe for a model": lambda p: replace_file(p / MODEL, lambda old, new: os.mkfifo(new)),
    "device for a model": lambda p: replace_file(p / MODEL, lambda old, new: new.symlink_to("/dev/zero")),
    "linked weights": lambda p: replace_file(p / WEIGHTS / "weight.bin", lambda old, new: new.symlink_to(old)),
    "hard-linked weights": lambda p: replace_file(p / WEIGHTS / "weight.bin", lambda old, new: os.link(old, new)),
    "pipe for weights": lambda p: replace_file(p / WEIGHTS / "weight.bin", lambda old, new: os.mkfifo(new)),
    "linked folder of weights": lambda p: replace_file(p / WEIGHTS, lambda old, new: new.symlink_to(old)),
    "linked folder of data": lambda p: replace_file(p / "Data", lambda old, new: new.symlink_to(old)),
    "no weights": lambda p: os.remove(p / WEIGHTS / "weight.bin"),
    "short weights": lambda p: os.truncate(p / WEIGHTS / "weight.bin", 100),
    "empty weights": lambda p: os.truncate(p / WEIGHTS / "weight.bin", 0),
    "damaged model": lambda p: (p / MODEL).write_bytes(b"\xff" * 100),
}


@pytest.mark.parametrize("case", MALICIOUS)
@pytest.mark.parametrize("command", ["inspect", "check", "convert"])
def test_packages_with_paths_outside_raise(net, tmp_path, case, command):
    MALICIOUS[case](net)
    options = ["--to", "onnx", "-o", str(tmp_path / "out.onnx")] if command == "convert" else []
    results = []
    runs = threading.Thread(target=lambda: results.append(CliRunner().invoke(group, [command, str(net), *options])), daemon=True)
    runs.start()
    runs.join(60)
    assert results, "it hangs"
    assert isinstance(results[0].exception, OnnxbridgeError) and results[0].exception.exit_code in (2, 4), results[0].exception
    if case != "linked folder of data":  # then the folder is not recognized as a package
        assert isinstance(results[0].exception, UnsafeFileError)


@pytest.mark.parametrize("case", ["linked weights", "hard-linked weights", "linked folder of weights", "linked model"])
def test_malicious_changes_of_a_written_package_raise(written_package, tmp_path, case):
    net = shutil.copytree(written_package, tmp_path / "net.mlpackage")
    MALICIOUS[case](net)
    with pytest.raises(UnsafeFileError):
        backend.open(net)


@pytest.mark.parametrize(
    ("at", "value"),
    [(64, b"\0\0\0\0"), (68, b"\x63\0\0\0"), (72, b"\xff" * 8), (72, b"\3" + bytes(7)), (80, b"\xff" * 8)],
)
def test_damaged_weights_raise(net, at, value):
    file = net / WEIGHTS / "weight.bin"
    data = bytearray(file.read_bytes())
    data[at : at + len(value)] = value
    file.write_bytes(bytes(data))
    with pytest.raises(UnsafeFileError, match="weight"):
        Interpreter(net)


def test_uninitialized_padding_field_is_ignored(net):
    """The field was introduced with sub-byte dtypes; before, it was not initialized."""
    x = np.ones((1, 32), np.float32)
    before = Interpreter(net).run({"x": x})
    file = net / WEIGHTS / "weight.bin"
    data = bytearray(file.read_bytes())
    data[88:96] = (11751492080).to_bytes(8, "little")
    file.write_bytes(bytes(data))
    for name, value in Interpreter(net).run({"x": x}).items():
        np.testing.assert_array_equal(value, before[name])


def test_weight_dtypes_match_coremltools(tmp_path):
    from coremltools.libmilstoragepython import _BlobStorageReader, _BlobStorageWriter

    from onnxbridge.formats.coreml import package_files

    path = str(tmp_path / "weight.bin")
    writer = _BlobStorageWriter(path)
    random = np.random.default_rng(0)
    kinds = {"float": np.float32, "fp16": np.uint16, "int4": np.int8}  # as the writer takes them
    offsets = []
    for name, bits in package_files.BLOB_TYPES.values():
        own = {"FLOAT16": "fp16", "FLOAT32": "float"}.get(name, name.lower())
        dtype = np.dtype(kinds.get(own) or (own if bits >= 8 else np.uint8))
        low, high = (-8, 8) if own == "int4" else (0, 2 ** min(bits, 7))
        offsets.append((name, own, getattr(writer, f"write_{own}_data")(random.integers(low, high, 1001).astype(dtype))))
    del writer
    from onnxbridge.formats.coreml.mil_constants import SUB_BYTE, unpack

    for name, own, offset in offsets:
        known, data, count = package_files.Weights(str(tmp_path)).blob("@model_path/weights/weight.bin", offset)
        wanted = np.asarray(getattr(_BlobStorageReader(path), f"read_{own}_data")(offset))
        assert (known, count) == (name, 1001)
        if name in SUB_BYTE:
            bits = SUB_BYTE[name]
            found = unpack(np.frombuffer(data, np.uint8), bits, count)
            np.testing.assert_array_equal(found, wanted.view(np.uint8) & (2**bits - 1))
        else:
            np.testing.assert_array_equal(np.frombuffer(data, wanted.dtype, count), wanted)
