"""MXNet's file formats, all versions and malicious files, read without MXNet."""

from __future__ import annotations

import json
import struct
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import onnxbridge
from onnxbridge.errors import LimitError, UnsafeFileError, UsageError
from onnxbridge.formats.mxnet import read_params, read_symbol
from onnxbridge.formats.mxnet import write_params as writer
from onnxbridge.frontends.mxnet import frontend, output_names, source_files
from onnxbridge.runtime.mxnet import python
from tests.frontends.mxnet.build import operator, save, variable

HEAD = struct.pack("<QQ", 0x112, 0)
CPU = struct.pack("<ii", 1, 0)
V1, V2, V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA


def shape(*dims):
    return struct.pack(f"<i{len(dims)}q", len(dims), *dims)


def file(folder, *records, named=True, count=None):
    """A parameter file of binary records."""
    labels = [f"arg:a{i}".encode() for i in range(len(records))] if named else []
    data = HEAD + struct.pack("<Q", len(records) if count is None else count) + b"".join(records)
    data += struct.pack("<Q", len(labels)) + b"".join(struct.pack("<Q", len(n)) + n for n in labels)
    path = folder / "net.params"
    path.write_bytes(data)
    return path


def dense(array, flag, magic=V2):
    return struct.pack("<Ii", magic, 0) + shape(*array.shape) + CPU + struct.pack("<i", flag) + array.tobytes()


NUMBERS = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize("flag, dtype", [*enumerate(["f4", "f8", "f2", "u1", "i4", "i1", "i8", "?", "i2", "u2", "u4", "u8"])])
def test_every_dtype(tmp_path, flag, dtype):
    expected = NUMBERS.astype(dtype)
    found = read_params.read(file(tmp_path, dense(expected, flag)))["arg:a0"]
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_bfloat16(tmp_path):
    expected = NUMBERS.astype(ml_dtypes.bfloat16)
    assert read_params.read(file(tmp_path, dense(expected, 12)))["arg:a0"].tolist() == NUMBERS.tolist()


def test_old_layouts(tmp_path):
    v0 = struct.pack("<I2I", 2, 2, 3) + CPU + struct.pack("<i", 0) + NUMBERS.tobytes()
    v1 = struct.pack("<I", V1) + shape(2, 3) + CPU + struct.pack("<i", 0) + NUMBERS.tobytes()
    for array in read_params.read(file(tmp_path, v0, v1, dense(NUMBERS, 0, V3))).values():
        np.testing.assert_array_equal(array, NUMBERS)


def test_empty_entries(tmp_path):
    none = [struct.pack("<I", 0), struct.pack("<I", V1) + shape(), struct.pack("<Ii", V2, 0) + shape()]
    none += [struct.pack("<Iii", V3, 0, -1), struct.pack("<Ii", V3, 0) + shape(2, -1)]
    _, arrays = read_params.read_list(file(tmp_path, *none, dense(np.float32(3), 0, V3), dense(np.zeros((0, 3), "f4"), 0)))
    assert arrays[:5] == [None] * 5
    assert arrays[5].shape == () and arrays[5] == 3
    assert arrays[6].shape == (0, 3)


def test_sparse_arrays(tmp_path):
    rows = struct.pack("<Ii", V2, 1) + shape(9, 9) + shape(4, 3) + CPU + struct.pack("<ii", 0, 6) + shape(2)
    rows += NUMBERS.tobytes() + np.array([3, 1], "i8").tobytes()
    csr = struct.pack("<Ii", V2, 2) + shape(3) + shape(2, 3) + CPU + struct.pack("<ii", 0, 6) + shape(3)
    csr += struct.pack("<i", 6) + shape(3) + np.array([7, 8, 9], "f4").tobytes()
    csr += np.array([0, 1, 3], "i8").tobytes() + np.array([2, 0, 1], "i8").tobytes()
    first, second = read_params.read(file(tmp_path, rows, csr)).values()
    np.testing.assert_array_equal(first, [[0, 0, 0], NUMBERS[1], [0, 0, 0], NUMBERS[0]])
    np.testing.assert_array_equal(second, [[0, 0, 7], [8, 9, 0]])


