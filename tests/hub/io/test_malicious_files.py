"""Malicious and corrupt ONNX files are refused before their data is used."""

import os

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnxbridge.errors import ConversionError, LimitError, UnsafeFileError, UsageError
from onnxbridge.hub.io import onnx_files
from tests.hub.io.models import WEIGHT, affine, external, save


@pytest.fixture
def folder(tmp_path):
    """A folder with weights beside the model, and a secret outside it."""
    (tmp_path / "secret").write_bytes(WEIGHT.tobytes())
    inside = tmp_path / "model"
    inside.mkdir()
    (inside / "w.bin").write_bytes(WEIGHT.tobytes())
    return inside


BAD_LOCATIONS = {
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
    "missing": ("none.bin", "does not exist"),
    "symlink": ("link", "a symbolic link"),
    "symlink within": ("link_inside", "a symbolic link"),
    "folder symlink": ("out/secret", "a symbolic link"),
    "hardlink": ("hard", "hard link"),
    "pipe": ("pipe", "named pipe"),
    "folder": ("sub", "a folder"),
    "below a file": ("w.bin/x", "goes through a file"),
}


@pytest.mark.parametrize("case", BAD_LOCATIONS)
def test_data_outside_the_folder_or_through_a_link_is_refused(folder, case):
    location, why = BAD_LOCATIONS[case]
    (folder / "sub").mkdir()
    (folder / "link").symlink_to("../secret")
    (folder / "link_inside").symlink_to("w.bin")
    (folder / "out").symlink_to("..")
    os.link(folder.parent / "secret", folder / "hard")
    os.mkfifo(folder / "pipe")
    path = save(folder, affine(external(location)))
    with pytest.raises(UnsafeFileError, match=why) as caught:
        onnx_files.read(path)
    assert str(path) in str(caught.value) and "'w'" in str(caught.value) and "\n" not in str(caught.value)


def test_data_in_a_subfolder_is_read(folder):
    (folder / "sub").mkdir()
    os.rename(folder / "w.bin", folder / "sub" / "w.bin")
    model = onnx_files.read(save(folder, affine(external("sub/w.bin"))))
    np.testing.assert_array_equal(model.graph.initializers["w"].const_value.numpy(), WEIGHT)


def test_a_file_replaced_after_reading_is_not_reopened(folder):
    model = onnx_files.read(save(folder, affine(external("w.bin"))))
    os.unlink(folder / "w.bin")
    (folder / "w.bin").symlink_to("/etc/passwd")
    np.testing.assert_array_equal(model.graph.initializers["w"].const_value.numpy(), WEIGHT)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"offset": -4}, "not a size"),
        ({"length": -1}, "not a size"),
        ({"offset": "1_0"}, "not a size"),
        ({"offset": "٣"}, "not a size"),
        ({"offset": 10**25}, "not a size"),
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
        onnx_files.read(save(folder, affine(external("w.bin", **options))))


def test_duplicate_locations_are_refused(folder):
    tensor = external("w.bin")
    tensor.external_data.add(key="location", value="../secret")
    with pytest.raises(UnsafeFileError, match="duplicate external data"):
        onnx_files.read(save(folder, affine(tensor)))


def test_external_data_of_a_message_needs_a_folder(folder):
    proto = affine(external("w.bin"))
    with pytest.raises(UnsafeFileError, match="give the path"):
        onnx_files.from_proto(proto)
    np.testing.assert_array_equal(onnx_files.from_proto(proto, folder).graph.initializers["w"].const_value.numpy(), WEIGHT)


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
def test_tensor_data_must_match_the_declared_size(folder, tensor):
    with pytest.raises(UnsafeFileError, match="declares"):
        onnx_files.read(save(folder, affine(tensor)))


