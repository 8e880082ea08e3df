"""float64 models: attributes that ONNX stores as float32 become float64 constants if that is inexact."""

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import onnxbridge
from onnxbridge.errors import VerificationError

NETS = {
    "layer norm": (torch.nn.LayerNorm(8), (4, 8)), "batch norm": (torch.nn.BatchNorm1d(8).eval(), (4, 8)),
    "group norm": (torch.nn.GroupNorm(2, 8), (4, 8, 3)), "instance norm": (torch.nn.InstanceNorm1d(8, affine=True), (4, 8, 5)),
    "leaky relu": (torch.nn.LeakyReLU(0.01), (4, 8)), "elu": (torch.nn.ELU(0.3), (4, 8)), "selu": (torch.nn.SELU(), (4, 8)),
    "hard sigmoid": (torch.nn.Hardsigmoid(), (4, 8)), "hard swish": (torch.nn.Hardswish(), (4, 8)),
    "gelu": (torch.nn.GELU("tanh"), (4, 8)),
}  # fmt: skip


@pytest.mark.parametrize("name", NETS)
def test_float64_operators_use_float64_constants(name):
    torch.manual_seed(0)
    net, shape = NETS[name]
    net = net.double()
    made = onnxbridge.convert(net, to="onnx", inputs=(torch.randn(shape, dtype=torch.float64),))
    assert made.report.passed
    x = torch.randn(shape, dtype=torch.float64)
    session = onnxruntime.InferenceSession(made.model.SerializeToString())
    got = session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]
    np.testing.assert_allclose(got, net(x).detach().numpy(), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_of_float64_is_exact_at_every_opset(approximate):
    net, x = torch.nn.GELU(approximate), torch.randn(4, 8, dtype=torch.float64)
    made = onnxbridge.convert(net, to="onnx", inputs=(x,), opset=20)
    assert made.report.passed
    assert "Gelu" not in {node.op_type for node in made.model.graph.node}


def test_gemm_factors_are_exact():
    class Net(torch.nn.Module):
        def forward(self, a, b, c):
            return torch.addmm(c, a, b, beta=0.3, alpha=0.7)

    given = tuple(torch.randn(4, 4, dtype=torch.float64) for _ in range(3))
    assert onnxbridge.convert(Net(), to="onnx", inputs=given).report.passed


def test_float32_keeps_its_operators():
    net, shape = torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.LeakyReLU(0.01), torch.nn.SELU()), (4, 8)
    made = onnxbridge.convert(net, to="onnx", inputs=(torch.randn(shape),))
    assert [n.op_type for n in made.model.graph.node] == ["LayerNormalization", "LeakyRelu", "Selu"]


def test_a_wrong_epsilon_is_still_found(tmp_path):
    text = """<ir_version: 10, opset_import: ["" : 18]> g (double[4,8] x, double[8] s) => (double[4,8] y) {
        y = LayerNormalization<epsilon=%s>(x, s) }"""
    for name, epsilon in (("right", 1e-5), ("wrong", 1.1e-5)):
        onnx.save(onnx.parser.parse_model(text % epsilon), tmp_path / f"{name}.onnx")
    assert onnxbridge.verify(tmp_path / "right.onnx", tmp_path / "right.onnx").passed
    try:
        assert not onnxbridge.verify(tmp_path / "right.onnx", tmp_path / "wrong.onnx").passed
    except VerificationError:
        pytest.fail("the two models can be compared")