def test_dense_arrays_are_views_of_the_file(tmp_path):
    found = read_params.read(file(tmp_path, dense(NUMBERS, 0)))["arg:a0"]
    assert not found.flags.owndata and not found.flags.writeable


@pytest.mark.parametrize(
    "record",
    [
        struct.pack("<Ii", V2, 0) + shape(2**40, 2**40) + CPU + struct.pack("<i", 0),
        struct.pack("<Ii", V2, 0) + shape(-3, 2) + CPU + struct.pack("<i", 0) + bytes(64),
        struct.pack("<Ii", V2, 0) + shape(3) + CPU + struct.pack("<i", 99) + bytes(64),
        struct.pack("<Ii", V2, 7) + bytes(64),
        struct.pack("<Iii", V2, 0, 2**30) + bytes(64),
        struct.pack("<Iii", V2, 0, -5) + bytes(64),
        struct.pack("<I", 2**31) + bytes(64),
        struct.pack("<Ii", V2, 1) + shape(1, 3) + shape(4, 3) + CPU + struct.pack("<ii", 0, 6) + shape(1) + bytes(12)
        + np.array([4], "i8").tobytes(),
        struct.pack("<Ii", V2, 2) + shape(1) + shape(1, 3) + CPU + struct.pack("<ii", 0, 6) + shape(2) + struct.pack("<i", 6)
        + shape(1) + bytes(4) + np.array([0, 5], "i8").tobytes() + bytes(8),
        b"",
    ],
    ids=["bytes", "negative", "dtype", "storage", "rank", "below", "v0", "row", "csr", "short"],
)  # fmt: skip
def test_damaged_arrays(tmp_path, record):
    with pytest.raises(UnsafeFileError):
        read_params.read(file(tmp_path, record, count=None if record else 1))


def test_a_sparse_array_beyond_the_budget(tmp_path):
    record = struct.pack("<Ii", V2, 1) + shape(0, 2**40) + shape(2**20, 2**40) + CPU + struct.pack("<ii", 0, 6) + shape(0)
    with pytest.raises(LimitError):
        read_params.read(file(tmp_path, record))


@pytest.mark.parametrize("cut", range(0, 110, 7))
def test_truncated_files(tmp_path, cut):
    path = file(tmp_path, dense(NUMBERS, 0))
    data = path.read_bytes()
    path.write_bytes(data[: min(cut, len(data) - 1)])
    with pytest.raises(UnsafeFileError):
        read_params.read(path)


def test_other_damage(tmp_path):
    with pytest.raises(UnsafeFileError, match="no names"):
        read_params.read(file(tmp_path, dense(NUMBERS, 0), named=False))
    path = file(tmp_path, dense(NUMBERS, 0), count=2**60)
    with pytest.raises(UnsafeFileError, match="do not fit"):
        read_params.read(path)
    duplicate = file(tmp_path, dense(NUMBERS, 0), dense(NUMBERS, 0))
    duplicate.write_bytes(duplicate.read_bytes().replace(b"arg:a1", b"arg:a0"))
    with pytest.raises(UnsafeFileError, match="two arrays"):
        read_params.read(duplicate)


