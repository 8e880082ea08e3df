"""Modules converted by torch.ao.quantization in eager mode: packed weights and quantized operators as QDQ."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.ao import quantization
from torch.ao.nn.quantized import QFunctional

import onnxbridge
from onnxbridge.errors import ConversionError
from onnxbridge.runtime import devices

warnings.filterwarnings("ignore", module="torch")
ENGINE = "fbgemm" if "fbgemm" in torch.backends.quantized.supported_engines else "qnnpack"
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)
    torch.backends.quantized.engine = ENGINE


class Between(nn.Module):
    """A module between the stubs of PyTorch's eager-mode workflow."""

    def __init__(self, inner):
        super().__init__()
        self.enter, self.inner, self.leave = quantization.QuantStub(), inner, quantization.DeQuantStub()

    def forward(self, x):
        return self.leave(self.inner(self.enter(x)))


def power_of_two_scales(observer, **options):
    """An observer whose scales are powers of two: multiplying by the reciprocal equals dividing."""

    class Halving(observer):
        def calculate_qparams(self):
            scale, zero_point = super().calculate_qparams()
            return torch.exp2(torch.log2(scale).ceil()), zero_point

    return Halving.with_args(**options)


EXACT = quantization.QConfig(
    power_of_two_scales(quantization.MinMaxObserver, dtype=torch.quint8, reduce_range=True),
    power_of_two_scales(quantization.PerChannelMinMaxObserver, dtype=torch.qint8, qscheme=torch.per_channel_symmetric),
)


def quantize(inner, x, fuse=()):
    with torch.no_grad():  # PyTorch rounds biases to multiples of the product of scales: multiples of 1/64 are exact
        for name, bias in inner.named_parameters():
            if name.rpartition(".")[2] == "bias":
                bias.copy_(torch.round(bias * 64) / 64)
    net = Between(inner).eval()
    net = quantization.fuse_modules(net, [list(names) for names in fuse]) if fuse else net
    net.qconfig = EXACT
    prepared = quantization.prepare(net)
    for _ in range(3):
        prepared(torch.randn_like(x))
    return quantization.convert(prepared)


def op_types(result):
    return [n.op_type for n in result.model.graph.node]


def assert_identical(net, x, roundings=0, **options):
    """Compare the ONNX model with PyTorch exactly: sums of integer products are exact, and so are the scales.

    `roundings` to float32 are allowed for layers with other scales.
    """
    result = onnxbridge.convert(net, "onnx", inputs={"x": x}, verify=False, **options)
    session = devices.session(result.model, "cpu")
    for scale in (1.0, 0.3, 3.0):
        (got,) = session.run(None, {"x": (x * scale).numpy()})
        expected = net(x * scale).detach().numpy()
        bound = roundings * np.finfo(np.float32).eps
        np.testing.assert_allclose(got, expected, rtol=bound, atol=bound * np.abs(expected).max())
    return result