def test_every_truncation_is_refused(tmp_path):
    whole = affine().SerializeToString()
    path = tmp_path / "m.onnx"
    for size in [*range(200), *range(200, len(whole), 997), len(whole) - 1]:
        path.write_bytes(whole[:size])
        with pytest.raises(UnsafeFileError, match="not a valid ONNX|not a known model format|has no graph|no version of ai.onnx"):
            onnx_files.read(path)


def test_corrupted_bytes_are_read_or_refused_but_never_crash(tmp_path):
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
            onnx_files.read(path)
        except (UnsafeFileError, UsageError, ConversionError, LimitError) as e:
            assert str(path) in str(e)
            refused += 1
    assert refused > 100


def varint(number):
    """Protobuf's encoding of an integer: seven bits a byte, the lowest first."""
    return bytes([number & 127 | 128]) + varint(number >> 7) if number > 127 else bytes([number])


def nested(depth):
    """An If in an If in an If ..., put together as bytes, since protobuf itself would not."""

    def field(number, content):
        return varint(number << 3 | 2) + varint(len(content)) + content

    output = field(12, helper.make_tensor_value_info("y", TensorProto.BOOL, []).SerializeToString())
    graph = field(1, helper.make_node("Identity", ["p"], ["y"]).SerializeToString()) + field(2, b"g") + output
    leaf = graph
    for _ in range(depth):
        branches = b""
        for name, branch in ((b"then_branch", graph), (b"else_branch", graph if depth < 10 else leaf)):
            branches += field(5, field(1, name) + field(6, branch) + b"\xa0\x01\x05")
        graph = field(1, field(1, b"p") + field(2, b"y") + field(4, b"If") + branches) + field(2, b"g") + output
    graph += field(11, helper.make_tensor_value_info("p", TensorProto.BOOL, []).SerializeToString())
    return b"\x08\x08" + field(7, graph) + field(8, b"\x10\x12")


def test_too_deeply_nested_graphs_are_refused(tmp_path):
    path = tmp_path / "m.onnx"
    for depth in (40, 250, 2_000):
        path.write_bytes(nested(depth))
        with pytest.raises(UnsafeFileError, match="nested"):
            onnx_files.read(path)
    path.write_bytes(nested(31))
    model = onnx_files.read(path)
    onnx_files.write(model, tmp_path / "out.onnx")
    assert len(list(model.graph.all_nodes())) == 63


def test_undefined_values_are_refused(tmp_path):
    proto = affine()
    proto.graph.node[1].input[1] = "nowhere"
    with pytest.raises(UnsafeFileError, match="undefined value 'nowhere'"):
        onnx_files.read(save(tmp_path, proto))


def test_names_from_a_file_are_escaped_in_messages(tmp_path):
    proto = affine(external("../\x1b[2Jsecret"))
    proto.graph.initializer[0].name = "w\x1b]0;owned\x07"
    with pytest.raises(UnsafeFileError) as caught:
        onnx_files.read(save(tmp_path, proto))
    assert "\x1b" not in str(caught.value) and "\\x1b" in str(caught.value)


BODY = 'body = b (int64 i, bool g, float p) => (bool h, float q) { h = Identity(g) q = Add(p, p) }'
WRONG_BODIES = {
    "no body": "z = Loop(t, e, s) <x = 1>",
    "too many states": f"z = Loop(t, e, s, s) <{BODY}>",
    "too few states": f"z = Loop(t, e) <{BODY}>",
    "too many results": f"z, w, v = Loop(t, e, s) <{BODY}>",
    "no branches": "z = If(e)",
    "one branch": "z = If(e) <then_branch = b () => (float q) { q = Constant<value_float = 1.0>() }>",
    "a scan that does not fit": f"z = Scan(s) <{BODY}, num_scan_inputs = 1>",
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG_BODIES)
def test_bodies_that_do_not_fit_are_refused(tmp_path, wrong):
    start = "t = Constant<value_int = 2>() e = Constant<value = bool {1}>() s = Constant<value_float = 1.0>()"
    text = f'<ir_version: 10, opset_import: ["" : 21]> g () => (float z) {{ {start} {WRONG_BODIES[wrong]} }}'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    with pytest.raises(UnsafeFileError, match="body|branch"):
        onnx_files.read(tmp_path / "m.onnx")


