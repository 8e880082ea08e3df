"""Generated source: it computes the same in a process without onnxbridge, and no name in a model is executed."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys

import numpy as np
import onnx_ir as ir
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import onnxbridge
from onnxbridge.backends.pytorch import backend
from onnxbridge.backends.pytorch.codegen import source_file
from onnxbridge.errors import UsageError, VerificationError
from onnxbridge.hub.builder.builder import Builder
from tests.backends import standard_cases
from tests.backends.small_networks import countdown, image_classifier

PROCESS_CODE = """
import importlib.util, json, sys, traceback
import torch

def check(folder, keys, count):
    spec = importlib.util.spec_from_file_location("net", folder + "/net.py")
    net = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(net)
    inputs, expected = torch.load(folder + "/expected.pt")
    module = net.load()
    with torch.no_grad():
        got = module(*inputs)
        reloaded = net.load(folder + "/net.safetensors")(*inputs)
    for results in (got, reloaded):
        for a, b in zip(results if isinstance(results, tuple) else (results,), expected, strict=True):
            assert torch.equal(a, b)
    assert sorted(module.state_dict()) == keys
    assert not [m for m in sys.modules if m.partition(".")[0] in ("onnx", "onnx_ir", "onnxbridge", "safetensors")]
    assert len(list(module.parameters())) == count

for line in sys.stdin:
    try:
        check(*json.loads(line))
        print(json.dumps("same"), flush=True)
    except BaseException:
        print(json.dumps(traceback.format_exc()), flush=True)
"""


@pytest.fixture(scope="module")
def other_process():
    """A process with only torch that checks whether a folder's module reproduces the saved outputs."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", PROCESS_CODE], stdin=pipe, stdout=pipe, text=True) as process:

        def ask(*question):
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield ask
        process.stdin.close()


def runs_without_onnxbridge(module, inputs, folder, other_process):
    """Write a module as `net.py` and run it in the other process."""
    (code, weights) = source_file.save(module, folder / "net.pt2")
    assert (code.name, weights.name) == ("net.py", "net.safetensors")
    with torch.no_grad():
        expected = module(*inputs)
    torch.save((inputs, expected if isinstance(expected, tuple) else (expected,)), folder / "expected.pt")
    assert other_process(str(folder), sorted(module.state_dict()), len(list(module.parameters()))) == "same"
    return code.read_text()


def imported(module, folder):
    """The module loaded from its source in this process, and the source."""
    code, _ = source_file.save(module, folder / "net.py")
    found: dict = {"__file__": str(code)}
    exec(compile(code.read_text(), str(code), "exec"), found)
    return found["load"](), code.read_text()


def test_a_classifier(other_process, tmp_path):
    module = backend.from_hub(image_classifier())
    text = runs_without_onnxbridge(module, (torch.randn(3, 3, 12, 12),), tmp_path, other_process)
    assert "self.conv = nn.Conv2d(3, " in text and "def forward(self, image):" in text


def test_control_flow(other_process, tmp_path):
    module = backend.from_hub(countdown())
    text = runs_without_onnxbridge(module, (torch.tensor([1.0, 2.0, 3.0]), torch.tensor(3)), tmp_path, other_process)
    assert "@staticmethod" in text


class Tagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(9, 4)
        self.rnn = torch.nn.RNN(4, 4, num_layers=2, nonlinearity="relu", batch_first=True)
        self.out = torch.nn.Linear(4, 9, bias=False)
        self.out.weight = self.words.weight

    def forward(self, ids):
        return self.out(self.rnn(self.words(ids))[0])


def test_tied_weights_stay_tied(other_process, tmp_path):
    ids = torch.arange(8).reshape(2, 4)
    made = onnxbridge.convert(Tagger().eval(), "pytorch", inputs=(ids,), verify=False, emit="source")
    assert 'nonlinearity="relu"' in runs_without_onnxbridge(made.model, (ids,), tmp_path, other_process)
    from safetensors.torch import load_file

    stored = load_file(tmp_path / "net.safetensors")
    assert all(torch.equal(made.model.state_dict()[k], v) for k, v in stored.items()) and "out.weight" in stored


