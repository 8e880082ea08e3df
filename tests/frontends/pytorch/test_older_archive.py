"""`.pt2` files with the layout of PyTorch 2.7 and before."""

from __future__ import annotations

import io
import json
import pickle
import subprocess
import sys
import zipfile

import pytest
import torch
from torch._export.serde.serialize import serialize

import onnxbridge
from onnxbridge.errors import UnsafeFileError


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.linear = torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Linear(4, 2)
        self.shift = torch.tensor([1.0, 2.0])

    def forward(self, x):
        return self.linear(torch.relu(self.norm(self.conv(x))).mean([2, 3])) + self.shift


def save(path, program=None, **changed):
    """Write the archive as torch.export.save did; `changed` are other contents of members, None for none."""
    if program is None:
        sizes = ({0: torch.export.Dim("N")},)
        program = torch.export.export(Net().eval(), (torch.randn(2, 3, 8, 8),), dynamic_shapes=sizes)
    made = serialize(program)
    members = {
        "serialized_exported_program.json": made.exported_program, "serialized_state_dict.pt": made.state_dict,
        "serialized_constants.pt": made.constants, "serialized_example_inputs.pt": made.example_inputs, "version": b"8.8",
    } | changed  # fmt: skip
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            if content is not None:
                archive.writestr(name, content)
    return path


def test_it_converts_as_a_file_of_today(tmp_path):
    result = onnxbridge.convert(save(tmp_path / "net.pt2"), to="onnx")
    assert result.report.agrees and result.report.reference == "PyTorch", str(result.report)
    assert "x_0 = " in str(result.report)  # the dynamic size was varied
    names = {i.name for i in result.model.graph.initializer}
    assert {"conv.weight", "linear.weight", "linear.bias"} <= names, names


class States(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTM(4, 5, batch_first=True)

    def forward(self, x):
        return self.lstm(x)[0]


def test_states_of_an_lstm_may_be_declared_with_a_dimension_too_many(tmp_path):
    """As PyTorch 2.6 wrote them."""
    program = torch.export.export(States().eval(), (torch.randn(2, 3, 4),))
    described = json.loads(serialize(program).exported_program)
    values = described["graph_module"]["graph"]["tensor_values"]
    states = [value for value in values.values() if [s["as_int"] for s in value["sizes"]] == [1, 2, 5]]
    assert states
    for value in states:
        value["sizes"].insert(0, {"as_int": 1})
        value["strides"].insert(0, {"as_int": 10})
    changed = {"serialized_exported_program.json": json.dumps(described).encode()}
    assert onnxbridge.convert(save(tmp_path / "net.pt2", program, **changed), to="onnx").report.agrees


def test_what_pytorch_logs_while_it_reads_is_not_printed(tmp_path):
    """Files of PyTorch 2.6 name symbols that their graph does not use, of which PyTorch warns."""
    program = torch.export.export(Net().eval(), (torch.randn(2, 3, 8, 8),))
    described = json.loads(serialize(program).exported_program)
    described["range_constraints"]["u9"] = {"min_val": 0, "max_val": 10}
    changed = {"serialized_exported_program.json": json.dumps(described).encode()}
    path = save(tmp_path / "net.pt2", program, **changed)
    command = [sys.executable, "-m", "onnxbridge", "inspect", str(path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


class Runs:
    def __reduce__(self):
        return exec, ("raise SystemExit('this code was run')",)


def torch_saved(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("member", ["serialized_state_dict.pt", "serialized_constants.pt"])
@pytest.mark.parametrize(
    "content", [torch_saved({"conv.weight": Runs()}), pickle.dumps(Runs()), torch_saved([1])], ids=["zip", "raw", "list"]
)
def test_pickled_objects_are_refused(tmp_path, member, content):
    path = save(tmp_path / "net.pt2", **{member: content})
    with pytest.raises(UnsafeFileError, match=member) as caught:
        onnxbridge.load(path)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"serialized_state_dict.pt": None}, "has no 'serialized_state_dict.pt'"),
        ({"code.py": b"1"}, "has the member 'code.py', which is not part of an exported program"),
        ({"serialized_exported_program.json": b"{"}, "is not valid JSON"),
    ],
)
def test_other_archives_are_refused(tmp_path, changed, why):
    with pytest.raises(UnsafeFileError, match=why):
        onnxbridge.load(save(tmp_path / "net.pt2", **changed))


def test_example_inputs_are_not_read(tmp_path):
    path = save(tmp_path / "net.pt2", **{"serialized_example_inputs.pt": pickle.dumps(Runs())})
    assert onnxbridge.load(path).graph.inputs
