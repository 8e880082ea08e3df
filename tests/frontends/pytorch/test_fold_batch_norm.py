"""Folding of batch normalizations into the preceding weights: exact to rounding, computed lazily."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from click.testing import CliRunner
from torch import nn

import onnxbridge
from onnxbridge.cli import group
from onnxbridge.errors import UsageError
from onnxbridge.frontends.pytorch import frontend
from onnxbridge.hub.passes import clean


def with_random_statistics(module):
    torch.manual_seed(0)
    for m in module.modules():
        if isinstance(m, nn.modules.batchnorm._BatchNorm):
            m.running_mean.normal_()
            m.running_var.uniform_(0.3, 3)
            if m.affine:
                nn.init.normal_(m.weight)
                nn.init.normal_(m.bias)
    return module.eval()


def convert(module, *inputs, **options):
    result = onnxbridge.convert(with_random_statistics(module), "onnx", inputs=inputs, **options)
    assert result.report is not None and result.report.passed
    return [n.op_type for n in result.model.graph.node], result


LAYERS = {
    "Conv": (nn.Conv2d(4, 8, 3, groups=2, bias=False), nn.BatchNorm2d(8), (2, 4, 6, 6)),
    "Conv in one axis": (nn.Conv1d(4, 8, 3), nn.BatchNorm1d(8, affine=False), (2, 4, 6)),
    "ConvTranspose": (nn.ConvTranspose2d(4, 6, 3, groups=2), nn.BatchNorm2d(6, eps=0.1), (2, 4, 6, 6)),
    "ConvTranspose in one group": (nn.ConvTranspose3d(2, 3, 2, bias=False), nn.BatchNorm3d(3), (1, 2, 3, 3, 3)),
    "Gemm": (nn.Linear(5, 7), nn.BatchNorm1d(7), (3, 5)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_norm_is_folded(name):
    layer, norm, shape = LAYERS[name]
    net, x, before = nn.Sequential(layer, norm), torch.randn(shape), layer.weight.clone()
    assert "BatchNormalization" in convert(net, x, fold_batch_norm=False)[0]
    found, result = convert(net, x)
    assert found == [name.split()[0]]
    assert {i.name for i in result.model.graph.initializer} == {"0.weight", "0.bias"}
    assert torch.equal(net[0].weight, before), "the module's weights are unchanged"


class Read(nn.Module):
    """A convolution whose result has a second consumer besides the norm, and a norm in training mode."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.norm = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)

    def forward(self, x):
        y = self.first(x)
        trained = nn.functional.batch_norm(self.second(x[:, :1] + y), None, None, training=True)
        return self.norm(y) + y, trained


class Shared(nn.Module):
    """One convolution before two norms: folding would duplicate its weights."""

    def __init__(self):
        super().__init__()
        self.layer, self.first, self.second = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.BatchNorm2d(4)

    def forward(self, x):
        return self.first(self.layer(x)), self.second(self.layer(x * 2))


def test_results_with_other_consumers_are_not_folded():
    found, result = convert(Read(), torch.randn(1, 3, 4, 4))
    assert found.count("BatchNormalization") == 1 and found.count("Conv") == 2 and "ReduceMean" in found
    assert {"first.weight", "second.weight"} <= {i.name for i in result.model.graph.initializer}


def test_shared_layers_are_not_folded():
    found, result = convert(Shared(), torch.randn(1, 3, 4, 4))
    assert found.count("BatchNormalization") == 2 and found.count("Conv") == 2
    assert sum(len(i.dims) == 4 for i in result.model.graph.initializer) == 1


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Sequential(nn.Conv2d(3, 4, 1, bias=False), nn.BatchNorm2d(4))
        self.other = nn.Conv2d(4, 4, 1)

    def forward(self, x):
        return {"layer.0.bias": self.other(self.layer(x))}


def test_existing_names_are_preserved():
    found, result = convert(Named(), torch.randn(1, 3, 4, 4))
    assert found == ["Conv", "Conv"] and [o.name for o in result.model.graph.output] == ["layer.0.bias"]
    assert {i.name for i in result.model.graph.initializer} >= {"layer.0.weight", "layer.0.bias_1"}


def test_folded_weights_are_lazy():
    net = with_random_statistics(nn.Sequential(nn.Conv2d(8, 64, 3), nn.BatchNorm2d(64)))
    model = frontend.to_hub(net, (torch.randn(1, 8, 5, 5),))
    weight = clean(model).graph.initializers["0.weight"].const_value
    assert isinstance(weight, ir.LazyTensor)
    factor = net[1].weight / (net[1].running_var + net[1].eps).sqrt()
    np.testing.assert_allclose(weight.numpy(), (net[0].weight * factor[:, None, None, None]).detach().numpy(), rtol=1e-6)


def test_unfolded_norms_are_restored_as_modules(tmp_path):
    net, x = with_random_statistics(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())), torch.randn(2, 3, 6, 6)
    path = onnxbridge.convert(net, "onnx", inputs=(x,), fold_batch_norm=False, output=tmp_path / "net.onnx").paths[0]
    back = onnxbridge.convert(path, "pytorch").model
    assert any(isinstance(m, nn.BatchNorm2d) for m in back.modules())
    back.load_state_dict(net.state_dict())
    torch.testing.assert_close(back(x), net(x))


def test_infinite_weights_are_not_folded():
    net = with_random_statistics(nn.Sequential(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2, eps=0.0)))
    net[1].running_var.zero_()
    result = onnxbridge.convert(net, "onnx", inputs=(torch.randn(1, 2, 3, 3),), verify=False)
    assert [n.op_type for n in result.model.graph.node] == ["Conv", "BatchNormalization"]


def test_option_errors(tmp_path):
    net = nn.Conv2d(1, 1, 1)
    with pytest.raises(UsageError, match="fold_batch"):
        onnxbridge.convert(net, "onnx", inputs=(torch.randn(1, 1, 2, 2),), fold_batch=True)
    path = onnxbridge.convert(net, "onnx", inputs=(torch.randn(1, 1, 2, 2),), output=tmp_path / "net.onnx").paths[0]
    with pytest.raises(UsageError, match="fold_batch_norm"):
        onnxbridge.convert(path, "onnx", fold_batch_norm=True)
    assert onnxbridge.check(net, "onnx", inputs=(torch.randn(1, 1, 2, 2),), fold_batch_norm=True) == []


def test_command_line_flags(tmp_path, monkeypatch):
    lines = ["import torch", "from torch.nn import *", "def net():", "    torch.manual_seed(0)"]
    lines += ["    return Sequential(Conv2d(1, 2, 1), BatchNorm2d(2)).eval()", ""]
    (tmp_path / "folding_net.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    for flags, expected in (([], 1), (["--no-fold-batch-norm"], 2), (["--fold-batch-norm"], 1)):
        path = tmp_path / f"{len(flags)}{expected}.onnx"
        command = ["convert", "folding_net:net", "--to", "onnx", "--inputs", "input:float32[1,1,2,2]", "-o", str(path), *flags]
        process = CliRunner().invoke(group, command)
        assert process.exit_code == 0, process.output
        assert len(onnx.load(path).graph.node) == expected
