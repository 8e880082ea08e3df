"""Third-party operators: a rule registered by the user, for live modules and files; torchvision's operators."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import onnxbridge
from onnxbridge.errors import ConversionError
from onnxbridge.frontends.pytorch import frontend
from onnxbridge.frontends.pytorch.ops import rule
from tests.frontends.pytorch.compare import (
    assert_equal_outputs,
    check_against_pytorch,
    convert_to_onnx,
    onnxruntime_session,
    run_session,
)

torch.library.define("onnxbridge_custom::bent", "(Tensor x, float slope, *, bool clip=False) -> Tensor")


@torch.library.impl("onnxbridge_custom::bent", "CompositeExplicitAutograd")
def bent(x, slope, clip=False):
    y = torch.where(x > 0, x, x * slope)
    return y.clamp(-1, 1) if clip else y


@torch.library.register_fake("onnxbridge_custom::bent")
def _bent(x, slope, clip=False):
    return torch.empty_like(x)


class Bends(nn.Module):
    def forward(self, x):
        return torch.ops.onnxbridge_custom.bent(x, 0.25) + torch.ops.onnxbridge_custom.bent(x, 3.0, clip=True)


@pytest.fixture
def registered():
    @rule("onnxbridge_custom::bent")
    def rule_of_bent(op, x, slope, *, clip=False):
        y = op.LeakyRelu(x, alpha=slope)
        return op.Clip(y, -1.0, 1.0) if clip else y

    yield
    del rule["onnxbridge_custom::bent"]


def test_a_registered_rule(registered, tmp_path):
    x = torch.randn(3, 4)
    model = check_against_pytorch(Bends(), (x,), {"x": {0: "n"}}, [(torch.randn(5, 4),)])
    assert [n.op_type for n in model.graph] == ["LeakyRelu", "LeakyRelu", "Clip", "Add"]
    torch.export.save(torch.export.export(Bends(), (x,)), tmp_path / "net.pt2")
    _, proto = convert_to_onnx(tmp_path / "net.pt2")
    assert_equal_outputs(run_session(onnxruntime_session(proto), {"x": x.numpy()}), {"output": Bends()(x).numpy()})


def test_files_with_operators_without_a_rule_are_rejected(tmp_path):
    x = torch.randn(3, 4)
    assert len(frontend.to_hub(Bends(), (x,)).functions) == 2  # from a live module: traced from its Python code
    torch.export.save(torch.export.export(Bends(), (x,)), tmp_path / "net.pt2")
    with pytest.raises(ConversionError, match=r"onnxbridge_custom::bent x2: no rule\n(.*\n)*.*--import MODULE"):
        frontend.to_hub(tmp_path / "net.pt2")


def _torchvision():
    """Define torchvision's operators with its schemas, if it is not installed; only their shapes are needed."""
    for name, schema, fake in (
        ("nms", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor", None),
        ("roi_align", "(Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width, int sampling_ratio, "
                      "bool aligned) -> Tensor", lambda x, r, s, h, w, n, a: x.new_empty(r.shape[0], x.shape[1], h, w)),
    ):  # fmt: skip
        if not hasattr(torch.ops.torchvision, name):
            torch.library.define(f"torchvision::{name}", schema)
            torch.library.register_fake(f"torchvision::{name}")(fake or _suppressed)


def _suppressed(dets, scores, iou_threshold):
    return dets.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64)


def test_nms():
    _torchvision()

    class Best(nn.Module):
        def forward(self, boxes, scores):
            return torch.ops.torchvision.nms(boxes, scores, 0.5)

    boxes = torch.tensor([[0.0, 0, 10, 10], [1, 1, 11, 11], [20, 20, 30, 30], [0, 0, 9, 9], [20, 21, 30, 31]])
    scores = torch.tensor([0.6, 0.9, 0.3, 0.8, 0.7])
    _, proto = convert_to_onnx(Best(), (boxes, scores), {"boxes": {0: "n"}, "scores": {0: "n"}})
    [selected] = onnxruntime_session(proto).run(None, {"boxes": boxes.numpy(), "scores": scores.numpy()})
    # 1 has the best score and overlaps 0 and 3 with IoU 81/119 and 64/117; 4 overlaps 2 with 90/110
    assert selected.tolist() == [1, 4]
    [empty] = onnxruntime_session(proto).run(None, {"boxes": boxes[:0].numpy(), "scores": scores[:0].numpy()})
    assert empty.tolist() == []


def test_roi_align():
    _torchvision()

    class Regions(nn.Module):
        def forward(self, x, rois):
            return torch.ops.torchvision.roi_align(x, rois, 0.5, 2, 2, 2, True)

    result = onnxbridge.convert(Regions(), inputs=(torch.zeros(2, 1, 8, 8), torch.zeros(3, 5)), verify=False)
    x = torch.arange(8.0).expand(2, 1, 8, 8) * torch.tensor([1.0, 10.0]).view(2, 1, 1, 1)  # increases by 1 per column
    rois = torch.tensor([[0.0, 2, 2, 10, 10], [1, 2, 2, 10, 10], [0, 4, 4, 8, 8]])
    [found] = onnxruntime_session(result.model).run(None, {"x": x.numpy(), "rois": rois.numpy()})
    # on the feature map: x from 0.5 to 4.5 (then 1.5 to 3.5), in two bins, each with the mean of its center
    assert found[:, 0, 0].tolist() == [[1.5, 3.5], [15.0, 35.0], [2.0, 3.0]]
