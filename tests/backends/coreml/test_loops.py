"""Recurrent layers and sorting with dynamic sizes: loops that stack results of dynamic sizes."""

import coremltools as ct
import numpy as np
import onnx
import pytest
import torch
from coremltools.converters.mil import Builder as mb
from torch import nn

import onnxbridge
from onnxbridge.backends.coreml.ops.shape import squeeze, unsqueeze
from onnxbridge.runtime.mil import Interpreter


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
def test_dynamic_sizes(case):
    torch.manual_seed(0)
    make, inputs = CASES[case]
    report = onnxbridge.convert(make().eval(), to="coreml", inputs=inputs, samples=5).report
    assert report.passed, report


def test_squeeze_and_unsqueeze_of_constant_sizes():
    """The sizes of a growing state are plain arrays."""

    @mb.program(input_specs=[mb.TensorSpec((1,))], opset_version=ct.target.iOS17)
    def program(x):
        one = squeeze(np.array([3], np.int32), [0])
        return mb.mul(x=x, y=mb.cast(x=unsqueeze(one, [0]), dtype="fp32"))

    (made,) = Interpreter(program).run({"x": np.array([2.0], np.float32)}).values()
    assert made == 6


def test_a_computed_shape_in_which_0_would_be_a_size():
    text = """<ir_version: 10, opset_import: ["" : 21]>
        g (float[N, M, 6] x) => (float[K, P, L] y) <int64[1] two = {2}, int64[1] rest = {-1}> {
        n = Shape<end = 1>(x)  m = Shape<start = 1, end = 2>(x)  k = Mul(m, two)  shape = Concat<axis = 0>(k, n, rest)
        y = Reshape<allowzero = 1>(x, shape) }"""
    assert onnxbridge.convert(onnx.parser.parse_model(text), to="coreml").report.agrees
