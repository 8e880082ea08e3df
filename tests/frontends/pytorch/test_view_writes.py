"""Writes into what the caller gave: ONNX models change no input, so what is left there comes out, as `x.next`."""

from __future__ import annotations

import torch
from torch import nn

import onnxbridge
from onnxbridge.frontends.pytorch import frontend
from tests.frontends.pytorch.compare import agrees, converted, judge, ran


class Cache(nn.Module):
    """A decoder's cache in the caller's hands."""

    def forward(self, new, kept):
        kept[:, 1:3] = new
        return kept.sum(1)


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


def outputs(module, *inputs):
    return [v.name for v in agrees(module, inputs).graph.outputs]


def test_what_is_left_in_an_input_comes_out():
    assert outputs(Cache(), torch.randn(3, 2), torch.randn(3, 4)) == ["output", "kept.next"]
    assert outputs(Only(), torch.randn(3)) == ["output", "x.next"]
    assert outputs(Clips(), torch.randn(3)) == ["output", "x.next"]
    assert outputs(Own(), torch.randn(3, 2)) == ["output"]


def test_the_numbers():
    _, proto = converted(Cache(), (torch.zeros(1, 2), torch.zeros(1, 4)))
    new, kept = torch.tensor([[1.0, 2.0]]), torch.tensor([[5.0, 6.0, 7.0, 8.0]])
    found = ran(judge(proto), {"new": new.numpy(), "kept": kept.numpy()})
    assert found["kept.next"].tolist() == [[5.0, 1.0, 2.0, 8.0]] and found["output"].tolist() == [16.0]


def test_the_callers_arrays_stay_as_they_are_when_the_source_runs():
    x = torch.zeros(3).numpy()
    frontend.runner(Only())({"x": x})
    assert x.tolist() == [0.0, 0.0, 0.0]


def test_verified_with_it():
    report = onnxbridge.convert(Cache(), inputs=(torch.randn(3, 2), torch.randn(3, 4))).report
    assert report.passed and [o.name for o in report.outputs] == ["output", "kept.next"]


class Router(nn.Module):
    """Both results of one operator are read after one of them has been written, whole or through a view."""

    def forward(self, x):
        values, places = x.topk(2)
        values /= values.sum(-1, keepdim=True)
        ordered, order = values.sort(descending=True)
        column = ordered[:, 0]
        column.add_(1)
        back = torch.empty_like(order)
        back[:, :1] = order[:, 1:]
        back[:, 1:] = order[:, :1]
        return values, places + 1, ordered, order, column, back


def test_results_of_one_operator_are_in_memory_of_their_own(monkeypatch):
    """Which spares the second trace of PyTorch's functionalisation."""
    monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", None)
    agrees(Router(), (torch.rand(3, 4),), {"x": {0: "n"}}, [(torch.rand(5, 4),)])


class Parts(nn.Module):
    """The parts that chunks are, which do lie in one memory."""

    def forward(self, x):
        whole = x * 2
        first, second = whole.chunk(2, 1)
        first.add_(second)
        return whole, first, second


def test_parts_of_one_tensor_share_its_memory():
    agrees(Parts(), (torch.randn(3, 4),))


class Trains(nn.Module):
    """Running statistics in the caller's hands, which PyTorch's schema does not say are written."""

    def forward(self, x, mean, var):
        return nn.functional.instance_norm(x, mean, var, use_input_stats=True, momentum=0.3)


def test_running_statistics_of_instances_come_out():
    inputs = torch.randn(2, 3, 4), torch.zeros(3), torch.ones(3)
    assert outputs(Trains(), *inputs) == ["output", "mean.next", "var.next"]
    agrees(Trains(), inputs, {"x": {0: "batch", 2: "n"}}, [(torch.randn(5, 3, 7), torch.zeros(3), torch.ones(3))])
