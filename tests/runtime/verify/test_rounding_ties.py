"""Dynamic quantization: a number halfway between two quantized values may be rounded either way, and faults are still found."""

import numpy as np
import onnx
import pytest
import torch
from torch.ao.quantization import quantize_dynamic

import onnxbridge


def quantized(seed):
    torch.manual_seed(seed)
    net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8)).eval()
    return quantize_dynamic(net, {torch.nn.Linear}, dtype=torch.qint8)


@pytest.mark.parametrize("seed", range(4))
def test_a_dynamically_quantized_network_passes(seed):
    assert onnxbridge.convert(quantized(seed), to="onnx", inputs=(torch.randn(4, 16),)).report.agrees


@pytest.mark.parametrize("seed", range(4))
def test_ties_in_the_users_inputs_pass(seed):
    given = torch.tensor(np.resize([6.0, -6.0, 1.0, 0.0, -3.0, 2.0, 5.0], (4, 16)), dtype=torch.float32)
    assert onnxbridge.convert(quantized(seed), to="onnx", inputs=(given,)).report.agrees


@pytest.mark.parametrize("name", ["2._packed_params.bias", "0._packed_params.weight", "2._packed_params.weight"])
def test_a_changed_weight_in_a_quantized_network_is_found(tmp_path, name):
    right = onnxbridge.convert(quantized(0), to="onnx", inputs=(torch.randn(4, 16),)).model
    wrong = onnx.ModelProto.FromString(right.SerializeToString())
    tensor = next(t for t in wrong.graph.initializer if t.name == name)
    weight = onnx.numpy_helper.to_array(tensor).copy()
    weight.reshape(-1)[0] = weight.reshape(-1)[0] + 3 if weight.dtype.kind == "i" else weight.reshape(-1)[0] * 1.01
    tensor.CopyFrom(onnx.numpy_helper.from_array(weight, name))
    for path, model in (("right.onnx", right), ("wrong.onnx", wrong)):
        onnx.save(model, tmp_path / path)
    assert onnxbridge.verify(tmp_path / "right.onnx", tmp_path / "right.onnx").agrees
    assert not onnxbridge.verify(tmp_path / "right.onnx", tmp_path / "wrong.onnx").agrees