class Block(torch.nn.Module):
    """A module without weights is registered last, whatever its index in the list."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 4))

    def forward(self, x):
        return x + self.layers(x)


def test_the_order_of_a_list(other_process, tmp_path):
    x = torch.randn(2, 4)
    made = onnxbridge.convert(Block().eval(), "pytorch", inputs=(x,), emit="source")
    text = runs_without_onnxbridge(made.model, (x,), tmp_path, other_process)
    assert text.index("nn.Linear(4, 8)") < text.index("nn.GELU()") < text.index("nn.Linear(8, 4)")


def test_verification_runs_the_generated_source(monkeypatch):
    zeroed = "[p.data.zero_() for p in model.parameters()]\n    return model.eval()"
    wrong = source_file._LOAD.replace("return model.eval()", zeroed)
    monkeypatch.setattr(source_file, "_LOAD", wrong)
    with pytest.raises(VerificationError):
        onnxbridge.convert(Block().eval(), "pytorch", inputs=(torch.randn(2, 4),), emit="source")


def ternary(shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape) % 3 - 1


def test_variables_that_are_used_later_are_not_overwritten(tmp_path):
    """Temporary variables are reused, also under the name of an input."""
    op = Builder()
    x, y = op.input("x", ir.DataType.FLOAT, ["N", 3]), op.input("y", ir.DataType.FLOAT, ["N", 3])
    used_later = op.Relu(op.Neg(op.Exp(x)))
    difference = op.Sub(
        op.Sub(used_later, op.Sub(y, x)), op.Mul(op.Add(used_later, x), op.Add(op.Tanh(y), op.Pow(op.Neg(used_later), 2.0)))
    )
    module = backend.from_hub(op.model([x, y], [op.output(op.Div(difference, op.Add(op.Abs(y), 1.0)), "z")]))
    loaded, text = imported(module, tmp_path)
    inputs = torch.from_numpy(ternary((4, 3))), torch.from_numpy(ternary((4, 3)) + 0.5)
    assert torch.equal(loaded(*inputs), module(*inputs))
    assert re.findall(r"^ +x = ", text, re.MULTILINE)


def test_arithmetic_of_sizes_and_slices(tmp_path):
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, ["N", "L"])
    rows, columns = op.size(x, 0), op.size(x, 1)
    count = op.Sub(op.Mul(op.Add(rows, columns), op.Sub(columns, 1)), op.Sub(rows, op.Sub(columns, rows)))
    part = op.Slice(op.Slice(x, [1, -2], [1 << 62, (1 << 63) - 1], [0, 1]), [0], [9], [1], [2])
    results = [op.Range(np.array(0), count, np.array(1)), op.Reshape(part, op.Concat(op.Shape(part), [1], axis=0))]
    module = backend.from_hub(op.model([x], [op.output(v, f"y{i}") for i, v in enumerate(results)]))
    loaded, _ = imported(module, tmp_path)
    for inputs in (torch.rand(2, 3), torch.rand(5, 7)):
        assert all(torch.equal(a, b) for a, b in zip(loaded(inputs), module(inputs), strict=True))


@pytest.mark.parametrize("name", ["391_quantized", "a.0", "b.2", "b.1.weight"])
def test_names_with_a_leading_digit(name, tmp_path):
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, [2])
    stored = op.constant(np.array([3, 4], np.int8), name)
    module = backend.from_hub(op.model([x], [op.output(op.Add(x, op.Cast(stored, to=1)), "y")]))
    loaded, _ = imported(module, tmp_path)
    assert loaded(torch.ones(2)).tolist() == [4, 5] and loaded.state_dict().keys() == module.state_dict().keys()


def test_default_arguments_are_omitted(tmp_path):
    class Net(torch.nn.Module):
        def forward(self, x):
            pool, weight = torch.nn.functional.max_pool2d, torch.ones(3, 1, 2, 2)
            y = pool(x, 2)
            return pool(y, 2, stride=1, padding=1), torch.nn.functional.conv2d(y, weight, groups=3)

    made = onnxbridge.convert(Net().eval(), "pytorch", inputs=(torch.randn(2, 3, 8, 8),), emit="source").model
    _, text = imported(made, tmp_path)
    assert "F.max_pool2d(x, 2)" in text and "2, stride=1, padding=1)" in text and "groups=3)" in text
    assert not re.search(r"dilation|ceil_mode|return_indices", text)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_layers_of_other_dtypes(dtype, tmp_path):
    parts = [torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.PReLU(4), torch.nn.Flatten(), torch.nn.Linear(16, 2)]
    inputs = (torch.randn(2, 3, 4, 4, dtype=dtype),)
    net = torch.nn.Sequential(*parts).to(dtype).eval()
    made = onnxbridge.convert(net, "pytorch", inputs=inputs, verify=False, fold_batch_norm=False, emit="source").model
    loaded, text = imported(made, tmp_path)
    assert torch.equal(loaded(*inputs), made(*inputs)) and f"nn.Conv2d(3, 4, 3, dtype={dtype})" in text
    assert {v.dtype for v in loaded.state_dict().values()} <= {dtype, torch.int64}


def test_overloaded_functions(tmp_path):
    """An argument that is positional in one signature is keyword-only in another: torch.mean's axes and dtype."""
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, ["N", 3, 4])
    stored = [op.constant(np.arange(1, 4, dtype=np.float32) * n, f"s{n}") for n in range(1, 5)]
    normed = op.BatchNormalization(x, *stored, training_mode=1, outputs=3)
    results = [*normed, op.ReduceSum(x, [1], keepdims=0), op.ReduceMax(x, [1, 2]), op.ArgMax(x, axis=1)]
    module = backend.from_hub(op.model([x], [op.output(v, f"y{i}") for i, v in enumerate(results)]))
    loaded, _ = imported(module, tmp_path)
    x = torch.randn(5, 3, 4)
    assert all(torch.equal(a, b) for a, b in zip(loaded(x), module(x), strict=True))