@pytest.mark.parametrize("name", [b"Relu", b"inner", b"x", b"y", b"w", b"location", b"w.bin"])
def test_names_that_are_not_utf_8_are_refused(tmp_path, name):
    text = '<ir_version: 10, opset_import: ["" : 21]> g (float[2] x) => (float[2] y) { [inner] a = Relu(x) y = Add(a, w) }'
    model = onnx.parser.parse_model(text)
    tensor = model.graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="w.bin")
    (tmp_path / "w.bin").write_bytes(bytes(8))
    content = model.SerializeToString()
    assert name in content
    (tmp_path / "m.onnx").write_bytes(content.replace(name, b"\xff" * len(name)))
    with pytest.raises(UnsafeFileError, match="UTF-8"):
        onnx_files.read(tmp_path / "m.onnx")


@pytest.mark.parametrize("kind", ["TENSOR", "GRAPH", "TYPE_PROTO", "SPARSE_TENSOR"])
def test_attributes_without_a_value_are_refused(tmp_path, kind):
    model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["" : 21]> g () => (float y) { y = Constant() }')
    model.graph.node[0].attribute.add(name="value", type=onnx.AttributeProto.AttributeType.Value(kind))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(UnsafeFileError, match="'value' has no value"):
        onnx_files.read(tmp_path / "m.onnx")


def test_a_node_that_uses_its_own_result_is_refused(tmp_path):
    text = (
        '<ir_version: 10, opset_import: ["" : 21]> g (float x) => (float z) { t = Constant<value_int = 2>() '
        "e = Constant<value = bool {1}>() z = Loop(t, e, x) "
        "<body = l (int64 j, bool g, float p) => (bool h, float q) { h = Identity(g) q = Add(q, p) }> }"
    )
    onnx.save(onnx.parser.parse_model(text), tmp_path / "net.onnx")
    with pytest.raises(UnsafeFileError, match="cycle"):
        onnx_files.read(tmp_path / "net.onnx")


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (helper.make_node("Reshape", ["x"], ["y"]), "the Reshape 'n' lacks an input: it needs 2"),
        (helper.make_node("Conv", ["", "x"], ["y"]), "the Conv 'n' lacks an input: it needs 2"),
        (helper.make_node("Relu", ["x", "x"], ["y"]), "the Relu 'n' has 2 inputs and 1 outputs, more than the operator has"),
        (helper.make_node("Concat", ["x"], ["y"]), "the Concat 'n' lacks the attribute axis"),
        (helper.make_node("Softmax", ["x"], ["y"], axis=0.5), "has an attribute axis of the type FLOAT in the place of INT"),
        (helper.make_node("Relu", ["x"], ["y", "z"]), "the Relu 'n' has 1 inputs and 2 outputs, more than the operator has"),
    ],
)
def test_nodes_that_differ_from_the_schema_of_their_operator_are_refused(tmp_path, node, why):
    node.name = "n"
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    model = helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=[helper.make_opsetid("", 21)])
    onnx.save(model, tmp_path / "net.onnx")
    with pytest.raises(UnsafeFileError, match=why):
        onnx_files.read(tmp_path / "net.onnx")


def test_an_operator_that_the_model_defines_itself_may_have_any_inputs():
    inner = helper.make_node("Add", ["a", "b"], ["c"])
    opsets = [helper.make_opsetid("", 21)]
    function = helper.make_function("", "Relu", ["a", "b"], ["c"], [inner], opsets)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x", "x"], ["y"])], "g", [x], [y])
    assert onnx_files.from_proto(helper.make_model(graph, opset_imports=opsets, functions=[function])).functions
