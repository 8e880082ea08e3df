"""Error messages where PyTorch cannot trace or rejects the inputs: one line, without torch's own logs."""

from __future__ import annotations

import inspect
import logging
import os

import pytest
import torch
from torch import nn

import onnxbridge
from onnxbridge.errors import UsageError


class Branches(nn.Module):
    def forward(self, x):
        y = x * 2
        if y.sum() > 0:
            return y
        return -y


class Counts(nn.Module):
    def forward(self, x):
        for _ in range(int(x.max())):
            x = x + 1
        return x.numpy()


class MissingKey(nn.Module):
    def forward(self, batch):
        return batch["x"] + batch["s"]


class Asserts(nn.Module):
    def forward(self, x):
        torch._assert_async(x.min() > 1e9, "never")
        return x * 2


def line_of(module, text):
    lines, first = inspect.getsourcelines(type(module).forward)
    return first + next(i for i, line in enumerate(lines) if text in line)


@pytest.mark.parametrize(("module", "text"), [(Branches(), "if y.sum()"), (Counts(), "range(int("), (MissingKey(), 'batch["s"]')])
def test_source_location(module, text, capfd):
    inputs = ({"x": torch.randn(3)},) if isinstance(module, MissingKey) else (torch.randn(3),)
    with pytest.raises(UsageError) as raised:
        onnxbridge.convert(module, inputs=inputs)
    assert f"{os.path.basename(__file__)}:{line_of(module, text)} in forward" in str(raised.value)
    assert "unhinted" not in str(raised.value) and len(str(raised.value).splitlines()) == 1
    assert capfd.readouterr().err == ""


def test_missing_key():
    with pytest.raises(
        UsageError, match=r"cannot trace MissingKey: KeyError: the code looks up the key 's', which does not exist"
    ):
        onnxbridge.convert(MissingKey(), inputs=({"x": torch.randn(3)},))


def test_torch_logs_are_suppressed(capfd):
    root = logging.getLogger()
    handler = logging.StreamHandler()
    root.addHandler(handler)
    level = root.level
    root.setLevel(logging.DEBUG)
    try:
        with pytest.raises(UsageError):
            onnxbridge.convert(Branches(), inputs=(torch.randn(3),))
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    assert "torch" not in capfd.readouterr().err


def test_failing_program_prints_no_code(capfd):
    program = torch.export.export(Asserts(), (torch.randn(3),))
    with pytest.raises(Exception, match="never"):
        onnxbridge.convert(program)
    assert capfd.readouterr().err == ""


class Twice(nn.Module):
    def forward(self, x, y):
        return x.sum(0) + y.sum(0) if x.shape[0] >= y.shape[0] else x.sum(0)


def test_guard_implied_by_equal_names_is_not_reported():
    x = torch.randn(4, 3)
    result = onnxbridge.convert(Twice(), inputs=(x, x + 1), dynamic={"x": {0: "n"}, "y": {0: "n"}})
    assert result.report.passed and result.notes == ()


@pytest.mark.parametrize("inputs", [[(2, 64)], (2, 64), {"input": (2, 64)}, [[2, 64]]])
def test_sizes_instead_of_tensors(inputs):
    with pytest.raises(UsageError) as raised:
        onnxbridge.convert(nn.Linear(64, 3), inputs=inputs)
    assert "inputs=(torch.randn(2, 64),)" in str(raised.value) and '"input:float32[2,64]"' in str(raised.value)


@pytest.mark.parametrize(
    ("option", "hint"), [("dynamic_shapes", "dynamic="), ("dynamic_axes", "dynamic="), ("opset_version", "opset="),
                         ("args", "inputs="), ("target", "to=")],
)  # fmt: skip
def test_arguments_of_other_converters(option, hint):
    with pytest.raises(UsageError, match=f"{option} is {hint}"):
        onnxbridge.convert(nn.Linear(3, 3), inputs=(torch.randn(2, 3),), **{option: 1})


def test_checkpoint_with_nested_weights(tmp_path, monkeypatch):
    (tmp_path / "factory_of_a_net.py").write_text("import torch\ndef net():\n    return torch.nn.Linear(2, 3)\n")
    monkeypatch.chdir(tmp_path)
    torch.save({"epoch": 3, "model": nn.Linear(2, 3).state_dict(), "optimizer": {"lr": 0.1}}, "w.pth")
    with pytest.raises(UsageError, match=r"keys 'epoch', 'model', 'optimizer', and its weights are under 'model'"):
        onnxbridge.convert(("factory_of_a_net:net", "w.pth"), inputs=(torch.zeros(1, 2),))
    torch.save({"epoch": 3}, "w.pth")
    with pytest.raises(UsageError, match=r"'epoch' is of type int"):
        onnxbridge.convert(("factory_of_a_net:net", "w.pth"), inputs=(torch.zeros(1, 2),))
