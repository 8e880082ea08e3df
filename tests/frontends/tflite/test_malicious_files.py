"""Damaged and malicious TensorFlow Lite files end in an error with a reason, whatever their bytes are."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest

from onnxbridge.errors import ConversionError, OnnxbridgeError, UnsafeFileError
from onnxbridge.formats.tflite import read_model
from onnxbridge.frontends.tflite import frontend
from tests.frontends.tflite.build import G, Op, T, model
from tests.frontends.tflite.compare import saved

X = np.ones((2, 3), np.float32)


def _content(**changes) -> bytes:
    x, y = T(X, name="x"), T(type="FLOAT32", name="y", shape=(2, 4))
    w, b = T(np.ones((4, 3), np.float32), constant=True), T(np.zeros(4, np.float32), constant=True)
    return model(
        G([x], [y], [Op("FULLY_CONNECTED", [x, w, b], [y], "FullyConnectedOptions")]),
        signatures=(("serving_default", 0, {"x": x}, {"y": y}),), **changes,
    )  # fmt: skip


def _refused(source, match=None):
    with pytest.raises(UnsafeFileError, match=match) as raised:
        frontend.to_hub(source)
    assert raised.value.exit_code == 4
    assert "get the file again" in str(raised.value)


@pytest.mark.parametrize("length", [8, 12, 40, 200, -100, -1])
def test_truncated_files(tmp_path, length):
    _refused(saved(tmp_path, _content()[:length]))


def test_random_bytes_in_the_place_of_offsets(tmp_path):
    """1,500 files with a word overwritten: each converts, or ends in an error of ours."""
    content, generator = _content(), random.Random(0)
    words = [0, 1, 4, 0x7FFFFFFF, 0xFFFFFFFF, 0x80000000, len(content), len(content) - 4]
    for _ in range(1500):
        damaged = bytearray(content)
        at = generator.randrange(0, len(damaged) - 4)
        damaged[at : at + 4] = struct.pack("<I", generator.choice(words))
        try:
            read = read_model.parse(bytes(damaged), "net.tflite")
        except OnnxbridgeError:
            continue
        assert len(read.graphs) <= len(content)


@pytest.mark.parametrize("seed", range(60))
def test_random_damage_through_the_whole_conversion(tmp_path, seed):
    content, generator = bytearray(_content()), random.Random(seed)
    for _ in range(2):
        content[generator.randrange(8, len(content))] = generator.randrange(256)
    try:
        frontend.to_hub(saved(tmp_path, bytes(content)))
    except (OnnxbridgeError, ConversionError) as error:
        assert str(error)


def test_a_constant_with_fewer_bytes_than_its_shape(tmp_path):
    x, y = T(X, name="x"), T(type="FLOAT32", name="y")
    w = T(np.ones((4, 3), np.float32), constant=True, raw=b"\0" * 16)
    _refused(saved(tmp_path, model(G([x], [y], [Op("ADD", [x, w], [y], "AddOptions")]))), "48 bytes, but has 16")


def test_a_constant_of_an_enormous_shape(tmp_path):
    x, y = T(X, name="x"), T(type="FLOAT32", name="y")
    w = T(np.ones(1, np.float32), constant=True, shape=(1 << 30, 1 << 30), raw=b"\0" * 4)
    _refused(saved(tmp_path, model(G([x], [y], [Op("ADD", [x, w], [y], "AddOptions")]))))


def test_a_buffer_beyond_the_end_of_the_file(tmp_path):
    from onnxbridge.formats.tflite.schema import schema

    s = schema()
    made = s.ModelT.InitFromPackedBuf(_content(), 0)
    made.buffers[1].data, made.buffers[1].offset, made.buffers[1].size = None, 100, 1 << 40
    _refused(saved(tmp_path, _packed(made)), "refers to bytes up to")


def _packed(made) -> bytes:
    import flatbuffers

    builder = flatbuffers.Builder(1024)
    builder.Finish(made.Pack(builder), b"TFL3")
    return bytes(builder.Output())


@pytest.mark.parametrize("field", ["inputs", "outputs"])
@pytest.mark.parametrize("index", [-5, 1000, 2**31 - 1])
def test_tensors_that_do_not_exist(tmp_path, field, index):
    from onnxbridge.formats.tflite.schema import schema

    made = schema().ModelT.InitFromPackedBuf(_content(), 0)
    setattr(made.subgraphs[0].operators[0], field, [index])
    _refused(saved(tmp_path, _packed(made)))


def test_an_output_that_no_operator_computes(tmp_path):
    x, y, z = T(X, name="x"), T(type="FLOAT32", name="y"), T(type="FLOAT32", name="z")
    _refused(saved(tmp_path, model(G([x], [y, z], [Op("RELU", [x], [y])]))), "'z' is used, but no operator computes it")


def test_a_subgraph_that_contains_itself(tmp_path):
    condition, x, y = T(np.array(True), name="c"), T(X, name="x"), T(type="FLOAT32", name="y", shape=(2, 3))
    made = Op("IF", [condition, x], [y], "IfOptions", {"then_subgraph_index": 1, "else_subgraph_index": 1})
    c, a, b = T(type="BOOL", shape=()), T(type="FLOAT32", shape=(2, 3)), T(type="FLOAT32", shape=(2, 3))
    inner = Op("IF", [c, a], [b], "IfOptions", {"then_subgraph_index": 1, "else_subgraph_index": 1})
    source = saved(tmp_path, model(G([condition, x], [y], [made]), G([a], [b], [inner])))
    with pytest.raises(OnnxbridgeError):
        frontend.to_hub(source)


@pytest.mark.parametrize("name", ["CAST", "BITCAST"])
def test_an_operator_without_results_is_refused(tmp_path, name):
    x, y = T(X, name="x"), T(type="FLOAT32", name="y")
    with pytest.raises(ConversionError, match=name):
        frontend.to_hub(saved(tmp_path, model(G([x], [y], [Op("ABS", [x], [y]), Op(name, [x], [])]))))
