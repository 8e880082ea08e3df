"""Hostile and corrupt `.pt2` files are rejected before PyTorch reads them; nothing in them is executed."""

from __future__ import annotations

import json
import os
import pickle
import zipfile

import pytest
import torch
from torch import nn

from onnxbridge.errors import LimitError, UnsafeFileError
from onnxbridge.frontends.pytorch import frontend
from onnxbridge.frontends.pytorch.pt2 import validator
from tests.frontends.pytorch.compare import assert_equal_outputs, convert_to_onnx, onnxruntime_session, run_session


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 4)
        self.register_buffer("b", torch.ones(1), persistent=False)

    def forward(self, x, pair):
        y = torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: a * 2, (self.l(x) + self.b,))
        return {"y": y, "z": [pair[0].reshape(x.shape[0] * 2, -1), torch.tensor([1.0, 2.0]) + pair[1]]}


@pytest.fixture(scope="module")
def members(tmp_path_factory):
    """The path of a valid file, and its members."""
    path = tmp_path_factory.mktemp("pt2") / "net.pt2"
    auto = torch.export.Dim.AUTO
    example = (torch.randn(3, 4), (torch.randn(3, 4), torch.randn(2)))
    torch.export.save(torch.export.export(Net().eval(), example, dynamic_shapes=({0: auto}, ({0: auto}, None))), path)
    with zipfile.ZipFile(path) as archive:
        return path, {i.filename: archive.read(i) for i in archive.infolist()}


@pytest.fixture
def written(members, tmp_path):
    """Write a file with some members changed."""

    def write(changes=(), compression=zipfile.ZIP_STORED):
        path = tmp_path / "changed.pt2"
        with zipfile.ZipFile(path, "w", compression) as archive:
            for name, content in {**members[1], **dict(changes)}.items():
                archive.writestr(name, content)
        return path

    return write


class Bomb:
    """Creates a file when it is unpickled."""

    path = ""

    def __reduce__(self):
        return (open, (Bomb.path, "w"))


@pytest.fixture(autouse=True)
def bomb(tmp_path):
    Bomb.path = str(tmp_path / "touched")
    yield pickle.dumps(Bomb())
    assert not os.path.exists(Bomb.path), "the file ran code"


def test_valid_file(members):
    path, _ = members
    assert frontend.accepts(path)
    model, proto = convert_to_onnx(path)
    x = torch.randn(5, 4)
    feeds = {"x": x.numpy(), "pair_0": x.numpy(), "pair_1": torch.randn(2).numpy()}
    assert_equal_outputs(run_session(onnxruntime_session(proto), feeds), frontend.runner(path)(feeds))
    assert [v.name for v in model.graph.outputs] == ["y", "z_0", "z_1"]


def test_sample_inputs_are_not_unpickled(written, members, bomb):
    name = next(n for n in members[1] if "sample_inputs" in n)
    convert_to_onnx(written({name: bomb}))


def model_json(members, change):
    name = next(n for n in members[1] if "/models/" in n)
    program = json.loads(members[1][name])
    change(program)
    return {name: json.dumps(program)}


def config(members, kind, change):
    name = next(n for n in members[1] if n.endswith(f"{kind}_config.json"))
    entries = json.loads(members[1][name])
    change(next(iter(entries["config"].values())))
    return {name: json.dumps(entries)}


@pytest.mark.parametrize("kind", ["weights", "constants"])
def test_pickled_weights_are_rejected(written, members, bomb, kind):
    changes = config(members, kind, lambda e: e.update(use_pickle=True))
    data = {n: bomb for n in members[1] if n.endswith(("weight_0", "tensor_0"))}
    with pytest.raises(UnsafeFileError, match="pickled objects"):
        frontend.to_hub(written({**changes, **data}))
    changes = config(members, kind, lambda e: e.update(path_name="custom_obj_0"))
    with pytest.raises(UnsafeFileError, match="pickled objects"):
        frontend.to_hub(written({**changes, f"net/data/{kind}/custom_obj_0": bomb}))


def nodes(program):
    return program["graph_module"]["graph"]["nodes"]


def dynamic_size(program):
    values = program["graph_module"]["graph"]["tensor_values"]
    return next(s for v in values.values() for s in v["sizes"] if "as_expr" in s)["as_expr"]


