"""Example inputs of unusual dtypes, integer inputs, and dataclasses."""

from __future__ import annotations

import dataclasses

import torch
from torch import nn

import onnxbridge


def test_complex_and_bfloat16_examples():
    class Doubled(nn.Module):
        def forward(self, z):
            return z * 2

    torch.manual_seed(0)
    for given in (torch.randn(3, dtype=torch.complex64), torch.randn(3, dtype=torch.complex64).conj(), torch.randn(3).bfloat16()):
        assert onnxbridge.convert(Doubled(), inputs=(given,)).report.agrees


def test_bfloat16_model_is_verified():
    net = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2)).bfloat16().eval()
    report = onnxbridge.convert(net, inputs=(torch.randn(2, 4).bfloat16(),)).report
    assert report.candidate == "ONNX (onnxbridge's executor, since ONNX Runtime's Python API does not support bfloat16)"


def test_integer_inputs_are_taken_from_the_example():
    torch.manual_seed(0)
    bag = nn.EmbeddingBag(10, 4)
    report = onnxbridge.convert(bag, inputs=(torch.randint(0, 10, (7,)), torch.tensor([0, 2, 2, 5]))).report
    assert report.passed and report.samples == 4
    assert report.notes == ("integers are the example's (input, offsets), since PyTorch fails on others",)


@dataclasses.dataclass
class Inner:
    """Not registered as a pytree node, like the two others."""

    scale: torch.Tensor


@dataclasses.dataclass
class Given:
    image: torch.Tensor
    inner: Inner


@dataclasses.dataclass
class Found:
    logits: torch.Tensor
    hidden: Inner


def test_dataclass_inputs_and_outputs():
    class Net(nn.Module):
        def forward(self, given):
            return Found(given.image * given.inner.scale, Inner(given.image.sum(0)))

    result = onnxbridge.convert(Net(), inputs=(Given(torch.randn(2, 3), Inner(torch.randn(3))),))
    assert [v.name for v in result.model.graph.input] == ["given_image", "given_inner_scale"]
    assert [v.name for v in result.model.graph.output] == ["logits", "hidden_scale"]
    assert result.report.passed
