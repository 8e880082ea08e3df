"""Methods of modules and plain functions as sources, and dimension names for exported programs."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn
from torch.export import Dim

import onnxbridge
from onnxbridge.errors import UsageError


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5)), nn.Linear(8, 4)
        self.register_forward_hook(lambda module, given, result: result * 100)

    def encode(self, x, scale: float = 1.0):
        return self.encoder(x) * scale

    def forward(self, x):
        return self.decoder(self.encode(x))


NET = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))


def pipeline(image, *, gain=2.0):
    return {"out": NET(image / 255) * gain}


def test_bound_method():
    torch.manual_seed(0)
    pair = Pair()
    result = onnxbridge.convert(pair.encode, inputs=(torch.randn(2, 4),), dynamic={"x": {0: "n"}})
    assert result.report.passed and pair.training
    assert {"encoder.0.weight", "encoder.0.bias"} <= {i.name for i in result.model.graph.initializer}


@pytest.mark.parametrize("function", [pipeline, functools.partial(pipeline, gain=3.0)], ids=["plain", "partial"])
def test_plain_function(function):
    torch.manual_seed(0)
    result = onnxbridge.convert(function, frontend="pytorch", inputs=(torch.randn(2, 4),))
    assert result.report.passed and NET.training
    assert [v.name for v in (*result.model.graph.input, *result.model.graph.output)] == ["image", "out"]
    assert "NET.0.weight" in {i.name for i in result.model.graph.initializer}


def test_unsupported_sources():
    x = (torch.randn(2),)
    with pytest.raises(UsageError, match=r"sigmoid has no Python signature; pass a function that calls it"):
        onnxbridge.convert(torch.sigmoid, frontend="pytorch", inputs=x)
    with pytest.raises(UsageError, match="is not a torch.nn.Module, a function or an ExportedProgram"):
        onnxbridge.convert(3, frontend="pytorch", inputs=x)
    with pytest.raises(UsageError, match="name one with frontend="):
        onnxbridge.convert(pipeline, inputs=x)


class Sum(nn.Module):
    def forward(self, x, y):
        return x * 2 + y


@pytest.fixture(scope="module")
def program():
    batch, time = Dim("batch", min=1, max=64), Dim("time")
    given = torch.randn(2, 3), torch.randn(2, 3)
    return torch.export.export(Sum(), given, dynamic_shapes={"x": {0: batch, 1: time}, "y": {0: batch, 1: time}})


@pytest.mark.parametrize(("options", "names"), [
    ({}, ["x_0", "x_1"]), ({"dynamic": {"x": {0: "batch", -1: "time"}}}, ["batch", "time"]),
    ({"inputs": "x:float32[n,m]"}, ["n", "m"]), ({"inputs": "y:float32[n,?]"}, ["n", "x_1"]),
])  # fmt: skip
def test_dimension_names_of_exported_program(program, tmp_path, options, names):
    torch.export.save(program, tmp_path / "net.pt2")
    for source in (program, tmp_path / "net.pt2"):
        result = onnxbridge.convert(source, verify=False, **options)
        assert all([d.dim_param for d in v.type.tensor_type.shape.dim] == names for v in (*result.model.graph.input,))
        assert result.notes[0].startswith(f"valid only for {names[0]}=1..64")


@pytest.mark.parametrize(("dynamic", "message"), [
    ({"z": {0: "n"}}, "no input 'z'; it has x, y"), (({0: Dim.AUTO}, None), "here you can only name them"),
    ({"x": {2: "n"}}, "'n' .axis 2 of x. does not vary: the program was exported with no size there"),
])  # fmt: skip
def test_sizes_of_exported_program_are_fixed(program, dynamic, message):
    with pytest.raises(UsageError, match=message):
        onnxbridge.convert(program, dynamic=dynamic, verify=False)
