"""Model file formats: text, JSON, sparse tensors, old versions, and detection of other frameworks' files."""

import json
import os
import pickle
import resource
import struct
import zipfile

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from google.protobuf import json_format, text_format
from onnx import TensorProto, helper, numpy_helper

from onnxbridge.errors import ConversionError, LimitError, UnsafeFileError, UsageError
from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.io import onnx_files
from onnxbridge.hub.io.detect_format import detect_format
from onnxbridge.hub.ir import provenance
from onnxbridge.hub.opset.ir_version import lowest_ir_version
from onnxbridge.runtime import Executor
from tests.hub.io.models import WEIGHT, affine, external, save


@pytest.mark.parametrize("form", ["text", "textproto", "json"])
def test_text_formats_are_read(tmp_path, form):
    proto = affine(numpy_helper.from_array(WEIGHT[:2, :2], "w"), dims=(2, 2))
    proto.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.ones(2, np.float32), "b"))
    if form == "text":
        text = """<ir_version: 8, opset_import: ["" : 18]> g (float[n, 2] x) => (float[n, 2] y)
                  <float[2] w = {0, 1}> { y = Mul(x, w) }"""
    else:
        text = json_format.MessageToJson(proto) if form == "json" else text_format.MessageToString(proto)
    path = tmp_path / "model.anything"
    path.write_text(text)
    assert detect_format(path) == "onnx"
    np.testing.assert_array_equal(onnx_files.read(path).graph.initializers["w"].const_value.numpy().ravel()[:2], [0, 1])


def test_sparse_tensors_become_dense(tmp_path):
    values = helper.make_tensor("s", TensorProto.FLOAT, [2], [3.0, 4.0])
    linear = helper.make_sparse_tensor(values, helper.make_tensor("i", TensorProto.INT64, [2], [1, 5]), [2, 3])
    rows = helper.make_tensor("j", TensorProto.INT64, [2, 2], [0, 1, 1, 2])
    by_row = helper.make_sparse_tensor(helper.make_tensor("t", TensorProto.FLOAT, [2], [3.0, 4.0]), rows, [2, 3])
    nodes = [helper.make_node("Constant", [], ["c"], sparse_value=linear), helper.make_node("Sum", ["s", "t", "c"], ["y"])]
    graph = helper.make_graph(nodes, "g", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])])
    graph.sparse_initializer.extend([linear, by_row])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    out = run_all(onnx_files.to_proto(onnx_files.read(save(tmp_path, proto))))
    np.testing.assert_array_equal(out, 3 * np.array([[0, 3, 0], [0, 0, 4]], np.float32))
    graph.sparse_initializer[0].dims[:] = [1 << 20, 1 << 20]
    with pytest.raises(LimitError, match="when dense"):
        onnx_files.read(save(tmp_path, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])))


def run_all(proto):
    return onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {})[0]