HOSTILE = [
    "x'); import os; os.abort() #", '"""\nimport os\nos.abort()\n"""', "a\nimport os; os.abort()", "\\", "{name}", "self",
    "torch", "class", "lambda: 0", "è", "\u2028raise", "ﬀ", "load", "forward",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_not_executed(name, tmp_path):
    """As the name of the graph, an input, an output, a node, a weight and a scope."""
    weight = numpy_helper.from_array(np.ones((3, 2), np.float32), f"{name}.{name}")
    nodes = [
        helper.make_node("MatMul", [name, f"{name}.{name}"], ["h"], name=f"/{name}/{name}"),
        helper.make_node("Relu", ["h"], [f"{name} out"], name=name),
    ]
    value = helper.make_tensor_value_info
    made = helper.make_graph(
        nodes, name, [value(name, TensorProto.FLOAT, ["N", 3])], [value(f"{name} out", TensorProto.FLOAT, None)], [weight]
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    module = onnxbridge.convert(model, "pytorch").model
    loaded, text = imported(module, tmp_path)
    assert torch.equal(loaded(torch.ones(2, 3)), torch.full((2, 2), 3.0)) and text.isascii()
    assert "os.abort" not in {ast.unparse(n) for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Attribute)}
    assert {alias.name for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Import) for alias in n.names} <= {
        "json", "os", "struct", "torch", "torch.nn.functional",
    }  # fmt: skip


@pytest.mark.parametrize("text", ["');import os;os.abort()#", "a\nb", '"""'])
def test_attributes_are_not_executed(text, tmp_path):
    value = helper.make_tensor_value_info
    node = helper.make_node("RegexFullMatch", ["x"], ["y"], pattern=text.replace("(", r"\(").replace(")", r"\)"))
    made = helper.make_graph([node], "g", [value("x", TensorProto.STRING, [1])], [value("y", TensorProto.BOOL, [1])])
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    module = onnxbridge.convert(model, "pytorch").model
    assert imported(module, tmp_path)[0](np.array([text], object)).tolist() == [True]


CASES = list(standard_cases.chosen(backend.rules, 1, standard_cases.node_cases.expected_failures("pytorch_backend")))


def test_every_operator_has_source(tmp_path):
    """The source of each operator's helpers compiles."""
    written = 0
    for case in CASES[::3]:
        model = standard_cases.node_cases.model_of(case.values[0])
        text, _ = source_file.written(backend.from_hub(standard_cases.hub_of(model)))
        compile(text, "net.py", "exec")
        written += 1
    assert written > 40


def test_on_the_command_line(cli, tmp_path):
    onnxbridge.convert(Tagger().eval(), inputs=(torch.ones(1, 3, dtype=torch.int64),), output=tmp_path / "tagger.onnx")
    ran = cli("convert", tmp_path / "tagger.onnx", "--to", "pytorch", "--emit", "source", "-o", tmp_path / "net.py")
    assert ran.code == 0, ran.err
    assert {p.name for p in tmp_path.iterdir()} == {"tagger.onnx", "net.py", "net.safetensors"}
    with pytest.raises(UsageError, match="not one of program, source"):
        onnxbridge.convert(tmp_path / "tagger.onnx", "pytorch", emit="prose")


def test_files_of_a_failed_verification_are_marked(tmp_path):
    made = source_file.save(backend.from_hub(image_classifier()), tmp_path / "net.py.failed")
    assert [p.name for p in made] == ["net.py.failed", "net.safetensors.failed"]
