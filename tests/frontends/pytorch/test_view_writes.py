"""Mutated inputs: ONNX models cannot mutate inputs, so the new values are outputs, named `x.next`."""

from __future__ import annotations

import torch
from torch import nn

import onnxbridge
from onnxbridge.frontends.pytorch import frontend
from tests.frontends.pytorch.compare import check_against_pytorch, convert_to_onnx, onnxruntime_session, run_session


class Cache(nn.Module):
    """A decoder cache owned by the caller."""

    def forward(self, new, cache):
        cache[:, 1:3] = new
        return cache.sum(1)


class Only(nn.Module):
    def forward(self, x):
        x.add_(1)
        return torch.ones(2)


class Clips(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.first(x) * 2


class Own(nn.Module):
    def forward(self, x):
        y = x * 2
        y[:, 0] = 1
        return y.relu_()


def output_names(module, *inputs):
    return [v.name for v in check_against_pytorch(module, inputs).graph.outputs]


def test_mutated_inputs_become_outputs():
    assert output_names(Cache(), torch.randn(3, 2), torch.randn(3, 4)) == ["output", "cache.next"]
    assert output_names(Only(), torch.randn(3)) == ["output", "x.next"]
    assert output_names(Clips(), torch.randn(3)) == ["output", "x.next"]
    assert output_names(Own(), torch.randn(3, 2)) == ["output"]


def test_values():
    _, proto = convert_to_onnx(Cache(), (torch.zeros(1, 2), torch.zeros(1, 4)))
    new, cache = torch.tensor([[1.0, 2.0]]), torch.tensor([[5.0, 6.0, 7.0, 8.0]])
    found = run_session(onnxruntime_session(proto), {"new": new.numpy(), "cache": cache.numpy()})
    assert found["cache.next"].tolist() == [[5.0, 1.0, 2.0, 8.0]] and found["output"].tolist() == [16.0]


def test_runner_does_not_modify_the_feeds():
    x = torch.zeros(3).numpy()
    frontend.runner(Only())({"x": x})
    assert x.tolist() == [0.0, 0.0, 0.0]


def test_mutated_inputs_are_verified():
    report = onnxbridge.convert(Cache(), inputs=(torch.randn(3, 2), torch.randn(3, 4))).report
    assert report.passed and [o.name for o in report.outputs] == ["output", "cache.next"]


class Router(nn.Module):
    """Both results of an operator are used after one of them is mutated, directly or through a view."""

    def forward(self, x):
        values, indices = x.topk(2)
        values /= values.sum(-1, keepdim=True)
        ordered, order = values.sort(descending=True)
        column = ordered[:, 0]
        column.add_(1)
        inverse = torch.empty_like(order)
        inverse[:, :1] = order[:, 1:]
        inverse[:, 1:] = order[:, :1]
        return values, indices + 1, ordered, order, column, inverse


def test_results_of_one_operator_do_not_alias(monkeypatch):
    """This avoids the second trace of PyTorch's functionalization."""
    monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", None)
    check_against_pytorch(Router(), (torch.rand(3, 4),), {"x": {0: "n"}}, [(torch.rand(5, 4),)])


class Parts(nn.Module):
    """Chunks of a tensor, which share its memory."""

    def forward(self, x):
        doubled = x * 2
        first, second = doubled.chunk(2, 1)
        first.add_(second)
        return doubled, first, second


def test_chunks_alias_the_tensor():
    check_against_pytorch(Parts(), (torch.randn(3, 4),))


class Trains(nn.Module):
    """Running statistics owned by the caller; PyTorch's schema does not declare the mutation."""

    def forward(self, x, mean, var):
        return nn.functional.instance_norm(x, mean, var, use_input_stats=True, momentum=0.3)


def test_running_statistics_of_instance_norm():
    inputs = torch.randn(2, 3, 4), torch.zeros(3), torch.ones(3)
    assert output_names(Trains(), *inputs) == ["output", "mean.next", "var.next"]
    check_against_pytorch(Trains(), inputs, {"x": {0: "batch", 2: "n"}}, [(torch.randn(5, 3, 7), torch.zeros(3), torch.ones(3))])
