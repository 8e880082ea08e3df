"""torchvision's architectures, one network of each at a small size, with random weights and example inputs."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator
from typing import Any

import torch
from family import Family, calibrated, parameters, settled
from torch import nn

_IMAGES = {
    "alexnet": 64, "convnext_tiny": 64, "densenet121": 64, "efficientnet_b0": 64, "efficientnet_v2_s": 64, "googlenet": 64,
    "inception_v3": 128, "maxvit_t": 224, "mnasnet0_5": 64, "mobilenet_v2": 64, "mobilenet_v3_small": 64, "regnet_x_400mf": 64,
    "regnet_y_400mf": 64, "resnet18": 64, "resnext50_32x4d": 64, "shufflenet_v2_x0_5": 64, "squeezenet1_1": 64, "swin_t": 224,
    "swin_v2_t": 256, "vgg11_bn": 64, "vit_b_32": 224, "wide_resnet50_2": 64,
}  # fmt: skip
_VIDEOS = {
    "r3d_18": (4, 32, 32), "mc3_18": (4, 32, 32), "r2plus1d_18": (4, 32, 32), "s3d": (16, 64, 64), "mvit_v1_b": (16, 224, 224),
    "mvit_v2_s": (16, 224, 224), "swin3d_t": (4, 64, 64),
}  # fmt: skip
_SEGMENTATION = ("fcn_resnet50", "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large")


def vision() -> Iterator[Family]:
    batch = {"x": {0: "batch"}}
    for name, size in _IMAGES.items():
        yield Family(name, lambda n=name, s=size: _torchvision(f"models.{n}", s), batch, "torchvision")
    for name in _SEGMENTATION:
        image = {"input": {0: "batch"}} if name.startswith("lraspp") else batch
        yield Family(
            name, lambda n=name: _torchvision(f"models.segmentation.{n}", 64, weights_backbone=None), image, "torchvision"
        )
    for name, shape in _VIDEOS.items():
        yield Family(name, lambda n=name, s=shape: _clip(f"models.video.{n}", s), batch, "torchvision")
    yield Family("raft_small", _raft, None, "torchvision")


def _torchvision(path: str, size: int, **options: Any) -> tuple[nn.Module, dict[str, Any]]:
    builder: Any = importlib.import_module("torchvision")
    for part in path.split("."):
        builder = getattr(builder, part)
    if path.endswith(("googlenet", "inception_v3")):
        options |= {"init_weights": False, "aux_logits": False}
    module = settled(builder(weights=None, **options))
    head = list(module.modules())[-1]
    if isinstance(head, nn.Linear):
        nn.init.normal_(head.weight, std=0.1)  # the head of a vision transformer is initialized to zero
    return module, {parameters(module)[0]: torch.randn(2, 3, size, size)}


def _clip(path: str, shape: tuple[int, ...]) -> tuple[nn.Module, dict[str, Any]]:
    module, _ = _torchvision(path, 8)
    return module, {"x": torch.randn(2, 3, *shape)}


def _raft() -> tuple[nn.Module, dict[str, Any]]:
    class Flow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = importlib.import_module("torchvision").models.optical_flow.raft_small(weights=None)

        def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
            return self.net(first, second, num_flow_updates=2)[-1]

    return settled(Flow()), {"first": torch.randn(1, 3, 128, 128), "second": torch.randn(1, 3, 128, 128)}


class Detector(nn.Module):
    """A detector of one image that returns a dictionary.

    Constant noise is added to the image. For a uniform image, which is among the samples of a verification, the scores of random
    weights would otherwise be equal everywhere, and the best ones arbitrary.
    """

    def __init__(self, net: nn.Module, noise: torch.Tensor) -> None:
        super().__init__()
        self.net = net
        self.register_buffer("noise", noise)

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        return self.net([image + self.noise])[0]


_DETECTORS = (
    "ssd300_vgg16", "ssdlite320_mobilenet_v3_large", "retinanet_resnet50_fpn", "retinanet_resnet50_fpn_v2", "fcos_resnet50_fpn",
    "fasterrcnn_mobilenet_v3_large_320_fpn", "fasterrcnn_resnet50_fpn", "fasterrcnn_resnet50_fpn_v2", "maskrcnn_resnet50_fpn",
    "keypointrcnn_resnet50_fpn",
)  # fmt: skip


def detectors() -> Iterator[Family]:
    for name in _DETECTORS:
        yield Family(name, lambda n=name: _detector(n), None, "torchvision")


def _detector(name: str) -> tuple[nn.Module, dict[str, Any]]:
    make = getattr(importlib.import_module("torchvision").models.detection, name)
    torch.manual_seed(0)
    options = {} if "320" in name or "300" in name else {"min_size": 128, "max_size": 160}
    # few results: the best scores of random weights are distinct, so that rounding does not change their order
    options["box_detections_per_img" if "rcnn" in name else "detections_per_img"] = 6
    net = Detector(make(weights=None, weights_backbone=None, num_classes=5, **options), torch.rand(3, 120, 160))
    hooks = _register_scaling(net)
    images = [
        torch.randn(3, 120, 160),
        torch.randn(3, 120, 160),
        2 * torch.randn(3, 120, 160),
    ]  # like the samples of a verification
    calibrated(net.net.eval(), [image + net.noise for image in images])
    assert not hooks, "every layer was called"
    return net.eval(), {"image": torch.randn(3, 120, 160)}


def _register_scaling(net: nn.Module) -> dict[nn.Module, Any]:
    """Register hooks that scale head layers at their next call so that each output channel has mean 0 and deviation 1.

    With default initialization all scores are similar and below every threshold, or one class has all of the best scores.
    """

    def scaled(layer: Any, _: Any, result: torch.Tensor, by: float = 1.0) -> torch.Tensor:
        channel = 1 if result.ndim == 4 else result.ndim - 1
        mean = result.movedim(channel, -1).flatten(0, -2).mean(0)
        factor = by / result.movedim(channel, -1).flatten(0, -2).std(0).clamp(min=1e-3)
        weight_shape = [
            -1 if axis == (1 if isinstance(layer, nn.ConvTranspose2d) else 0) else 1 for axis in range(layer.weight.ndim)
        ]
        layer.weight.data *= factor.view(weight_shape)
        if layer.bias is not None:
            layer.bias.data = (layer.bias.data - mean) * factor
        hooks.pop(layer).remove()
        channel_shape = [-1 if axis == channel else 1 for axis in range(result.ndim)]
        return (result - (mean.view(channel_shape) if layer.bias is not None else 0)) * factor.view(channel_shape)

    hooks: dict[nn.Module, Any] = {}
    for path, layer in net.named_modules():
        if isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d, nn.Linear)) and not {"body", "features"} & set(path.split(".")):
            nn.init.normal_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
            box = "bbox" in path or "regression_head.module_list" in path
            hooks[layer] = layer.register_forward_hook(functools.partial(scaled, by=0.1 if box else 1.0))
    return hooks
