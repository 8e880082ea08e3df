"""Generated source: it computes the same in a process without onnxbridge, and no name in a model is executed."""

from __future__ import annotations

import ast
import subprocess
import sys

import keras
import numpy as np
import onnx_ir as ir
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import onnxbridge
from onnxbridge.backends.tensorflow import backend
from onnxbridge.backends.tensorflow.codegen import source_file
from onnxbridge.errors import ConversionError, UsageError, VerificationError
from onnxbridge.hub.builder.builder import Builder
from tests.backends import standard_cases
from tests.backends.small_networks import countdown, image_classifier, images

R = np.random.default_rng(0)
PROCESS_CODE = """
import importlib.util, sys
import numpy as np

for folder in sys.argv[1:]:
    spec = importlib.util.spec_from_file_location("net", folder + "/net.py")
    net = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(net)
    saved = np.load(folder + "/expected.npz")
    for model in (net.load(), net.load(folder + "/net.weights.h5")):
        np.testing.assert_allclose(model(saved["x"]), saved["y"], rtol=1e-4, atol=1e-5)
        assert len(model.trainable_variables) == saved["trainable"]
    assert not [m for m in sys.modules if m.partition(".")[0] in ("onnx", "onnx_ir", "onnxbridge", "torch")]
print("same")
"""


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(8)
        self.conv2 = torch.nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x):
        return torch.relu(x + self.conv2(torch.relu(self.bn1(self.conv1(x)))))


class Residual(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 8, 7, stride=2, padding=3)
        self.layer1 = torch.nn.Sequential(Block(), Block())
        self.fc = torch.nn.Linear(8, 5)

    def forward(self, x):
        return self.fc(self.layer1(self.stem(x)).mean((2, 3)))