torch.manual_seed(0)
LAYERS = {
    "Linear": (nn.Linear(8, 6), (4, 8)),
    "Conv1d": (nn.Conv1d(4, 6, 3, stride=2, padding=1), (2, 4, 9)),
    "Conv2d": (nn.Conv2d(4, 6, 3, groups=2, dilation=2, bias=False), (2, 4, 9, 8)),
    "Conv3d": (nn.Conv3d(2, 3, 2), (1, 2, 4, 4, 4)),
    "BatchNorm2d": (nn.BatchNorm2d(3), (2, 3, 5, 5)),
    "Hardswish": (nn.Hardswish(), (2, 5)),
    "ELU": (nn.ELU(), (2, 30)),
    "LeakyReLU": (nn.LeakyReLU(0.1), (2, 30)),
    "Sigmoid": (nn.Sigmoid(), (2, 30)),
    "LayerNorm": (nn.LayerNorm(12), (3, 12)),
    "GroupNorm": (nn.GroupNorm(2, 4), (2, 4, 6, 6)),
    "InstanceNorm2d": (nn.InstanceNorm2d(3, affine=True), (2, 3, 6, 6)),
    "ReLU6": (nn.ReLU6(), (2, 30)),
    "MaxPool2d": (nn.MaxPool2d(2), (1, 2, 6, 6)),
    "AvgPool2d": (nn.AvgPool2d(2), (1, 2, 6, 6)),
    "Upsample": (nn.Upsample(scale_factor=2), (1, 2, 3, 3)),
    "views": (nn.Sequential(nn.Flatten(1), nn.Unflatten(1, (3, 4))), (2, 12)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layer(name):
    layer, shape = LAYERS[name]
    x = torch.randn(shape)
    net = quantize(layer, x)
    result = assert_identical(net, x)
    assert {"QuantizeLinear", "DequantizeLinear"} <= set(op_types(result))


@pytest.mark.parametrize("rank", [1, 2])
def test_transposed_convolutions(rank):
    kind = (nn.ConvTranspose1d, nn.ConvTranspose2d)[rank - 1]
    layer = kind(4, 6, 3, stride=2, output_padding=1)
    # Seven bits, since PyTorch's products of bytes with eight are not exact on every processor.
    weights = quantization.MinMaxObserver.with_args(
        dtype=torch.qint8, qscheme=torch.per_tensor_symmetric, quant_min=-64, quant_max=63
    )
    layer.qconfig = quantization.QConfig(quantization.default_observer, weights)
    x = torch.randn(2, 4, *[5] * rank)
    net = Between(layer).eval()
    net.qconfig = layer.qconfig
    prepared = quantization.prepare(net)
    prepared(x)
    net = quantization.convert(prepared)
    assert_identical(net, x)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.relu = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()
        self.sum, self.joined, self.linear = nn.quantized.FloatFunctional(), nn.quantized.FloatFunctional(), nn.Linear(8, 5)

    def forward(self, x):
        y = self.relu(self.norm(self.conv(x)))
        y = self.joined.cat([self.sum.add_relu(y, x), y], 1)
        return self.linear(nn.functional.adaptive_avg_pool2d(y, 1).flatten(1))


def test_network_with_dynamic_batch():
    x = torch.randn(3, 4, 6, 6)
    net = quantize(Residual(), x, [("inner.conv", "inner.norm", "inner.relu")])
    result = assert_identical(net, x, dynamic={"x": {0: "batch"}})
    assert result.model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    weights = {i.name: i.data_type for i in result.model.graph.initializer}
    assert weights["inner.conv.weight"] == 3  # int8, as packed
    assert [op_types(result).count(kind) for kind in ("Conv", "Gemm", "Add", "Concat")] == [1, 1, 1, 1]


def test_dynamic_quantization():
    net = quantization.quantize_dynamic(Plain().eval(), {nn.Linear}, dtype=torch.qint8)
    x = torch.randn(5, 8)
    assert op_types(assert_identical(net, x, roundings=8)).count("QuantizeLinear") == 2


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x):
        return self.second(self.first(x).relu())


class Numbers(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = QFunctional()

    def forward(self, x):
        return self.f.mul_scalar(self.f.add_scalar(x, 0.5), -2.0)


def test_quantized_tensors_and_numbers():
    net = Between(nn.Identity()).eval()
    net.enter = torch.ao.nn.quantized.Quantize(0.02, 120, torch.quint8)
    net.inner, net.leave = Numbers(), torch.ao.nn.quantized.DeQuantize()
    net.pack = torch.ao.nn.quantized.Linear(2, 2)  # unused packed weights
    x = torch.randn(4, 9)
    result = onnxbridge.convert(net, "onnx", inputs=(x,))
    assert result.report is not None and result.report.passed


def test_unsupported_operator():
    net = quantization.quantize_dynamic(nn.Sequential(nn.LSTM(4, 4)), {nn.LSTM}, dtype=torch.qint8).eval()
    with pytest.raises(ConversionError, match="quantized_lstm"):
        onnxbridge.convert(net, "onnx", inputs=(torch.randn(3, 1, 4),))
