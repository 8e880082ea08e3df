"""ONNX files in and out: what is read is what was written, hostile files are refused before a byte of them is used."""

import json
import os
import pickle
import resource
import struct
import zipfile
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from google.protobuf import json_format, text_format
from onnx import TensorProto, helper, numpy_helper

from onnxbridge.errors import ConversionError, LimitError, UnsafeFileError, UsageError
from onnxbridge.hub import io, provenance, wire
from onnxbridge.hub.builder import Builder
from onnxbridge.hub.ir_version import lowest_ir_version

WEIGHT = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)


def affine(weight=None, dims=(64, 64), **options):
    """x @ weight + bias, the weight as given."""
    if weight is None:
        weight = numpy_helper.from_array(WEIGHT, "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"], name="product"), helper.make_node("Add", ["h", "b"], ["y"])],
        "affine",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", dims[0]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", dims[1]])],
        [weight, numpy_helper.from_array(np.ones(dims[1], np.float32), "b")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8, **options)


def external(location, offset=0, length=WEIGHT.nbytes, dims=(64, 64), dtype=TensorProto.FLOAT):
    tensor = TensorProto(name="w", data_type=dtype, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        if value is not None:
            tensor.external_data.add(key=key, value=str(value))
    return tensor


def run(path_or_bytes, x):
    return onnxruntime.InferenceSession(path_or_bytes, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


@pytest.fixture
def folder(tmp_path):
    """A folder with weights beside the model, and a secret outside it."""
    (tmp_path / "secret").write_bytes(WEIGHT.tobytes())
    inside = tmp_path / "model"
    inside.mkdir()
    (inside / "w.bin").write_bytes(WEIGHT.tobytes())
    return inside


def save(folder, proto):
    path = folder / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def test_a_file_keeps_its_numbers_and_its_weights_stay_in_it(tmp_path):
    path = save(tmp_path, affine())
    model = io.read(path)
    weight = model.graph.initializers["w"].const_value.numpy()
    np.testing.assert_array_equal(weight, WEIGHT)
    assert not weight.flags.writeable and not weight.flags.owndata
    [written] = io.write(model, tmp_path / "out.onnx")
    x = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)
    np.testing.assert_array_equal(run(str(path), x), run(written, x))
    onnx.checker.check_model(onnx.load(written), full_check=True)


@pytest.mark.parametrize("external_data", [False, True])
def test_writing_twice_gives_the_same_bytes(tmp_path, external_data):
    model = io.from_proto(affine())
    first = io.write(model, tmp_path / "m.onnx", external=external_data)
    content = [Path(f).read_bytes() for f in first]
    again = io.write(io.read(tmp_path / "m.onnx"), tmp_path / "m.onnx", external=external_data, force=True)
    assert again == first and [Path(f).read_bytes() for f in again] == content
    assert sorted(os.listdir(tmp_path)) == sorted(os.path.basename(f) for f in first)


def test_external_weights_are_read_and_run(tmp_path):
    paths = io.write(io.from_proto(affine()), tmp_path / "m.onnx", external=True)
    assert paths == [str(tmp_path / "m.onnx"), str(tmp_path / "m.onnx.data")]
    x = np.eye(64, dtype=np.float32)
    np.testing.assert_array_equal(run(paths[0], x), WEIGHT + 1)
    np.testing.assert_array_equal(io.read(paths[0]).graph.initializers["w"].const_value.numpy(), WEIGHT)


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
    model = io.read(save(tmp_path, proto))
    for tensor in tensors:
        assert model.graph.initializers[tensor.name].const_value.tobytes() == tensor.raw_data
    path = io.write(model, tmp_path / "out.onnx", external=external_data)[0]
    again = io.read(path)
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
        message, places = wire.cut(memoryview(file.read()), b"t" * 16)
    assert len(places) == 3 and len(message) < 2000
    for external_data in (False, True):
        written = io.write(io.read(path), tmp_path / f"{external_data}.onnx", external=external_data)[0]
        session = onnxruntime.InferenceSession(written)
        np.testing.assert_array_equal(session.run(None, {"p": np.array(True)})[0], WEIGHT * WEIGHT)


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
    model = io.read(folder / "m.onnx")
    assert model.graph.initializers["w"].const_value.numpy()[-1, -1] == 7
    paths = io.write(model, tmp_path / "out.onnx")
    assert [os.path.basename(p) for p in paths] == ["out.onnx", "out.onnx.data"]
    assert _anonymous() - before < 200 << 20
    assert os.stat(paths[1]).st_blocks * 512 < 100 << 20
    assert io.read(paths[0]).graph.initializers["w"].const_value.numpy()[-1, -1] == 7
    with pytest.raises(LimitError, match="2 GB"):
        io.to_proto(model)
    with pytest.raises(LimitError, match="2 GB"):
        io.write(model, tmp_path / "one.onnx", external=False)


def _anonymous():
    """Bytes of memory that no file backs."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) << 10


def test_shared_weights_lie_once_in_the_second_file(tmp_path):
    model = io.from_proto(affine())
    twin = ir.Value(name="twin", const_value=model.graph.initializers["w"].const_value, type=ir.TensorType(ir.DataType.FLOAT))
    twin.shape = ir.Shape([64, 64])
    model.graph.register_initializer(twin)
    paths = io.write(model, tmp_path / "m.onnx", external=True)
    assert os.path.getsize(paths[1]) == WEIGHT.nbytes
    again = io.read(paths[0])
    np.testing.assert_array_equal(again.graph.initializers["twin"].const_value.numpy(), WEIGHT)


def test_nothing_is_replaced_without_force_and_links_are_not_followed(tmp_path):
    model = io.from_proto(affine())
    victim = tmp_path / "victim"
    victim.write_text("mine")
    link = tmp_path / "m.onnx"
    link.symlink_to(victim)
    with pytest.raises(UsageError, match="exists already.*--force"):
        io.write(model, link)
    io.write(model, link, force=True)
    assert victim.read_text() == "mine" and not link.is_symlink()
    (tmp_path / "n.onnx.data").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="exists already"):
        io.write(model, tmp_path / "n.onnx", external=True)
    assert not (tmp_path / "n.onnx").exists()
    with pytest.raises(UsageError, match="no folder"):
        io.write(model, tmp_path / "missing" / "m.onnx")
    with pytest.raises(UsageError, match="is a folder"):
        io.write(model, tmp_path, force=True)


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "m.onnx"
    path.write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(io, "own_bytes", full)
    with pytest.raises(OSError, match="No space"):
        io.write(io.from_proto(affine()), path, force=True)
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["m.onnx"]


HOSTILE = {
    "up": ("../secret", "leaves the model's folder"),
    "deep up": ("sub/../../secret", "leaves the model's folder"),
    "etc": ("../../../../../../etc/passwd", "leaves the model's folder"),
    "absolute": ("/etc/passwd", "absolute"),
    "windows": ("C:\\secret", "absolute"),
    "backslash up": ("..\\secret", "leaves the model's folder"),
    "nul": ("w.bin\0x", "no file name"),
    "empty": ("", "no file name"),
    "folder itself": (".", "leaves the model's folder"),
    "trailing slash": ("w.bin/", "leaves the model's folder"),
    "missing": ("none.bin", "not there"),
    "symlink": ("link", "a symbolic link"),
    "symlink within": ("link_inside", "a symbolic link"),
    "folder symlink": ("out/secret", "a symbolic link"),
    "hardlink": ("hard", "hard link"),
    "pipe": ("pipe", "named pipe"),
    "folder": ("sub", "a folder"),
    "below a file": ("w.bin/x", "goes through a file"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_data_outside_the_folder_or_behind_a_link_is_refused(folder, case):
    location, why = HOSTILE[case]
    (folder / "sub").mkdir()
    (folder / "link").symlink_to("../secret")
    (folder / "link_inside").symlink_to("w.bin")
    (folder / "out").symlink_to("..")
    os.link(folder.parent / "secret", folder / "hard")
    os.mkfifo(folder / "pipe")
    path = save(folder, affine(external(location)))
    with pytest.raises(UnsafeFileError, match=why) as caught:
        io.read(path)
    assert str(path) in str(caught.value) and "'w'" in str(caught.value) and "\n" not in str(caught.value)


def test_data_in_a_folder_below_the_model_is_fine(folder):
    (folder / "sub").mkdir()
    os.rename(folder / "w.bin", folder / "sub" / "w.bin")
    model = io.read(save(folder, affine(external("sub/w.bin"))))
    np.testing.assert_array_equal(model.graph.initializers["w"].const_value.numpy(), WEIGHT)


def test_a_file_exchanged_after_reading_is_not_opened_again(folder):
    model = io.read(save(folder, affine(external("w.bin"))))
    os.unlink(folder / "w.bin")
    (folder / "w.bin").symlink_to("/etc/passwd")
    np.testing.assert_array_equal(model.graph.initializers["w"].const_value.numpy(), WEIGHT)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"offset": -4}, "no size"),
        ({"length": -1}, "no size"),
        ({"offset": "1_0"}, "no size"),
        ({"offset": "٣"}, "no size"),
        ({"offset": 10**25}, "no size"),
        ({"offset": 4}, "that file has"),
        ({"offset": 10**18}, "that file has"),
        ({"length": WEIGHT.nbytes + 4}, "but"),
        ({"length": 0}, "but 0"),
        ({"dims": (64, 65), "length": None}, "that file has"),
        ({"dims": (1 << 40, 1 << 40), "length": None}, "more bytes than any file"),
        ({"dims": (-1, 64)}, "negative dimension"),
        ({"dims": (1,) * 40, "length": 4}, "rank 40"),
        ({"dtype": 99}, "unknown data type"),
        ({"dtype": 0}, "no data type"),
        ({"dtype": TensorProto.STRING}, "strings"),
    ],
)
def test_offsets_lengths_and_shapes_must_fit_the_file(folder, options, why):
    with pytest.raises(UnsafeFileError, match=why):
        io.read(save(folder, affine(external("w.bin", **options))))


def test_contradicting_locations_are_refused(folder):
    tensor = external("w.bin")
    tensor.external_data.add(key="location", value="../secret")
    with pytest.raises(UnsafeFileError, match="twice"):
        io.read(save(folder, affine(tensor)))


def test_external_data_of_a_message_needs_a_folder(folder):
    proto = affine(external("w.bin"))
    with pytest.raises(UnsafeFileError, match="give the path"):
        io.from_proto(proto)
    np.testing.assert_array_equal(io.from_proto(proto, folder).graph.initializers["w"].const_value.numpy(), WEIGHT)


@pytest.mark.parametrize(
    "tensor",
    [
        TensorProto(name="w", data_type=1, dims=[64, 64], raw_data=bytes(WEIGHT.nbytes - 4)),
        TensorProto(name="w", data_type=1, dims=[64, 64], raw_data=bytes(8)),
        TensorProto(name="w", data_type=1, dims=[1 << 40]),
        TensorProto(name="w", data_type=1, dims=[2], float_data=[1, 2, 3]),
        TensorProto(name="w", data_type=1, dims=[2], int64_data=[1, 2]),
        TensorProto(name="w", data_type=8, dims=[2], string_data=[b"a"]),
        TensorProto(name="w", data_type=22, dims=[5], int32_data=[1, 2]),
    ],
)
def test_tensors_must_hold_what_they_declare(folder, tensor):
    with pytest.raises(UnsafeFileError, match="declares"):
        io.read(save(folder, affine(tensor)))


def test_every_truncation_is_refused(tmp_path):
    whole = affine().SerializeToString()
    path = tmp_path / "m.onnx"
    for size in [*range(200), *range(200, len(whole), 997), len(whole) - 1]:
        path.write_bytes(whole[:size])
        with pytest.raises(UnsafeFileError, match="not a whole ONNX|no model in a format|holds no graph|which opset"):
            io.read(path)


def test_changed_bytes_are_read_or_refused_but_never_crash(tmp_path):
    whole = affine().SerializeToString()
    rng = np.random.default_rng(3)
    refused = 0
    for _ in range(400):
        bytes_ = bytearray(whole)
        for _ in range(3):
            bytes_[rng.choice([rng.integers(400), len(whole) - 1 - rng.integers(600)])] = rng.integers(256)
        path = tmp_path / "m.onnx"
        path.write_bytes(bytes_)
        try:
            io.read(path)
        except (UnsafeFileError, UsageError, ConversionError, LimitError) as e:
            assert str(path) in str(e)
            refused += 1
    assert refused > 100


def nested(depth):
    """An If in an If in an If ..., put together as bytes, since protobuf itself would not."""

    def field(number, content):
        return wire._head(number, len(content)) + content

    output = field(12, helper.make_tensor_value_info("y", TensorProto.BOOL, []).SerializeToString())
    graph = field(1, helper.make_node("Identity", ["p"], ["y"]).SerializeToString()) + field(2, b"g") + output
    for _ in range(depth):
        branches = b""
        for name in (b"then_branch", b"else_branch") if depth < 10 else (b"then_branch",):
            branches += field(5, field(1, name) + field(6, graph) + b"\xa0\x01\x05")
        graph = field(1, field(1, b"p") + field(2, b"y") + field(4, b"If") + branches) + field(2, b"g") + output
    graph += field(11, helper.make_tensor_value_info("p", TensorProto.BOOL, []).SerializeToString())
    return b"\x08\x08" + field(7, graph) + field(8, b"\x10\x12")


def test_graphs_nested_deeper_than_any_reader_follows_are_refused(tmp_path):
    path = tmp_path / "m.onnx"
    for depth in (40, 250, 2_000):
        path.write_bytes(nested(depth))
        with pytest.raises(UnsafeFileError, match="nested"):
            io.read(path)
    path.write_bytes(nested(31))
    model = io.read(path)
    io.write(model, tmp_path / "out.onnx")
    assert len(list(model.graph.all_nodes())) == 32


def test_values_that_nothing_writes_are_refused(tmp_path):
    proto = affine()
    proto.graph.node[1].input[1] = "nowhere"
    with pytest.raises(UnsafeFileError, match="'nowhere', which nothing writes"):
        io.read(save(tmp_path, proto))


def test_names_from_a_file_cannot_write_to_the_terminal(tmp_path):
    proto = affine(external("../\x1b[2Jsecret"))
    proto.graph.initializer[0].name = "w\x1b]0;owned\x07"
    with pytest.raises(UnsafeFileError) as caught:
        io.read(save(tmp_path, proto))
    assert "\x1b" not in str(caught.value) and "\\x1b" in str(caught.value)


@pytest.mark.parametrize("form", ["text", "textproto", "json"])
def test_text_forms_are_read(tmp_path, form):
    proto = affine(numpy_helper.from_array(WEIGHT[:2, :2], "w"), dims=(2, 2))
    proto.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.ones(2, np.float32), "b"))
    if form == "text":
        text = """<ir_version: 8, opset_import: ["" : 18]> g (float[n, 2] x) => (float[n, 2] y)
                  <float[2] w = {0, 1}> { y = Mul(x, w) }"""
    else:
        text = json_format.MessageToJson(proto) if form == "json" else text_format.MessageToString(proto)
    path = tmp_path / "model.anything"
    path.write_text(text)
    assert io.recognise(path) == "onnx"
    np.testing.assert_array_equal(io.read(path).graph.initializers["w"].const_value.numpy().ravel()[:2], [0, 1])


def test_sparse_tensors_are_written_out(tmp_path):
    values = helper.make_tensor("s", TensorProto.FLOAT, [2], [3.0, 4.0])
    linear = helper.make_sparse_tensor(values, helper.make_tensor("i", TensorProto.INT64, [2], [1, 5]), [2, 3])
    rows = helper.make_tensor("j", TensorProto.INT64, [2, 2], [0, 1, 1, 2])
    by_row = helper.make_sparse_tensor(helper.make_tensor("t", TensorProto.FLOAT, [2], [3.0, 4.0]), rows, [2, 3])
    nodes = [helper.make_node("Constant", [], ["c"], sparse_value=linear), helper.make_node("Sum", ["s", "t", "c"], ["y"])]
    graph = helper.make_graph(nodes, "g", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])])
    graph.sparse_initializer.extend([linear, by_row])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    out = run_all(io.to_proto(io.read(save(tmp_path, proto))))
    np.testing.assert_array_equal(out, 3 * np.array([[0, 3, 0], [0, 0, 4]], np.float32))
    graph.sparse_initializer[0].dims[:] = [1 << 20, 1 << 20]
    with pytest.raises(LimitError, match="written out"):
        io.read(save(tmp_path, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])))


def run_all(proto):
    return onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {})[0]


def test_maps_are_named_with_the_way_out(tmp_path):
    graph = helper.make_graph(
        [helper.make_node("ZipMap", ["x"], ["z"], domain="ai.onnx.ml", classlabels_int64s=[0, 1])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 2])],
        [],
    )
    out = graph.output.add(name="z")
    out.type.sequence_type.elem_type.map_type.key_type = TensorProto.INT64
    out.type.sequence_type.elem_type.map_type.value_type.tensor_type.elem_type = TensorProto.FLOAT
    with pytest.raises(ConversionError, match="zipmap"):
        io.read(save(tmp_path, helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx.ml", 1)])))


def test_old_attributes_without_a_type_get_one(tmp_path):
    proto = affine(numpy_helper.from_array(WEIGHT, "w"))
    proto.graph.node.add(op_type="LeakyRelu", input=["y"], output=["z"]).attribute.add(name="alpha", f=0.5)
    assert io.read(save(tmp_path, proto)).graph.node("product") is not None
    node = next(n for n in io.read(save(tmp_path, proto)).graph if n.op_type == "LeakyRelu")
    assert node.attributes["alpha"].as_float() == 0.5


def test_the_lowest_ir_version_that_holds_the_model(tmp_path):
    proto = affine()
    proto.ir_version = 10
    assert lowest_ir_version(io.from_proto(proto)) == 4
    for value in (("w", [64, 64]), ("b", [64])):
        proto.graph.input.append(helper.make_tensor_value_info(value[0], TensorProto.FLOAT, value[1]))
    assert lowest_ir_version(io.from_proto(proto)) == 4
    proto.ir_version = 3
    model = io.from_proto(proto)
    assert lowest_ir_version(model) == 3
    io.write(model, tmp_path / "m.onnx")
    assert onnx.load(tmp_path / "m.onnx").ir_version == 3
    needs = {"BFLOAT16": 4, "FLOAT8E5M2": 9, "INT4": 10, "FLOAT4E2M1": 11, "FLOAT8E8M0": 12, "UINT2": 13}
    for dtype, version in needs.items():
        model.graph.inputs[0].dtype = ir.DataType[dtype]
        assert lowest_ir_version(model) == version


def torch_zip(path, names):
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "x")


def test_files_are_recognised_by_content(tmp_path):
    def file(content):
        path = tmp_path / f"file{len(os.listdir(tmp_path))}.onnx"
        path.write_bytes(content)
        return path

    def archive(*names):
        path = tmp_path / f"zip{len(os.listdir(tmp_path))}.onnx"
        torch_zip(path, names)
        return path

    from_onnx = affine(producer_name="x").SerializeToString()
    symbol = json.dumps({"nodes": [{"op": "null", "name": "data"}], "arg_nodes": [0], "heads": [[0, 0, 0]]})
    saved = tmp_path / "saved"
    saved.mkdir()
    (saved / "saved_model.pb").write_bytes(b"\x08\x01")
    package = tmp_path / "package"
    (package / "Data").mkdir(parents=True)
    (package / "Manifest.json").write_text("{}")
    expected = {
        file(from_onnx): "onnx",
        file(from_onnx[:5000]): "onnx",
        file(b"\x08\x01\x12\x04\x0a\x02\x08\x01"): "unknown",  # a SavedModel's proto
        file(b"\x08\x07\x12\x02\x0a\x00\xb2\x1f\x02\x0a\x00"): "mlmodel",
        file(symbol.encode()): "mxnet-symbol",
        file(struct.pack("<QQQ", 0x112, 0, 1)): "mxnet-params",
        file(pickle.dumps({"a": 1})): "pytorch-pickle",
        file(b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."): "pytorch-pickle",
        file(b"\x89HDF\r\n\x1a\n" + bytes(20)): "keras-h5",
        file(struct.pack("<Q", 2) + b"{}"): "safetensors",
        file(b"PK\x03\x04broken"): "unknown",
        file(b""): "unknown",
        file(b"hello"): "unknown",
        archive("net/data.pkl", "net/data/0", "net/version"): "pytorch-pickle",
        archive("net/data.pkl", "net/constants.pkl", "net/code/a.py"): "torchscript",
        archive("net/archive_format", "net/models/model.json"): "pt2",
        archive("serialized_exported_program.json"): "pt2",
        archive("config.json", "metadata.json", "model.weights.h5"): "keras",
        archive("readme.txt"): "unknown",
        saved: "savedmodel",
        package: "mlpackage",
        tmp_path: "unknown",
    }
    assert {p: io.recognise(p) for p in expected} == expected
    for path, kind in expected.items():
        if kind != "onnx":
            with pytest.raises((UnsafeFileError, UsageError)) as caught:
                io.read(path)
            assert str(path) in str(caught.value)
            assert caught.value.exit_code == (4 if kind in ("pytorch-pickle", "unknown") else 2)


def test_real_files_are_recognised(tmp_path):
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(2, 2)
    torch.save(module.state_dict(), tmp_path / "a.onnx")
    torch.save(module.state_dict(), tmp_path / "b.onnx", _use_new_zipfile_serialization=False)
    torch.export.save(torch.export.export(module, (torch.ones(1, 2),)), tmp_path / "c.pt2")
    kinds = [io.recognise(tmp_path / n) for n in ("a.onnx", "b.onnx", "c.pt2")]
    assert kinds == ["pytorch-pickle", "pytorch-pickle", "pt2"]
    with pytest.raises(UnsafeFileError, match="runs code when it is opened.*torch.export.save"):
        io.read(tmp_path / "a.onnx")


def test_pipes_devices_and_nul_are_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, error, why in (
        (tmp_path / "pipe", UnsafeFileError, "named pipe"),
        ("/dev/zero", UnsafeFileError, "a device"),
        (f"{tmp_path}/m\0.onnx", UnsafeFileError, "NUL"),
        (tmp_path / "none", UsageError, "no such file"),
        (tmp_path, UnsafeFileError, "no model"),
    ):
        for call in (io.read, io.recognise):
            if path == tmp_path and call is io.recognise:
                continue
            with pytest.raises(error, match=why):
                call(path)


def test_provenance_has_hashes_and_no_paths(tmp_path):
    (tmp_path / "net.onnx").write_bytes(b"abc")
    model = io.from_proto(affine())
    provenance.stamp(model, [tmp_path / "net.onnx"], ["numpy"])
    assert model.metadata_props["onnxbridge.source"] == "net.onnx"
    assert model.metadata_props["onnxbridge.source.sha256"] == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert model.metadata_props["onnxbridge.framework.numpy"] == np.__version__
    assert str(tmp_path) not in str(model.metadata_props)
    before = provenance.sha256(tmp_path)
    (tmp_path / "more").write_bytes(b"")
    assert provenance.sha256(tmp_path) != before


def test_reading_opens_no_more_files_than_the_process_may(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    tensors = []
    for i in range(40):
        (tmp_path / f"{i}").write_bytes(bytes(4096))
        tensors.append(external(f"{i}", length=4096, dims=(1024,)))
        tensors[-1].name = f"t{i}"
    nodes = [helper.make_node("Sum", [t.name for t in tensors], ["y"])]
    graph = helper.make_graph(nodes, "g", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1024])], tensors)
    path = save(tmp_path, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    used = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 20, hard))
    try:
        with pytest.raises(LimitError, match="ulimit -n"):
            io.read(path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(io.read(path).graph.initializers) == 40


def test_weights_of_a_message_are_taken_over_once():
    proto = affine()
    before = proto.SerializeToString()
    model = io.from_proto(proto)
    weight = model.graph.initializers["w"].const_value
    assert weight.numpy() is weight.numpy() and not weight.numpy().flags.owndata
    np.testing.assert_array_equal(weight.numpy(), WEIGHT)
    assert proto.SerializeToString() == before and io.to_proto(model).graph.initializer[0].raw_data == WEIGHT.tobytes()


def test_weights_types_are_told_once(tmp_path):
    """ONNX Runtime's quantizer turns a Gemm's weight over, and refuses a file that tells its shape beside it."""
    from onnxruntime.quantization import quantize_dynamic

    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, ["N", 8])
    y = op.Gemm(x, op.constant(np.ones((5, 8), np.float32), "weight"), op.constant(np.ones(5, np.float32), "bias"), transB=1)
    model = op.model([x], [op.output(y, "y")])
    io.write(model, tmp_path / "net.onnx")
    quantize_dynamic(tmp_path / "net.onnx", tmp_path / "quantized.onnx")
    assert "MatMulInteger" in {n.op_type for n in onnx.load(tmp_path / "quantized.onnx").graph.node}
    assert not io.to_proto(model).graph.value_info