def test_maps_are_reported_with_a_hint(tmp_path):
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
        onnx_files.read(save(tmp_path, helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx.ml", 1)])))


def test_legacy_attributes_without_a_type_get_one(tmp_path):
    proto = affine(numpy_helper.from_array(WEIGHT, "w"))
    proto.graph.node.add(op_type="LeakyRelu", input=["y"], output=["z"]).attribute.add(name="alpha", f=0.5)
    assert onnx_files.read(save(tmp_path, proto)).graph.node("product") is not None
    node = next(n for n in onnx_files.read(save(tmp_path, proto)).graph if n.op_type == "LeakyRelu")
    assert node.attributes["alpha"].as_float() == 0.5


def test_lowest_ir_version(tmp_path):
    proto = affine()
    proto.ir_version = 10
    assert lowest_ir_version(onnx_files.from_proto(proto)) == 4
    for value in (("w", [64, 64]), ("b", [64])):
        proto.graph.input.append(helper.make_tensor_value_info(value[0], TensorProto.FLOAT, value[1]))
    assert lowest_ir_version(onnx_files.from_proto(proto)) == 4
    proto.ir_version = 3
    model = onnx_files.from_proto(proto)
    assert lowest_ir_version(model) == 3
    onnx_files.write(model, tmp_path / "m.onnx")
    assert onnx.load(tmp_path / "m.onnx").ir_version == 3
    needs = {"BFLOAT16": 4, "FLOAT8E5M2": 9, "INT4": 10, "FLOAT4E2M1": 11, "FLOAT8E8M0": 12, "UINT2": 13}
    for dtype, version in needs.items():
        model.graph.inputs[0].dtype = ir.DataType[dtype]
        assert lowest_ir_version(model) == version


def torch_zip(path, names):
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "x")


def test_formats_are_detected_by_content(tmp_path):
    def file(content, suffix=".onnx"):
        path = tmp_path / f"file{len(os.listdir(tmp_path))}{suffix}"
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
        file(b"import torch", ".py"): "python",
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
    assert {p: detect_format(p) for p in expected} == expected
    for path, kind in expected.items():
        if kind != "onnx":
            with pytest.raises((UnsafeFileError, UsageError)) as caught:
                onnx_files.read(path)
            assert str(path) in str(caught.value)
            assert caught.value.exit_code == (4 if kind in ("pytorch-pickle", "unknown") else 2)


def test_formats_of_real_files_are_detected(tmp_path):
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(2, 2)
    torch.save(module.state_dict(), tmp_path / "a.onnx")
    torch.save(module.state_dict(), tmp_path / "b.onnx", _use_new_zipfile_serialization=False)
    torch.export.save(torch.export.export(module, (torch.ones(1, 2),)), tmp_path / "c.pt2")
    kinds = [detect_format(tmp_path / n) for n in ("a.onnx", "b.onnx", "c.pt2")]
    assert kinds == ["pytorch-pickle", "pytorch-pickle", "pt2"]
    with pytest.raises(UnsafeFileError, match="runs code when it is opened.*torch.export.save"):
        onnx_files.read(tmp_path / "a.onnx")


def test_pipes_devices_and_nul_are_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, error, why in (
        (tmp_path / "pipe", UnsafeFileError, "named pipe"),
        ("/dev/zero", UnsafeFileError, "a device"),
        (f"{tmp_path}/m\0.onnx", UnsafeFileError, "NUL"),
        (tmp_path / "none", UsageError, "no such file"),
        (tmp_path, UnsafeFileError, "not a known model format"),
    ):
        for call in (onnx_files.read, detect_format):
            if path == tmp_path and call is detect_format:
                continue
            with pytest.raises(error, match=why):
                call(path)


def test_provenance_has_hashes_and_no_paths(tmp_path):
    (tmp_path / "net.onnx").write_bytes(b"abc")
    model = onnx_files.from_proto(affine())
    provenance.stamp(model, [tmp_path / "net.onnx"], {"numpy": np.__version__})
    assert model.metadata_props["onnxbridge.source"] == "net.onnx"
    assert model.metadata_props["onnxbridge.source.sha256"] == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert model.metadata_props["onnxbridge.framework.numpy"] == np.__version__
    assert str(tmp_path) not in str(model.metadata_props)
    before = provenance.sha256(tmp_path)
    (tmp_path / "more").write_bytes(b"")
    assert provenance.sha256(tmp_path) != before


def test_reading_reports_the_limit_of_open_files(tmp_path):
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
            onnx_files.read(path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(onnx_files.read(path).graph.initializers) == 40


def test_weights_of_a_message_are_copied_once():
    proto = affine()
    before = proto.SerializeToString()
    model = onnx_files.from_proto(proto)
    weight = model.graph.initializers["w"].const_value
    assert weight.numpy() is weight.numpy() and not weight.numpy().flags.owndata
    np.testing.assert_array_equal(weight.numpy(), WEIGHT)
    assert proto.SerializeToString() == before and onnx_files.to_proto(model).graph.initializer[0].raw_data == WEIGHT.tobytes()


def test_initializers_have_no_value_info(tmp_path):
    """ONNX Runtime's quantizer transposes a Gemm weight, and refuses a file that has value_info for it."""
    from onnxruntime.quantization import quantize_dynamic

    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, ["N", 8])
    y = op.Gemm(x, op.constant(np.ones((5, 8), np.float32), "weight"), op.constant(np.ones(5, np.float32), "bias"), transB=1)
    model = op.model([x], [op.output(y, "y")])
    onnx_files.write(model, tmp_path / "net.onnx")
    quantize_dynamic(tmp_path / "net.onnx", tmp_path / "quantized.onnx")
    assert "MatMulInteger" in {n.op_type for n in onnx.load(tmp_path / "quantized.onnx").graph.node}
    assert not onnx_files.to_proto(model).graph.value_info


def test_nodes_are_sorted_topologically():
    """ONNX Runtime's float16 converter writes unsorted nodes; also in a subgraph."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 18]> g (float[N] x, bool b) => (float[N] y) {
        a = Neg(x)
        r = Relu(a)
        y = If (b) <
            then_branch = t () => (float[N] u) { s = Sqrt(r) u = Exp(s) },
            else_branch = e () => (float[N] v) { v = Neg(r) }
        >
    }""")
    branch = model.graph.node[2].attribute[0].g
    for nodes in (model.graph.node, branch.node):
        turned = list(reversed(nodes))
        del nodes[:]
        nodes.extend(turned)
    x = np.array([-4.0, 2.0], np.float32)
    (y,) = Executor(model).run(None, {"x": x, "b": np.array(True)})
    np.testing.assert_allclose(y, np.exp([2.0, 0.0]), rtol=1e-6)


def test_cyclic_graphs_are_refused():
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 18]> g (float[N] x) => (float[N] y) {
        a = Add(x, b)
        b = Neg(a)
        y = Relu(b)
    }""")
    with pytest.raises(UnsafeFileError, match="[Cc]ycle"):
        onnx_files.from_proto(model)


@pytest.mark.parametrize("depth", [150, 5_000, 100_000])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("(" + "seq(", ")" + " x) => (float y) { y = Identity(x) }"),
        ("(bool c) => (float y) { " + "y = If (c) <then_branch = g () => (y) { ", "}>" + " }"),
    ],
    ids=["types", "subgraphs"],
)
def test_deeply_nested_text_is_refused_before_it_is_parsed(tmp_path, depth, before, after):
    first, last = ("seq(", ")") if "seq" in before else ("y = If (c) <then_branch = g () => (y) { ", "}>")
    middle = "float" if "seq" in before else ""
    head = '<ir_version: 10, opset_import: ["" : 21]> g ' + before.removesuffix(first)
    text = head + first * depth + middle + last * depth + after.removeprefix(last)
    (tmp_path / "net.onnxtxt").write_text(text)
    with pytest.raises(UnsafeFileError):
        onnx_files.read(tmp_path / "net.onnxtxt")


def test_brackets_in_strings_and_comments_are_not_nested(tmp_path):
    text = '<ir_version: 10, opset_import: ["" : 21]> g (float x) => (float y) <float w = {1}> '
    text += '{ # ' + "(" * 500 + '\n y = Add(x, w) }'
    (tmp_path / "net.onnxtxt").write_text(text)
    try:
        expected = onnx.parser.parse_model(text)
    except onnx.parser.ParseError:
        pytest.fail("this onnx has no comments")
    assert [n.op_type for n in onnx_files.read(tmp_path / "net.onnxtxt").graph] == [n.op_type for n in expected.graph.node]
