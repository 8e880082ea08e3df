"""Pictures and classifiers of models with an open batch, in both layouts: Core ML takes one at a time."""

import pytest
import torch
from torch import nn

import onnxbridge


class Scores(nn.Module):
    def __init__(self, last):
        super().__init__()
        self.conv, self.linear, self.last = nn.Conv2d(3, 8, 3), nn.Linear(8, 4), last

    def forward(self, x):
        x = x.permute(0, 3, 1, 2) if self.last else x
        return torch.softmax(self.linear(self.conv(x).mean((2, 3))), -1)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("options", [{"image": "x:RGB,scale=1/255"}, {"labels": list("abcd")},
                                     {"image": "x:BGR", "labels": list("abcd"), "compute_precision": "fp16"}])  # fmt: skip
def test_an_open_batch_is_one(options, last, tmp_path):
    torch.manual_seed(0)
    shape = "N,16,12,3" if last else "N,3,16,12"
    net = Scores(last).eval()
    made = onnxbridge.convert(net, to="coreml", inputs=f"x:float32[{shape}]", **options)
    assert made.report.passed and made.report.sizes == ({"x": (1, 16, 12, 3) if last else (1, 3, 16, 12)},) * 3
    assert any(note.endswith("takes one at a time: N is 1") for note in made.notes)
    (path,) = made.save(tmp_path / "net.mlpackage")
    assert onnxbridge.verify(net, path, inputs=f"x:float32[{shape}]").passed


def test_scores_behind_a_loop():
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.GRU(4, 3, batch_first=True)

        def forward(self, x):
            return torch.softmax(self.layer(x)[0][:, -1], -1)

    made = onnxbridge.convert(Last().eval(), to="coreml", inputs="x:float32[N,T,4]", labels=list("abc"))
    assert made.report.passed


def test_a_picture_leaves_other_sizes_open():
    class Two(nn.Module):
        def forward(self, x, rows):
            return x.mean() + rows.sum(1)

    made = onnxbridge.convert(Two(), to="coreml", inputs=["x:float32[N,3,8,8]", "rows:float32[M,4]"], image="x:RGB")
    assert made.report.passed and len({s["rows"] for s in made.report.sizes}) > 1


def test_scores_of_a_number_that_only_a_run_tells_are_refused():
    class Kept(nn.Module):
        def forward(self, x):
            return x[x[:, 0] > 0]

    with pytest.raises(onnxbridge.OnnxbridgeError, match="give the inputs a batch of 1"):
        onnxbridge.convert(Kept(), to="coreml", inputs="x:float32[5,4]", labels=list("abcd"))
