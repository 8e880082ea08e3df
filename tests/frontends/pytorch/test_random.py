"""Random operators: new samples in every run, of the same distribution as PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import onnxbridge
from onnxbridge.errors import VerificationError
from onnxbridge.runtime.verify import compare_random

FUNCTIONS = {
    "dropout": lambda x: F.dropout(x, 0.3, training=True),
    "channels": lambda x: F.dropout2d(x[None, None], 0.3, True),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.2),
    "uniform": lambda x: torch.empty_like(x).uniform_(-1, 2),
    "normal": lambda x: torch.empty_like(x).normal_(1, 2) + torch.normal(x, 2.0),
    "exponential": lambda x: torch.empty_like(x).exponential_(2.0),
    "bernoulli": lambda x: torch.bernoulli(x.sigmoid()) + torch.empty_like(x).bernoulli_(0.2),
    "whole": lambda x: torch.randint(3, 10, (20, 30)) + torch.randint_like(x[:20, :30], 5).long(),
    "order": lambda x: x[torch.randperm(x.shape[0])].argmax(1),
    "picks": lambda x: torch.multinomial(x.softmax(1), 7) + torch.multinomial(x.softmax(1), 7, replacement=True),
    "gumbel": lambda x: F.gumbel_softmax(x, tau=0.5),
    "tails": lambda x: torch.empty_like(x).log_normal_(0, 0.5) + torch.empty_like(x).geometric_(0.3),
}


class Samples(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x), x * 2


@pytest.mark.parametrize("name", FUNCTIONS)
def test_distributions(name):
    torch.manual_seed(0)
    report = onnxbridge.convert(Samples(FUNCTIONS[name]).eval(), inputs=(torch.randn(30, 40),), samples=1).report
    assert [o.tolerance.origin for o in report.outputs] == ["statistical", "derived"]
    assert "mean and deviation over 16 runs" in report.outputs[0].notes[0]


def test_another_distribution_fails(monkeypatch):
    torch.manual_seed(0)
    net = Samples(lambda x: x + torch.randn_like(x)).eval()
    original = compare_random.statistical_differences

    def scaled(runs, names, replayed):
        reference, candidate = runs
        return original([reference, lambda: {k: v * np.float32(1.2) for k, v in candidate().items()}], names, replayed)

    monkeypatch.setattr("onnxbridge.runtime.verify.verification.statistical_differences", scaled)
    with pytest.raises(VerificationError) as failed:
        onnxbridge.convert(net, inputs=(torch.randn(30, 40),), samples=1)
    assert "over 16 runs the mean magnitude is" in str(failed.value.report)


def test_other_means_of_elements_fail(monkeypatch):
    """Drawing 1 with the probability of 0 has the same mean where the probabilities have a mean of a half."""
    probabilities = torch.linspace(0, 1, 1200).reshape(30, 40)
    original = compare_random.statistical_differences

    def inverted(runs, names, replayed):
        reference, candidate = runs
        return original([reference, lambda: {k: 1 - v for k, v in candidate().items()}], names, replayed)

    monkeypatch.setattr("onnxbridge.runtime.verify.verification.statistical_differences", inverted)
    with pytest.raises(VerificationError) as failed:
        onnxbridge.convert(Samples(lambda x: torch.bernoulli(probabilities)).eval(), inputs=(torch.randn(30, 40),), samples=1)
    assert "over 16 runs the mean of the elements that are larger on average" in str(failed.value.report)