def test_mxnet_reads_written_files(tmp_path):
    arrays = {f"arg:a{i}": NUMBERS.astype(d) for i, d in enumerate(["f4", "f8", "f2", "u1", "i4", "i1", "i8", "?"])}
    writer.write(tmp_path / "net.params", arrays)
    read_back = (
        "import sys, mxnet as mx, numpy as np\n"
        "found = mx.nd.load(sys.argv[1])\n"
        "print(' '.join(k + '=' + str(np.dtype(v.dtype)) + str(v.asnumpy().astype(int).sum()) for k, v in found.items()))\n"
        "mx.nd.save(sys.argv[2], found)\n"
        "x = mx.nd.array([[0, 0], [1, 2]])\n"
        "mx.nd.save(sys.argv[3], {'csr': x.tostype('csr'), 'rows': x.tostype('row_sparse')})\n"
    )
    paths = [str(tmp_path / n) for n in ("net.params", "saved.params", "sparse.params")]
    done = subprocess.run([python(), "-c", read_back, *paths], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [f"{k}={v.dtype}{v.astype(int).sum()}" for k, v in arrays.items()]
    for name, array in read_params.read(paths[1]).items():
        np.testing.assert_array_equal(array, arrays[name])
    for array in read_params.read(paths[2]).values():
        np.testing.assert_array_equal(array, [[0, 0], [1, 2]])


# symbols


def test_literals():
    literals = {
        "(3, 0)": (3, 0), "[1]": [1], "None": None, "True": True, "true": True, "1e-05": 1e-05, "inf": float("inf"),
        "(3L, 3L)": (3, 3), "float32": "float32", "-1": -1, "": "", "__import__('os')": "__import__('os')",
    }  # fmt: skip
    for text, value in literals.items():
        assert read_symbol.literal(text) == value
    assert read_symbol.literal("(" * 100_000) == "(" * 100_000


def test_upgrades_of_old_symbols(tmp_path):
    old = {
        "nodes": [
            {"op": "null", "param": {}, "name": "data", "inputs": [], "backward_source_id": -1},
            {"op": "null", "param": {}, "name": "bn_gamma", "inputs": [], "backward_source_id": -1},
            {"op": "null", "param": {}, "name": "bn_beta", "inputs": [], "backward_source_id": -1},
            {"op": "BatchNorm", "param": {"eps": "0.002"}, "attr": {"eps": "9", "ctx_group": "a"}, "name": "bn",
             "inputs": [[0, 0], [1, 0], [2, 0]]},
            {"op": "argmax", "param": {"axis": "-1"}, "attr": {"lr_mult": "2", "weight_wd_mult": "0"}, "name": "best",
             "inputs": [[3, 0]]},
        ],
        "arg_nodes": [0, 1, 2],
        "heads": [[4, 0]],
    }  # fmt: skip
    path = tmp_path / "old-symbol.json"
    path.write_text(json.dumps(old))
    graph = read_symbol.read(path)
    assert [n.name for n in graph.nodes] == ["data", "bn_gamma", "bn_beta", "bn_moving_mean", "bn_moving_var", "bn", "best"]
    assert graph.nodes[5].inputs == ((0, 0), (1, 0), (2, 0), (3, 0), (4, 0))
    assert graph.nodes[5].attrs["eps"] == "9" and graph.nodes[5].attrs["__ctx_group__"] == "a"
    assert graph.nodes[6].attrs == {"__lr_mult__": "2", "__weight_wd_mult__": "0"} and graph.heads == ((6, 0),)
    assert output_names.outputs(graph) == ["best_output"]


@pytest.mark.parametrize(
    "damage",
    [
        {"nodes": [operator("relu", "a", [(0, 0)])], "heads": [[0, 0, 0]]},
        {"nodes": [variable("x")], "heads": [[5, 0, 0]]},
        {"nodes": [variable("x")], "heads": [[-1, 0, 0]]},
        {"nodes": [{"op": "relu"}], "heads": []},
        {"nodes": {}, "heads": []},
        {"nodes": [variable("x"), operator("relu", "a", [(1, 0)])], "heads": [[1, 0, 0]]},
        {"nodes": [variable("x")], "heads": [[0, 2**40, 0]]},
        {"nodes": [], "heads": [], "attrs": {"mxnet_version": ["int", float("inf")]}},
        {"nodes": [], "heads": [], "attrs": {"mxnet_version": ["int", "10901"]}},
        [],
    ],
)
def test_damaged_symbols(tmp_path, damage):
    path = tmp_path / "net-symbol.json"
    path.write_text(json.dumps(damage))
    with pytest.raises(UnsafeFileError):
        read_symbol.read(path)


def test_deeply_nested_symbols(tmp_path):
    path = tmp_path / "net-symbol.json"
    path.write_text("[" * 200_000)
    with pytest.raises(UnsafeFileError):
        read_symbol.read(path)
    inner: dict = {"nodes": [], "heads": []}
    for _ in range(100):
        inner = {"nodes": [operator("_foreach", "f", []) | {"subgraphs": [inner]}], "heads": []}
    path.write_text(json.dumps(inner))
    with pytest.raises(UnsafeFileError, match="nested too deeply"):
        read_symbol.read(path)


# sources


def test_sources(tmp_path):
    files = save(tmp_path, [variable("data"), operator("relu", "r", [(0, 0)])], [(1, 0)])
    assert frontend.accepts(files) and frontend.accepts(files[0]) and frontend.accepts(str(files[0]))
    assert frontend.accepts(files[1]) and not frontend.accepts(str(tmp_path / "none")) and not frontend.accepts(3)
    spec = {"data": ((2, 3), "float32")}
    for source in (files, files[0], (files[0], None)):
        assert [o.name for o in frontend.to_hub(source, spec).graph.outputs] == ["r_output"]
    (tmp_path / "net-0007.params").write_bytes(files[1].read_bytes())
    with pytest.raises(UsageError, match="several parameter files"):
        frontend.to_hub(files[0], spec)


def test_shapes_of_inputs(tmp_path):
    nodes = [variable("data"), variable("known", __shape__="(2, 3)"), operator("elemwise_add", "sum", [(0, 0), (1, 0)])]
    files = save(tmp_path, nodes, [(2, 0)])
    with pytest.raises(UsageError, match="data.*--inputs"):
        frontend.to_hub(files)
    with pytest.raises(UsageError, match="no input 'other'"):
        frontend.to_hub(files, {"other": ((2, 3), "float32")})
    for inputs in ({"data": np.zeros((2, 3), "f4")}, [np.zeros((2, 3), "f4")], [((2, 3), "float32")], ((2, 3), "float32")):
        assert [list(i.shape) for i in frontend.to_hub(files, inputs).graph.inputs] == [[2, 3], [2, 3]]
    specs = dict.fromkeys(("data", "known"), ((2, 3), "float32"))
    named = frontend.to_hub(files, specs, {name: {0: "N"} for name in specs})
    assert [i.shape[0].value for i in named.graph.inputs] == ["N", "N"]


def test_inspect_and_check_without_shapes(tmp_path, cli):
    nodes = [
        variable("data"), variable("w"), operator("FullyConnected", "fc", [(0, 0), (1, 0)], {"num_hidden": 3, "no_bias": True}),
        operator("Custom", "mine", [(2, 0)], {"op_type": "acme"}), operator("relu", "r", [(3, 0)]),
    ]  # fmt: skip
    files = save(tmp_path, nodes, [(4, 0)], {"arg:w": np.zeros((3, 5), "f4")})
    ran = cli("inspect", files[0], "--json")
    found = json.loads(ran.out)
    assert ran.code == 0 and [v["name"] for v in found["inputs"]] == ["data"] and found["inputs"][0]["shape"] is None
    assert [v["name"] for v in found["outputs"]] == ["r_output"] and found["operators"]["FullyConnected"] == 1
    assert found["weights"] == {"tensors": 1, "elements": 15, "bytes": 60}
    ran = cli("inspect", files[0])
    assert "input   data: the shape is not known" in ran.out and "--inputs" in ran.err
    for target in ("onnx", "coreml"):
        ran = cli("check", files[0], "--to", target)
        assert ran.code == 3 and "Custom:acme x1: no rule" in ran.out and "only the operators were checked" in ran.err
    listed = json.loads(cli("check", files[0], "--to", "onnx", "--json").out)["source_files"]
    assert [file["path"] for file in listed] == [str(path) for path in files]  # the parameters are found beside the symbol
    ran = cli("inspect", files[0], "--inputs", "other:float32[1,5]")
    assert ran.code == 2 and "no input 'other'" in ran.err


def test_reading_imports_no_mxnet():
    code = "import sys, onnxbridge.frontends.mxnet, onnxbridge.backends.mxnet; sys.exit('mxnet' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def relu(folder, name, *params):
    """A symbol named `name`, with parameter files."""
    symbol, values = save(folder, [variable("data"), operator("relu", "r", [(0, 0)])], [(1, 0)])
    symbol = symbol.rename(folder / f"{name}-symbol.json")
    content = values.read_bytes()
    values.unlink()
    for each in params:
        (folder / each).write_bytes(content)
    return symbol


def test_prefixes(tmp_path):
    symbol = relu(tmp_path, "resnet", "resnet-0005.params", "resnet-0012.params")
    five, twelve = (tmp_path / f"resnet-{n}.params" for n in ("0005", "0012"))
    for source, params in (
        ("resnet-0005", five), ("resnet-0012", twelve), ("resnet-0012.params", twelve), (("resnet", 5), five),
        (("resnet-symbol.json", 12), twelve), (("resnet", twelve), twelve), (("resnet", None), None),
    ):  # fmt: skip
        first, *rest = source if isinstance(source, tuple) else (source,)
        given = (str(tmp_path / first), *rest) if rest else str(tmp_path / first)
        assert source_files.files_of(given) == (symbol, params), source
        assert frontend.accepts(given)
    for name in ("resnet", "resnet-symbol.json"):
        assert frontend.accepts(tmp_path / name)
        with pytest.raises(UsageError, match=r"several parameter files match .* with the epoch: .*resnet-0012$"):
            source_files.files_of(tmp_path / name)
    with pytest.raises(UsageError, match=r"resnet-0007\.params: no such file; the epochs of resnet are 5, 12"):
        source_files.files_of((tmp_path / "resnet", 7))
    twelve.unlink()
    assert source_files.files_of(tmp_path / "resnet") == source_files.files_of(symbol) == (symbol, five)
    assert source_files.files_of(tmp_path / "other") is None and source_files.files_of(tmp_path / "resnet-0012") is None


def test_symbols_of_buckets_share_parameters(tmp_path):
    symbol = relu(tmp_path, "lm-5", "lm-0001.params")
    assert source_files.files_of(symbol) == source_files.files_of(tmp_path / "lm-5") == (symbol, tmp_path / "lm-0001.params")
    (tmp_path / "lm-5-0002.params").write_bytes((tmp_path / "lm-0001.params").read_bytes())
    assert source_files.files_of(symbol) == (symbol, tmp_path / "lm-5-0002.params")


def test_parameters_without_a_symbol(tmp_path):
    relu(tmp_path, "net", "weights.params")
    (tmp_path / "net-symbol.json").unlink()
    with pytest.raises(UsageError, match="has parameters only, as block.save_parameters writes them"):
        onnxbridge.convert(tmp_path / "weights.params", to="onnx")


def test_files_of_a_prefix_are_not_overwritten(tmp_path, monkeypatch):
    relu(tmp_path, "net", "net-0000.params")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="source"):
        onnxbridge.convert("net", to="mxnet", inputs="data:float32[2,3]", output="net", force=True, verify=False)
    model = onnxbridge.convert("net", to="onnx", inputs="data:float32[2,3]", verify=False).model
    assert {p.key: p.value for p in model.metadata_props}["onnxbridge.source"] == "net-symbol.json, net-0000.params"


@pytest.mark.parametrize("heads", [[[0, 6, 0]], [[1, 0, 0]], [[0, -1, 0]], [["x", 0, 0]]])
def test_a_symbol_with_an_output_that_does_not_exist(tmp_path, heads):
    symbol = {"nodes": [{"op": "null", "name": "x", "inputs": []}], "arg_nodes": [0], "heads": heads}
    (tmp_path / "net-symbol.json").write_text(json.dumps(symbol))
    with pytest.raises(UnsafeFileError, match="is not a symbol file"):
        onnxbridge.convert(tmp_path / "net-symbol.json", to="onnx", inputs="x:float32[2]")
