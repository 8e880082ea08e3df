"""Layers and orders over sizes that only the running model knows: loops that stack open sizes, and sorting."""

import pytest
import torch
from torch import nn

import onnxbridge


class Recurrent(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.layer = getattr(nn, kind)(4, 3, **options)

    def forward(self, x):
        return self.layer(x)[0]


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.GRU(4, 3)

    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
        y, h = self.layer(packed)
        return nn.utils.rnn.pad_packed_sequence(y)[0], h


class Order(nn.Module):
    def forward(self, x):
        return torch.sort(x, 0, descending=True), torch.argsort(x, 1), torch.topk(x, x.shape[1] // 2 + 1, 1, largest=False)


CASES = {
    "GRU, two layers both ways": (lambda: Recurrent("GRU", num_layers=2, bidirectional=True), ["x:float32[T,N,4]"]),
    "RNN both ways": (lambda: Recurrent("RNN", bidirectional=True, batch_first=True), ["x:float32[N,T,4]"]),
    "LSTM with a projection": (lambda: Recurrent("LSTM", proj_size=2), ["x:float32[T,N,4]"]),
    "packed sequences": (Packed, ["x:float32[T,N,4]", "lengths:int64[N]"]),
    "order": (Order, ["x:float32[N,M,4]"]),
}


@pytest.mark.parametrize("case", CASES)
def test_open_sizes(case):
    torch.manual_seed(0)
    make, inputs = CASES[case]
    report = onnxbridge.convert(make().eval(), to="coreml", inputs=inputs, samples=5).report
    assert report.passed, report
