"""Files of lower precision that other tools wrote: the operators that add error, by running each part of the file by itself."""

import json

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import onnxbridge
from onnxbridge.hub.builder.builder import Builder
from tests.runtime.bisect.test_low_precision import ill_conditioned, network, overflowing

quantization = pytest.importorskip("onnxruntime.quantization", reason="part of the onnxruntime package")


class Calibration(quantization.CalibrationDataReader):
    def __init__(self):
        self.feeds = iter([{"x": np.random.default_rng(i).standard_normal((4, 16)).astype(np.float32)} for i in range(8)])

    def get_next(self):
        return next(self.feeds, None)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Networks as float32, float16 and quantized files, the last two by ONNX Runtime's tools."""
    from onnxruntime.transformers.float16 import convert_float_to_float16

    folder = tmp_path_factory.mktemp("precisions")
    for name, write in (("shifted", ill_conditioned), ("square", overflowing)):
        onnx.save(onnxbridge.convert(network(write), "onnx", verify=False).model, folder / f"{name}.onnx")
        half = convert_float_to_float16(onnx.load(folder / f"{name}.onnx"), keep_io_types=True)
        onnx.save(half, folder / f"{name}_half.onnx")
    quantization.quantize_static(
        folder / "shifted.onnx", folder / "quantized.onnx", Calibration(), quant_format=quantization.QuantFormat.QDQ
    )
    return folder


def renamed(path):
    """The same file with other names for all values between inputs and outputs."""
    model = onnx.load(path)
    ends = {v.name for v in (*model.graph.input, *model.graph.output)} | {t.name for t in model.graph.initializer} | {""}
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = [n if n in ends else f"other_{n}" for n in names]
    del model.graph.value_info[:]
    onnx.save(model, path.with_name(f"renamed_{path.name}"))
    return path.with_name(f"renamed_{path.name}")


@pytest.mark.parametrize("rename", [False, True])
def test_float16_file(files, rename):
    candidate = files / "shifted_half.onnx"
    found = onnxbridge.bisect(files / "shifted.onnx", renamed(candidate) if rename else candidate, suggest=True)
    rows = found.operators.rows
    assert found.first is None and {row.name for row in rows[:2]} == {"shifted", "back"}
    assert rows[0].moves > 20 * rows[2].moves > 0
    assert found.operators.together > 0.01 > 0.001 > rows[2].error


def test_overflow_in_a_float16_file(files):
    errors = onnxbridge.bisect(files / "square.onnx", files / "square_half.onnx").operators
    assert errors.rows[0].name == "square" and errors.rows[0].overflow and errors.together == np.inf


def test_quantized_file(files):
    found = onnxbridge.bisect(files / "shifted.onnx", files / "quantized.onnx", suggest=True)
    errors, suggestion = found.operators, found.suggestion
    # 1000 added in eight bits leaves steps of 4; of a quantized Tanh or MatMul a step is below 1% of its range
    assert errors.rows[0].name in {"shifted", "back"} and errors.rows[0].error > 0.5
    assert suggestion.passed and suggestion.after <= 0.01 < suggestion.before
    assert {"shifted", "back"} & set(suggestion.operators) and not suggestion.arguments()
    nodes = {node.name for node in onnx.load(files / "quantized.onnx").graph.node}
    assert set(suggestion.names) <= nodes


def test_suggested_nodes_help_the_tool_that_quantizes(files, tmp_path):
    suggestion = onnxbridge.bisect(files / "shifted.onnx", files / "quantized.onnx", suggest=True).suggestion
    quantization.quantize_static(
        files / "shifted.onnx", tmp_path / "mixed.onnx", Calibration(), quant_format=quantization.QuantFormat.QDQ,
        nodes_to_exclude=list(suggestion.names),
    )  # fmt: skip
    after = onnxbridge.bisect(files / "shifted.onnx", tmp_path / "mixed.onnx", suggest=True)
    off = after.suggestion.before if after.suggestion is not None else 0.0
    assert off < 0.1 * suggestion.before


def test_command(cli, files):
    ran = cli("bisect", files / "shifted.onnx", files / "quantized.onnx", "--suggest", "-q")
    assert ran.code == 1
    assert "nodes_to_exclude of onnxruntime.quantization" in ran.out
    shown = json.loads(cli("bisect", files / "shifted.onnx", files / "quantized.onnx", "--json", "-q").out)
    assert shown["operators"]["operators"][0]["name"] in {"shifted", "back"} and shown["suggestion"] is None


def test_compressed_program(tmp_path):
    op, r = Builder(), np.random.default_rng(4)
    x = op.input("x", ir.DataType.FLOAT, [4, 64])
    hidden = op.Tanh(op.MatMul(x, r.standard_normal((64, 64)).astype(np.float32) / 8))
    model = op.model([x], [op.output(op.MatMul(hidden, r.standard_normal((64, 64)).astype(np.float32)), "y")])
    onnx.save(onnxbridge.convert(model, "onnx", verify=False).model, tmp_path / "net.onnx")
    onnxbridge.convert(tmp_path / "net.onnx", "coreml", compress="palettize2", verify=False).save(tmp_path / "net.mlpackage")
    errors = onnxbridge.bisect(tmp_path / "net.onnx", tmp_path / "net.mlpackage").operators
    assert [row.op for row in errors.rows] == ["MatMul", "MatMul", "Tanh"]
    assert errors.rows[1].moves > 0.05 > 1e-5 > errors.rows[2].error


def test_a_file_of_the_same_precision_has_a_first_divergence(files, tmp_path):
    model = onnx.load(files / "shifted.onnx")
    weight = next(t for t in model.graph.initializer if len(t.dims) == 2)
    weight.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weight) * np.float32(1.1), weight.name))
    onnx.save(model, tmp_path / "faulty.onnx")
    found = onnxbridge.bisect(files / "shifted.onnx", tmp_path / "faulty.onnx")
    assert found.operators is None and found.first.op == "MatMul"
