"""Packed sequences, whose number of elements depends on data; and recurrent layers with projections."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import onnxbridge
from onnxbridge.errors import ConversionError
from onnxbridge.frontends.pytorch import frontend
from onnxbridge.frontends.pytorch.capture.runner import outputs_of
from tests.frontends.pytorch.compare import (
    assert_equal_outputs,
    check_against_pytorch,
    convert_to_onnx,
    onnxruntime_session,
    run_session,
)


class Packed(nn.Module):
    """Packs, runs a layer, and pads; `between` applies operators to the packed elements."""

    def __init__(self, kind=nn.LSTM, batch_first=True, total=False, in_order=False, between=False, padding=0.0, **options):
        super().__init__()
        self.rnn, self.line = kind(4, 6, batch_first=batch_first, **options), nn.Linear(4, 4)
        self.batch_first, self.total, self.in_order, self.between = batch_first, total, in_order, between
        self.padding = padding

    def forward(self, x, lengths):
        p = pack_padded_sequence(x, lengths, batch_first=self.batch_first, enforce_sorted=self.in_order)
        if self.between:
            p = PackedSequence(self.line(p.data).exp(), p.batch_sizes, p.sorted_indices, p.unsorted_indices)
        y, state = self.rnn(p)
        length = x.shape[1 if self.batch_first else 0] if self.total else None
        padded, back = pad_packed_sequence(y, self.batch_first, self.padding, length)
        return padded, back, state


CASES = [
    {"total": True},
    {},
    {"kind": nn.GRU, "batch_first": False, "bidirectional": True},
    {"kind": nn.RNN, "between": True, "num_layers": 2},
    {"padding": -1.0, "total": True},
    {"padding": 2.0},
    {"in_order": True, "bias": False},
]


@pytest.mark.parametrize("options", CASES, ids=str)
def test_packed_sequences(options):
    torch.manual_seed(0)
    module = Packed(**options).eval()
    first = module.batch_first

    def given(lengths, time):
        x = torch.randn(len(lengths), time, 4)
        return (x if first else x.transpose(0, 1)).contiguous(), torch.tensor(lengths)

    dynamic = {"x": {0: "batch", 1: "time"} if first else {0: "time", 1: "batch"}, "lengths": {0: "batch"}}
    example, *others = [given([7, 4, 2], 7), given([5, 3, 3, 1], 5)]
    if not module.in_order:
        others += [given([1, 6, 2, 6], 6), given([2, 1], 8)]  # the longest sequence is shorter than the time axis
    model, proto = convert_to_onnx(module, example, dynamic)
    session = onnxruntime_session(proto)
    for x, lengths in (example, *others):
        feeds = {"x": x.numpy(), "lengths": lengths.numpy()}
        with torch.no_grad():
            assert_equal_outputs(run_session(session, feeds), outputs_of(module(x, lengths), feeds))
    assert [n.op_type for n in model.graph if n.op_type in ("LSTM", "GRU", "RNN", "Loop", "Scan")] == [
        module.rnn.mode.partition("_")[0]
    ] * module.rnn.num_layers


def test_projections_of_packed_sequences_are_unsupported():
    class Runs(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(4, 6, proj_size=3)

        def forward(self, x, lengths):
            return self.rnn(pack_padded_sequence(x, lengths))[1]

    with pytest.raises(ConversionError, match="proj_size"):
        frontend.to_hub(Runs(), (torch.randn(5, 2, 4), torch.tensor([5, 3])))


PROJECTED = [{}, {"num_layers": 2, "bidirectional": True, "batch_first": True}, {"bias": False, "bidirectional": True}]


@pytest.mark.parametrize("options", PROJECTED, ids=str)
def test_projections(options):
    class Projected(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(4, 6, proj_size=3, **options)

        def forward(self, x):
            return self.rnn(x)

    check_against_pytorch(Projected(), (torch.randn(3, 5, 4),), {"x": {0: "a", 1: "b"}}, [(torch.randn(4, 2, 4),)])


@pytest.mark.parametrize("in_order", [True, False])
def test_verification_uses_valid_lengths(in_order):
    """From 1 to the number of steps, in descending order if the program requires it."""
    inputs = (torch.randn(3, 7, 4), torch.tensor([7, 5, 2]))
    dynamic = {"x": {0: "batch", 1: "time"}, "lengths": {0: "batch"}}
    result = onnxbridge.convert(Packed(total=True, in_order=in_order).eval(), inputs=inputs, dynamic=dynamic)
    assert result.report.passed