CODE = "__import__('os').system('touch touched')"
HOSTILE = {
    "a formula that never ends": lambda p: dynamic_size(p).update(expr_str="9**9**9**9"),
    "a formula that runs code": lambda p: dynamic_size(p).update(expr_str=CODE),
    "a formula with an attribute": lambda p: dynamic_size(p).update(expr_str="Symbol('s77').func"),
    "a symbol that is code": lambda p: dynamic_size(p).update(expr_str=f"Symbol({CODE!r})"),
    "a range that is code": lambda p: p.update(range_constraints={CODE: {"min_val": 0, "max_val": 9}}),
    "an operator of Python": lambda p: nodes(p)[0].update(target="torch.os.system"),
    "an operator of torch": lambda p: nodes(p)[0].update(target="torch.load"),
    "an operator that opens files": lambda p: nodes(p)[0].update(target="torch.ops.aten.from_file.default"),
    "an extension": lambda p: nodes(p)[0].update(target="#other:thing"),
    "a function of operator": lambda p: nodes(p)[0].update(target="_operator.methodcaller"),
    "a name that is code": lambda p: p["graph_module"]["graph"]["inputs"][-1]["as_tensor"].update(name=f"x={CODE}"),
    "a value's name that is code": lambda p: p["graph_module"]["graph"]["tensor_values"].update({f"x={CODE}": {}}),
    "a parameter's name that is code": lambda p: p["graph_module"]["signature"]["input_specs"][0]["parameter"].update(
        parameter_name=f'a", {CODE}, "'
    ),
    "a structure that imports": lambda p: p["graph_module"]["module_call_graph"][0]["signature"].update(
        in_spec='[1, {"type": "collections.defaultdict", "context": {"default_factory_module": "os"}, "children_spec": []}]'
    ),
    "a structure with an enum": lambda p: p["graph_module"]["module_call_graph"][0]["signature"].update(
        out_spec='[1, {"type": "builtins.dict", "context": "[{\\"__enum__\\": true}]", "children_spec": []}]'
    ),
    "a custom object": lambda p: nodes(p)[0]["inputs"][0].update(arg={"as_custom_obj": {"name": "o", "class_fqn": "c"}}),
    "no program": lambda p: p.clear(),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_descriptions(written, members, what, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnsafeFileError):
        frontend.to_hub(written(model_json(members, HOSTILE[what])))


def test_guards_and_metadata_are_dropped(written, members, tmp_path, monkeypatch):
    """PyTorch would write them into generated code."""
    monkeypatch.chdir(tmp_path)

    def change(program):
        program["guards_code"] = [CODE]
        for node in nodes(program):
            node["metadata"]["source_fn_stack"] = "a,torch.os.system"

    path = written(model_json(members, change))
    x = torch.randn(3, 4).numpy()
    convert_to_onnx(path)
    frontend.runner(path)({"x": x, "pair_0": x, "pair_1": x[0, :2]})


def test_sizes_beyond_the_data_are_rejected(written, members):
    def grow(entry):
        entry["tensor_meta"]["sizes"] = [{"as_int": 1 << 40}]
        entry["tensor_meta"]["strides"] = [{"as_int": 0}]

    with pytest.raises(UnsafeFileError, match="but stores .* elements"):
        frontend.to_hub(written(config(members, "weights", grow)))
    name = next(n for n in members[1] if n.endswith("weight_0"))
    with pytest.raises(UnsafeFileError, match="but stores 0 elements"):
        frontend.to_hub(written({name: b""}))


def test_sizes_that_are_no_numbers_are_rejected(written, members):
    """JSON of 1e999 is infinite."""

    def infinite(entry):
        entry["tensor_meta"]["sizes"] = [{"as_int": float("inf")}]

    with pytest.raises(UnsafeFileError, match="invalid metadata of the tensor"):
        frontend.to_hub(written(config(members, "weights", infinite)))


def test_archives_not_written_by_pytorch_are_rejected(written, members, tmp_path, monkeypatch):
    for extra in ("net/data/aotinductor/model/a.so", "net/../../escape", "other/models/model.json"):
        with pytest.raises(UnsafeFileError):
            frontend.to_hub(written({extra: b"x"}))
    with pytest.raises(UnsafeFileError, match="compressed"):
        frontend.to_hub(written(compression=zipfile.ZIP_DEFLATED))
    whole = members[0].read_bytes()
    (tmp_path / "part.pt2").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UnsafeFileError):
        frontend.to_hub(tmp_path / "part.pt2")
    name = next(n for n in members[1] if "/models/" in n)
    with pytest.raises(UnsafeFileError, match="JSON"):
        frontend.to_hub(written({name: "[" * 100_000}))
    monkeypatch.setattr("onnxbridge.frontends.pytorch.pt2.archive.MOST_TEXT", 10)
    with pytest.raises(LimitError):
        frontend.to_hub(members[0])


@pytest.mark.parametrize("text", [
    "Symbol('s77', positive=True, integer=True)", "s0", "2*s0 + 1", "(s0//2)", "-5",
    "Mul(Integer(2), Symbol('s77', integer=True))",
    "FloorDiv(Add(Symbol('s1'), Integer(-1)), Integer(2))", "Max(1, u0)", "s0**2", "Pow(Symbol('s0'), Integer(2))", "Mod(s0, 2)",
    "Eq(s0, 1)", "s0 < 4",
])  # fmt: skip
def test_size_expressions(text):
    validator.validate_expression(text)


@pytest.mark.parametrize("text", [
    "9**9**9", "s0**100", "Pow(Integer(9), Integer(99999))", "Pow(Pow(s0, 8), 8)", "lambda: 1", "[1]",
    "s0.name", "open('x')", "eval('1')",
    "Symbol('s0', **{})", "Integer('9**9**9')", "factorial(99999)", "Pow(2, s0)", "1" * 30, "s0 if s0 else 1",
    "", None, 3, "x" * 5000, "-" * 300 + "1",
])  # fmt: skip
def test_invalid_size_expressions_are_rejected(text):
    with pytest.raises(validator.Refused):
        validator.validate_expression(text)
