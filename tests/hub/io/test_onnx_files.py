"""Reading and writing ONNX files."""

import os
import struct
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxbridge.errors import LimitError, UsageError
from onnxbridge.hub.io import onnx_files, protobuf_weights
from tests.hub.io.models import WEIGHT, affine, external, save


def run(path_or_bytes, x):
    return onnxruntime.InferenceSession(path_or_bytes, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


def test_a_file_round_trips_with_mapped_weights(tmp_path):
    path = save(tmp_path, affine())
    model = onnx_files.read(path)
    weight = model.graph.initializers["w"].const_value.numpy()
    np.testing.assert_array_equal(weight, WEIGHT)
    assert not weight.flags.writeable and not weight.flags.owndata
    [written] = onnx_files.write(model, tmp_path / "out.onnx")
    x = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)
    np.testing.assert_array_equal(run(str(path), x), run(written, x))
    onnx.checker.check_model(onnx.load(written), full_check=True)


@pytest.mark.parametrize("external_data", [False, True])
def test_writing_twice_gives_the_same_bytes(tmp_path, external_data):
    model = onnx_files.from_proto(affine())
    first = onnx_files.write(model, tmp_path / "m.onnx", external=external_data)
    content = [Path(f).read_bytes() for f in first]
    again = onnx_files.write(onnx_files.read(tmp_path / "m.onnx"), tmp_path / "m.onnx", external=external_data, force=True)
    assert again == first and [Path(f).read_bytes() for f in again] == content
    assert sorted(os.listdir(tmp_path)) == sorted(os.path.basename(f) for f in first)


def test_external_weights_are_read_and_run(tmp_path):
    paths = onnx_files.write(onnx_files.from_proto(affine()), tmp_path / "m.onnx", external=True)
    assert paths == [str(tmp_path / "m.onnx"), str(tmp_path / "m.onnx.data")]
    x = np.eye(64, dtype=np.float32)
    np.testing.assert_array_equal(run(paths[0], x), WEIGHT + 1)
    np.testing.assert_array_equal(onnx_files.read(paths[0]).graph.initializers["w"].const_value.numpy(), WEIGHT)


@pytest.mark.parametrize("dtype", [d for d in ir.DataType if d not in (ir.DataType.UNDEFINED, ir.DataType.STRING)])
@pytest.mark.parametrize("external_data", [False, True])
def test_every_dtype_survives_as_large_and_small_tensor(tmp_path, dtype, external_data):
    bits = np.random.default_rng(1).integers(0, 256, 20_000, np.uint8)
    if dtype == ir.DataType.BOOL:
        bits &= 1
    tensors = []
    for name, count in (("large", 9_999), ("small", 5)):
        nbytes = (count * dtype.bitwidth + 7) // 8
        raw = np.resize(bits, nbytes).tobytes()
        if count * dtype.bitwidth % 8:
            raw = raw[:-1] + bytes([raw[-1] & (1 << count * dtype.bitwidth % 8) - 1])
        tensors.append(TensorProto(name=name, data_type=dtype.value, dims=[count], raw_data=raw))
    outputs = [helper.make_tensor_value_info(f"{t.name}_out", dtype.value, t.dims) for t in tensors]
    nodes = [helper.make_node("Identity", [t.name], [f"{t.name}_out"]) for t in tensors]
    proto = helper.make_model(helper.make_graph(nodes, "g", [], outputs, tensors), opset_imports=[helper.make_opsetid("", 26)])
    model = onnx_files.read(save(tmp_path, proto))
    for tensor in tensors:
        assert model.graph.initializers[tensor.name].const_value.tobytes() == tensor.raw_data
    path = onnx_files.write(model, tmp_path / "out.onnx", external=external_data)[0]
    again = onnx_files.read(path)
    assert {n: v.const_value.tobytes() for n, v in again.graph.initializers.items()} == {t.name: t.raw_data for t in tensors}