class Scaled(torch.nn.Module):
    """A weight that no layer of Keras multiplies with."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.rand(1, 5))
        self.fc = torch.nn.Linear(4, 5)

    def forward(self, x):
        return torch.cumsum(self.fc(x) * self.scale, -1)


def _text_classifier():
    layers, inputs = keras.layers, keras.Input((None,), dtype="int32", name="ids")
    x = layers.Bidirectional(layers.LSTM(6, return_sequences=True), name="both")(layers.Embedding(30, 8, name="words")(inputs))
    return keras.Model(inputs, layers.Dense(3, name="logits")(layers.LSTM(4, name="last")(x)))


def _written(source, x, folder, **options):
    """Convert a model to `net.py`, with what it computes beside it; returns the source."""
    options = options if isinstance(source, keras.Model) else {"inputs": (torch.from_numpy(x),), **options}
    folder.mkdir()
    made = onnxbridge.convert(source, to="tensorflow", output=folder / "net.py", **options)
    assert made.report.agrees
    np.savez(folder / "expected.npz", x=x, y=made.model(x), trainable=len(made.model.trainable_variables))
    assert {p.name for p in folder.iterdir()} == {"net.py", "net.weights.h5", "expected.npz"}
    return (folder / "net.py").read_text()


def test_networks_in_another_process(tmp_path):
    keras.utils.set_random_seed(0)
    torch.manual_seed(0)
    image = R.normal(size=(2, 3, 16, 16)).astype(np.float32)
    sizes = {"dynamic": {"x": {0: "N"}}}
    residual = _written(Residual().eval(), image, tmp_path / "residual", fold_batch_norm=False, **sizes)
    assert '    x = layers.Conv2D(8, 7, strides=2, name="stem")(x)\n' in residual
    assert '\n    # layer1.1\n    y = layers.Conv2D(8, 3, padding="same", use_bias=False, name="layer1.1.conv1")(x)\n' in residual
    text = _written(_text_classifier(), R.integers(0, 30, (2, 6)).astype(np.int32), tmp_path / "text")
    assert '    x = layers.Bidirectional(layers.LSTM(6, return_sequences=True), name="both")(x)\n' in text
    assert [line.split("(")[0].strip() for line in text.splitlines() if " = " in line][:6] == [
        "inputs = keras.Input", "x = layers.Embedding", "x = layers.Bidirectional", "x = layers.LSTM", "x = layers.Dense",
        "model = build",
    ]  # fmt: skip
    encoder = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    attends = _written(encoder, R.normal(size=(2, 5, 8)).astype(np.float32), tmp_path / "encoder")
    assert ' = layers.MultiHeadAttention(2, 4, name="self_attn")(inputs, inputs)\n' in attends
    scaled = _written(Scaled().eval(), R.normal(size=(2, 4)).astype(np.float32), tmp_path / "scaled")
    assert "class CumSum(layers.Layer):" in scaled
    assert 'self.scale = self.add_weight(shape=(1, 5), initializer="zeros", name="scale")' in scaled
    folders = [str(tmp_path / name) for name in ("residual", "text", "encoder", "scaled")]
    ran = subprocess.run([sys.executable, "-c", PROCESS_CODE, *folders], capture_output=True, text=True)
    assert ran.stdout == "same\n", ran.stderr[-3000:]


def _loaded(artifact, folder):
    """The model loaded from its source in this process, and the source."""
    code, _ = source_file.save(artifact, folder / "net.py")
    found: dict = {"__file__": str(code)}
    exec(compile(code.read_text(), str(code), "exec"), found)
    return found["load"](), code.read_text()


def test_a_classifier(tmp_path):
    artifact = backend.from_hub(image_classifier(), emit="source")
    model, text = _loaded(artifact, tmp_path)
    np.testing.assert_allclose(model(images(3)), artifact(images(3)), rtol=1e-5, atol=1e-6)
    assert [w.path for w in model.trainable_variables] == [w.path for w in artifact.trainable_variables]
    assert 'layers.DepthwiseConv2D(3, strides=2, padding="same"' in text or "layers.ZeroPadding2D(" in text
    model.compile("sgd", "mse")
    first, *_, last = model.fit(images(4), np.ones((4, 5), np.float32), epochs=5, verbose=0).history["loss"]
    assert last < first


def test_verification_runs_the_generated_source(monkeypatch):
    wrong = source_file._LOAD.replace("return model", "[w.assign(w * 0.5) for w in model.weights]\n    return model")
    monkeypatch.setattr(source_file, "_LOAD", wrong)
    with pytest.raises(VerificationError):
        onnxbridge.convert(Residual().eval(), "tensorflow", inputs=(torch.randn(1, 3, 8, 8),), emit="source")


def test_weights_that_several_layers_share(tmp_path):
    """A layer that is called repeatedly, and a weight that is used in other ways, too."""
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, ["N", 4])
    tied, twice = (op.constant(R.normal(size=(4, 4)).astype(np.float32), name) for name in ("tied.weight", "twice.weight"))
    y = op.Relu(op.MatMul(op.Relu(op.MatMul(x, twice)), twice))
    y = op.Gemm(op.MatMul(y, tied), tied, transB=1)
    artifact = backend.from_hub(op.model([x], [op.output(y, "y")]), emit="source")
    model, text = _loaded(artifact, tmp_path)
    given = R.normal(size=(3, 4)).astype(np.float32)
    np.testing.assert_allclose(model(given), artifact(given), rtol=1e-5, atol=1e-6)
    assert len(model.trainable_variables) == 2
    assert text.count("layers.Dense(") == 1


def test_several_inputs_and_outputs_and_fixed_weights(tmp_path):
    op = Builder()
    x, y = (op.input(name, ir.DataType.FLOAT, ["N", 3]) for name in ("x", "y"))
    total = op.Sub(op.Mul(x, 2.0), op.Div(y, 4.0))
    results = [op.Pow(op.Neg(total), 2.0), *op.Split(op.Add(total, np.array([1, 2, 3], np.float32)), [1, 2], axis=1, outputs=2)]
    artifact = backend.from_hub(op.model([x, y], [op.output(v, f"out{i}") for i, v in enumerate(results)]), emit="source")
    model, _ = _loaded(artifact, tmp_path)
    given = [R.normal(size=(2, 3)).astype(np.float32) for _ in range(2)]
    for a, b in zip(model(given), artifact(*given), strict=True):
        np.testing.assert_array_equal(a, b)


HOSTILE = [
    "x'); import os; os.abort() #", '"""\nimport os\nos.abort()\n"""', "a\nimport os; os.abort()", "\\", "{name}", "self",
    "keras", "class", "lambda: 0", "è", "\u2028raise", "ﬀ", "load", "build", "x",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_not_executed(name, tmp_path):
    """As the name of the graph, an input, an output, a node, a weight and a scope."""
    weight = numpy_helper.from_array(np.ones((3, 2), np.float32), f"{name}.{name}")
    other = numpy_helper.from_array(np.ones((1, 2), np.float32), f"{name}.other.{name}")
    nodes = [
        helper.make_node("MatMul", [name, f"{name}.{name}"], ["h"], name=f"/{name}/{name}"),
        helper.make_node("Relu", ["h"], ["r"], name=name),
        helper.make_node("Mul", ["r", f"{name}.other.{name}"], [f"{name} out"], name=f"{name}/mul"),
    ]
    value = helper.make_tensor_value_info
    inputs = [value(name, TensorProto.FLOAT, ["N", 3])]
    made = helper.make_graph(nodes, name, inputs, [value(f"{name} out", TensorProto.FLOAT, None)], [weight, other])
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    artifact = onnxbridge.convert(model, "tensorflow", emit="source").model
    loaded, text = _loaded(artifact, tmp_path)
    np.testing.assert_array_equal(loaded(np.ones((2, 3), np.float32)), np.full((2, 2), 3.0))
    tree = list(ast.walk(ast.parse(text)))
    assert text.isascii()
    assert "os.abort" not in {ast.unparse(n) for n in tree if isinstance(n, ast.Attribute)}
    assert {alias.name for n in tree if isinstance(n, ast.Import) for alias in n.names} <= {"keras", "numpy", "os", "tensorflow"}


def test_control_flow_is_refused_by_name(tmp_path):
    with pytest.raises(ConversionError, match=r"Loop.*it has subgraphs.*\n.*\n.*-o net.keras"):
        source_file.save(backend.from_hub(countdown(), emit="source"), tmp_path / "net.py")
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, [4])
    sequence = op.model([x], [op.output(op.SplitToSequence(x, np.array([2, 2])), "parts")])
    with pytest.raises(ConversionError, match="no functional Keras model"):
        source_file.save(backend.from_hub(sequence, emit="source"), tmp_path / "net.py")


CASES = list(standard_cases.chosen(backend.rules, 1, standard_cases.node_cases.expected_failures("tensorflow_backend")))


@pytest.mark.parametrize("case", CASES[::6])
def test_operators_have_source_that_computes_the_same(case):
    """The source of single operators, most of them in layers of TensorFlow calls, is loaded and run."""
    model = standard_cases.node_cases.model_of(case)
    artifact = backend.from_hub(standard_cases.hub_of(model), emit="source")
    if not hasattr(artifact, "built_calls"):
        pytest.skip("no functional Keras model")
    try:
        run = backend.runner(artifact)
    except ConversionError as e:
        assert "subgraphs" in str(e)  # noqa: PT017
        return
    names = [i.name for i in model.graph.input]
    for inputs, expected in standard_cases.node_cases.data_sets(case):
        got = run(dict(zip(names, inputs, strict=False)))
        standard_cases.node_cases.assert_same(list(got.values()), list(expected), case.rtol, max(case.atol, 1e-7))


def test_on_the_command_line(cli, tmp_path):
    onnxbridge.convert(_text_classifier(), output=tmp_path / "net.onnx")
    for output, options in (("net.py", ()), ("other", ("--emit", "source"))):
        ran = cli("convert", tmp_path / "net.onnx", "--to", "tensorflow", *options, "-o", tmp_path / output)
        assert ran.code == 0, ran.err
    assert {p.name for p in tmp_path.iterdir()} == {"net.onnx", "net.py", "net.weights.h5", "other.py", "other.weights.h5"}
    with pytest.raises(UsageError, match="not a .keras file"):
        onnxbridge.convert(tmp_path / "net.onnx", "tensorflow", emit="source", output=tmp_path / "net.keras")


def test_files_of_a_failed_verification_are_marked(tmp_path):
    made = source_file.save(backend.from_hub(image_classifier(), emit="source"), tmp_path / "net.py.failed")
    assert [p.name for p in made] == ["net.py.failed", "net.weights.h5.failed"]
