"""A source that is read once for several targets."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import onnxbridge
from onnxbridge import api
from onnxbridge.errors import UsageError
from onnxbridge.frontends.pytorch import PytorchFrontend


@pytest.fixture
def reads(monkeypatch):
    """The sources that the PyTorch frontend reads."""
    found, read = [], PytorchFrontend.to_hub

    def to_hub(self, source, *args, **given):
        found.append(source)
        return read(self, source, *args, **given)

    monkeypatch.setattr(PytorchFrontend, "to_hub", to_hub)
    return found


def test_a_source_is_read_once_for_several_targets(reads, tmp_path):
    torch.manual_seed(0)  # other weights may make all samples zero behind the ReLU, which is WEAK
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())
    model = api.SourceModel(net, inputs="input:float32[N,3]")
    made = [onnxbridge.convert(model, to, output=tmp_path / name) for to, name in (("onnx", "a.onnx"), ("pytorch", "a.pt2"))]
    assert len(reads) == 1 and reads[0] is net
    assert [m.report.verdict for m in made] == ["PASSED", "PASSED"] and [m.source for m in made] == ["pytorch"] * 2
    x = np.ones((2, 3), np.float32)
    expected = net(torch.from_numpy(x)).detach().numpy()
    (actual,) = onnxbridge.runtime.Executor(str(tmp_path / "a.onnx")).run(None, {"input": x})
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_the_samples_give_the_inputs(reads):
    model = api.SourceModel(torch.nn.Linear(3, 4))
    data = {"input": np.ones((2, 3), np.float32)}
    assert onnxbridge.convert(model, data=data).report.agrees and onnxbridge.convert(model, "pytorch", data=data).report.agrees
    assert len(reads) >= 1


def test_what_a_source_model_knows_is_not_given_again():
    model = api.SourceModel(torch.nn.Linear(3, 4), inputs="input:float32[N,3]")
    with pytest.raises(UsageError, match="inputs: the source is read already; give this to SourceModel"):
        onnxbridge.convert(model, inputs="input:float32[2,3]")
    with pytest.raises(UsageError, match="fold_batch_norm"):
        onnxbridge.convert(model, fold_batch_norm=False)
    with pytest.raises(UsageError, match="keep_names"):
        api.SourceModel(torch.nn.Linear(3, 4), keep_names=True)
