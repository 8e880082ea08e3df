"""Models in training mode, in every form, are converted in evaluation mode, with a note."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import onnxbridge
from onnxbridge.runtime import Executor


class Net(nn.Module):
    """All modules of torch.nn whose behavior depends on `training`."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.instance = nn.InstanceNorm2d(4, track_running_stats=True)
        self.drop, self.channels, self.slope = nn.Dropout(0.5), nn.Dropout2d(0.3), nn.RReLU()
        self.lstm = nn.LSTM(4, 4, 2, dropout=0.3, batch_first=True)
        self.attention = nn.MultiheadAttention(4, 2, dropout=0.2, batch_first=True)

    def forward(self, x):
        x = self.channels(self.drop(self.slope(self.instance(self.norm(self.conv(x))))))
        x, _ = self.lstm(x.flatten(2).transpose(1, 2))
        return self.attention(x, x, x)[0]


class Small(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Flatten(), nn.Linear(64, 2))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x):
        x = self.linear(x)
        return nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.4 if self.training else 0.0)


def live(module, x, folder):
    return module


def exported(module, x, folder):
    return torch.export.export(module, (x,))


def decomposed(module, x, folder):
    return torch.export.export(module, (x,)).run_decompositions()


def saved(module, x, folder):
    torch.export.save(torch.export.export(module, (x,)), folder / "net.pt2")
    return folder / "net.pt2"


def traced(module, x, folder):
    return torch.jit.trace(module, (x,), check_trace=False)


def scripted(module, x, folder):
    return torch.jit.script(module)


def traced_file(module, x, folder):
    torch.jit.save(traced(module, x, folder), folder / "net.pt")
    return folder / "net.pt"


def scripted_file(module, x, folder):
    torch.jit.save(scripted(module, x, folder), folder / "net.pt")
    return folder / "net.pt"


IMAGE = (2, 3, 6, 6)
FORMS = [
    *((Net, IMAGE, form) for form in (live, exported, saved)),
    *((Small, IMAGE, form) for form in (live, exported, decomposed, saved, traced, scripted, traced_file, scripted_file)),
    *((Attention, (2, 5, 6), form) for form in (live, exported, decomposed, saved)),
]


@pytest.mark.parametrize(("kind", "shape", "form"), FORMS, ids=[f"{k.__name__}-{f.__name__}" for k, _, f in FORMS])
def test_every_form_is_converted_in_evaluation_mode(kind, shape, form, tmp_path):
    torch.manual_seed(0)
    module, x = kind().train(), torch.randn(shape)
    module(x)  # updates the running statistics
    source = form(module, x, tmp_path)  # tracing runs the module once
    with torch.no_grad():
        expected = module.eval()(x)
    module.train()
    statistics = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    given = {} if form in (exported, decomposed, saved) else {"inputs": (x,)}
    result = onnxbridge.convert(source, **given)  # the reference is run in evaluation mode, too
    assert result.report.passed and len(result.hub.graph.outputs) == 1
    assert any("training mode" in note and "inference" in note for note in result.notes)
    (got,) = Executor(result.model).run(None, {result.hub.graph.inputs[0].name: x.numpy()})
    np.testing.assert_allclose(got, expected.numpy(), rtol=1e-4, atol=1e-5)
    assert all(m.training for m in module.modules())
    assert all(torch.equal(tensor, statistics[name]) for name, tensor in module.state_dict().items())


@pytest.mark.parametrize("form", [live, exported, scripted], ids=lambda f: f.__name__)
def test_no_note_in_evaluation_mode(form, tmp_path):
    module, x = Small().eval(), torch.randn(IMAGE)
    result = onnxbridge.convert(form(module, x, tmp_path), inputs=None if form is exported else (x,))
    assert result.notes == ()


def test_no_note_if_training_has_no_effect():
    assert onnxbridge.convert(nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.0)), inputs=(torch.randn(2, 3),)).notes == ()


class Sampled(nn.Module):
    """Dropout with training=True in the code, and dropout that depends on the mode."""

    def __init__(self):
        super().__init__()
        self.linear, self.drop = nn.Linear(8, 8), nn.Dropout(0.1)

    def forward(self, x):
        return nn.functional.dropout(self.drop(self.linear(x)), 0.5, training=True)


@pytest.mark.parametrize("form", [live, exported, traced], ids=lambda f: f.__name__)
def test_explicit_dropout_is_preserved(form, tmp_path):
    module, x = Sampled().eval(), torch.randn(64, 8)
    result = onnxbridge.convert(form(module, x, tmp_path), inputs=None if form is exported else (x,))
    assert result.report.agrees and result.notes == ()
    executor = Executor(result.model)
    name = result.hub.graph.inputs[0].name
    assert not np.array_equal(executor.run(None, {name: x.numpy()})[0], executor.run(None, {name: x.numpy()})[0])


def test_exported_program_is_not_modified():
    program = torch.export.export(Small().train(), (torch.randn(IMAGE),))
    before = str(program.graph), str(program.graph_signature)
    onnxbridge.convert(program)
    assert (str(program.graph), str(program.graph_signature)) == before


class Given(nn.Module):
    """A norm in training mode, with statistics passed as inputs, whatever the module's mode."""

    def forward(self, x, mean, var):
        return nn.functional.batch_norm(x, mean, var, training=True)


def test_explicit_norm_training_is_preserved():
    x, mean, var = torch.randn(4, 3), torch.zeros(3), torch.ones(3)
    program = torch.export.export(Given().eval(), (x, mean, var))
    result = onnxbridge.convert(program)
    assert result.report.agrees and result.notes == () and len(result.hub.graph.outputs) == 3
