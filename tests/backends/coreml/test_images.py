"""Image inputs and classifiers of models with a dynamic batch, in both layouts: Core ML takes one sample at a time."""

import pytest
import torch
from torch import nn

import onnxbridge


class Classifier(nn.Module):
    def __init__(self, channels_last):
        super().__init__()
        self.conv, self.linear, self.channels_last = nn.Conv2d(3, 8, 3), nn.Linear(8, 4), channels_last

    def forward(self, x):
        x = x.permute(0, 3, 1, 2) if self.channels_last else x
        return torch.softmax(self.linear(self.conv(x).mean((2, 3))), -1)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("options", [{"image": "x:RGB,scale=1/255"}, {"labels": list("abcd")},
                                     {"image": "x:BGR", "labels": list("abcd"), "compute_precision": "fp16"}])  # fmt: skip
def test_dynamic_batch_becomes_one(options, channels_last, tmp_path):
    torch.manual_seed(0)
    shape = "N,16,12,3" if channels_last else "N,3,16,12"
    net = Classifier(channels_last).eval()
    made = onnxbridge.convert(net, to="coreml", inputs=f"x:float32[{shape}]", **options)
    assert made.report.passed and made.report.sizes == ({"x": (1, 16, 12, 3) if channels_last else (1, 3, 16, 12)},) * 3
    assert any(note.endswith("takes one sample at a time: N is 1") for note in made.notes)
    (path,) = made.save(tmp_path / "net.mlpackage")
    assert onnxbridge.verify(net, path, inputs=f"x:float32[{shape}]").passed


def test_classifier_scores_after_a_loop():
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.GRU(4, 3, batch_first=True)

        def forward(self, x):
            return torch.softmax(self.layer(x)[0][:, -1], -1)

    made = onnxbridge.convert(Last().eval(), to="coreml", inputs="x:float32[N,T,4]", labels=list("abc"))
    assert made.report.passed


def test_image_input_keeps_other_sizes_dynamic():
    class Two(nn.Module):
        def forward(self, x, rows):
            return x.mean() + rows.sum(1)

    made = onnxbridge.convert(Two(), to="coreml", inputs=["x:float32[N,3,8,8]", "rows:float32[M,4]"], image="x:RGB")
    assert made.report.passed and len({s["rows"] for s in made.report.sizes}) > 1


def test_classifier_with_data_dependent_batch_is_unsupported():
    class Kept(nn.Module):
        def forward(self, x):
            return x[x[:, 0] > 0]

    with pytest.raises(onnxbridge.OnnxbridgeError, match="give the inputs a batch size of 1"):
        onnxbridge.convert(Kept(), to="coreml", inputs="x:float32[5,4]", labels=list("abcd"))