def test_large_constants_in_branches_and_functions_are_mapped_and_written(tmp_path):
    constant = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(WEIGHT, "c"))
    branch = helper.make_graph([constant], "branch", [], [helper.make_tensor_value_info("c", TensorProto.FLOAT, [64, 64])])
    function = helper.make_function(
        "own", "F", ["a"], ["o"], [constant, helper.make_node("Mul", ["a", "c"], ["o"])], [helper.make_opsetid("", 18)]
    )
    graph = helper.make_graph(
        [
            helper.make_node("If", ["p"], ["i"], then_branch=branch, else_branch=branch),
            helper.make_node("F", ["i"], ["y"], domain="own"),
        ],
        "g",
        [helper.make_tensor_value_info("p", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [64, 64])],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    proto = helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=8)
    path = save(tmp_path, proto)
    with open(path, "rb") as file:
        message, regions = protobuf_weights.strip_weights(memoryview(file.read()), b"t" * 16)
    assert len(regions) == 3 and len(message) < 2000
    for external_data in (False, True):
        written = onnx_files.write(onnx_files.read(path), tmp_path / f"{external_data}.onnx", external=external_data)[0]
        session = onnxruntime.InferenceSession(written)
        np.testing.assert_array_equal(session.run(None, {"p": np.array(True)})[0], WEIGHT * WEIGHT)


@pytest.mark.slow
def test_more_than_two_gigabytes_round_trip_without_being_loaded(tmp_path):
    rows = 2_200_000
    dims = (256, rows)  # 2.25 GB of float32, nearly all of it a hole in the file
    folder = tmp_path / "in"
    folder.mkdir()
    with open(folder / "w.bin", "wb") as file:
        file.truncate(256 * rows * 4)
        file.seek(-4, os.SEEK_END)
        file.write(struct.pack("<f", 7))
    save(folder, affine(external("w.bin", length=256 * rows * 4, dims=dims), dims=dims))
    before = _anonymous()
    model = onnx_files.read(folder / "m.onnx")
    assert model.graph.initializers["w"].const_value.numpy()[-1, -1] == 7
    paths = onnx_files.write(model, tmp_path / "out.onnx")
    assert [os.path.basename(p) for p in paths] == ["out.onnx", "out.onnx.data"]
    assert _anonymous() - before < 200 << 20
    assert os.stat(paths[1]).st_blocks * 512 < 100 << 20
    assert onnx_files.read(paths[0]).graph.initializers["w"].const_value.numpy()[-1, -1] == 7
    with pytest.raises(LimitError, match="2 GB"):
        onnx_files.to_proto(model)
    with pytest.raises(LimitError, match="2 GB"):
        onnx_files.write(model, tmp_path / "one.onnx", external=False)


def _anonymous():
    """Bytes of memory that no file backs."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) << 10


def test_shared_weights_are_written_once(tmp_path):
    model = onnx_files.from_proto(affine())
    twin = ir.Value(name="twin", const_value=model.graph.initializers["w"].const_value, type=ir.TensorType(ir.DataType.FLOAT))
    twin.shape = ir.Shape([64, 64])
    model.graph.register_initializer(twin)
    paths = onnx_files.write(model, tmp_path / "m.onnx", external=True)
    assert os.path.getsize(paths[1]) == WEIGHT.nbytes
    again = onnx_files.read(paths[0])
    np.testing.assert_array_equal(again.graph.initializers["twin"].const_value.numpy(), WEIGHT)


def test_nothing_is_replaced_without_force_and_links_are_not_followed(tmp_path):
    model = onnx_files.from_proto(affine())
    victim = tmp_path / "victim"
    victim.write_text("mine")
    link = tmp_path / "m.onnx"
    link.symlink_to(victim)
    with pytest.raises(UsageError, match="exists already.*--force"):
        onnx_files.write(model, link)
    onnx_files.write(model, link, force=True)
    assert victim.read_text() == "mine" and not link.is_symlink()
    (tmp_path / "n.onnx.data").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="exists already"):
        onnx_files.write(model, tmp_path / "n.onnx", external=True)
    assert not (tmp_path / "n.onnx").exists()
    with pytest.raises(UsageError, match="does not exist"):
        onnx_files.write(model, tmp_path / "missing" / "m.onnx")
    with pytest.raises(UsageError, match="is a folder"):
        onnx_files.write(model, tmp_path, force=True)


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "m.onnx"
    path.write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(onnx_files, "tensor_bytes", full)
    with pytest.raises(OSError, match="No space"):
        onnx_files.write(onnx_files.from_proto(affine()), path, force=True)
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["m.onnx"]
