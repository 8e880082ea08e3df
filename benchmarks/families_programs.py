"""Programs with control flow, and networks quantized with PyTorch's tools."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from family import Family
from torch import nn
from torch._higher_order_ops.map import map as map_
from torch._higher_order_ops.scan import scan


class Function(nn.Module):
    """Two linear layers, and a function of them and the inputs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.a, self.b, self.function = nn.Linear(8, 8), nn.Linear(8, 8), function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x)


def _cond(net: Function, x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda x: net.a(x).relu(), lambda x: net.b(x).cos(), (x,))


def _while_loop(net: Function, x: torch.Tensor) -> Any:
    def body(iteration: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return iteration + 1, net.a(y) + y * 2

    return torch.while_loop(lambda iteration, y: (iteration < 9) & (y.abs().sum() < 99), body, (torch.tensor(0), x))


def _scan(net: Function, x: torch.Tensor) -> Any:
    def step(state: torch.Tensor, item: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        new = torch.tanh(net.a(state) + net.b(item))
        return new, new * 2

    return scan(step, torch.zeros_like(x[:, 0]), x, dim=1)


def _map(net: Function, x: torch.Tensor) -> torch.Tensor:
    return map_(lambda item, scale: net.a(item) * scale, x, torch.arange(8.0))


def control() -> Iterator[Family]:
    for function, shape in ((_cond, (4, 8)), (_while_loop, (4, 8)), (_scan, (3, 6, 8)), (_map, (5, 4, 8))):
        yield Family(
            function.__name__.removeprefix("_"),
            lambda f=function, s=shape: (Function(f).eval(), {"x": torch.randn(s)}),
            {"x": {1: "time"} if function is _scan else {0: "batch"}},
        )


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU())
        self.block = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1, groups=32), nn.BatchNorm2d(32), nn.ReLU6())
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.stem(x)
        return self.head(y + self.block(y))


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(64), nn.Linear(64, 128), nn.Linear(128, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def _pt2e(dynamic: bool = False) -> tuple[nn.Module, dict[str, Any]]:
    """A program quantized by PT2E for x86, calibrated on random images."""
    pt2e = importlib.import_module("torchao.quantization.pt2e.quantize_pt2e")
    kinds = importlib.import_module("torchao.quantization.pt2e.quantizer.x86_inductor_quantizer")
    module: nn.Module = Layers().eval() if dynamic else Small().eval()
    x = torch.randn(4, 64) if dynamic else torch.randn(2, 3, 32, 32)
    quantizer = kinds.X86InductorQuantizer().set_global(kinds.get_default_x86_inductor_quantization_config(is_dynamic=dynamic))
    prepared = pt2e.prepare_pt2e(torch.export.export(module, (x,)).module(), quantizer)
    for _ in range(3):
        prepared(torch.randn_like(x))
    return pt2e.convert_pt2e(prepared), {"x": x}


def _torchao(config: str, **options: Any) -> tuple[nn.Module, dict[str, Any]]:
    library = importlib.import_module("torchao.quantization")
    module = Layers().eval()
    library.quantize_(module, getattr(library, config)(**options))
    return module, {"x": torch.randn(4, 64)}


def _eager(name: str) -> tuple[nn.Module, dict[str, Any]]:
    """One of torchvision's quantized networks, calibrated on random images."""
    library = importlib.import_module("torchvision.models.quantization")
    torch.backends.quantized.engine = "onednn"
    module = getattr(library, name)(weights=None, quantize=False).eval()
    module.fuse_model(is_qat=False)
    module.qconfig = torch.ao.quantization.get_default_qconfig("onednn")
    prepared = torch.ao.quantization.prepare(module)
    with torch.no_grad():
        prepared(torch.randn(4, 3, 64, 64))
    return torch.ao.quantization.convert(prepared), {"x": torch.randn(1, 3, 64, 64)}


def quantized() -> Iterator[Family]:
    batch = {"x": {0: "batch"}}
    yield Family("PT2E, static", _pt2e, None, "torchao")
    yield Family("PT2E, dynamic", lambda: _pt2e(True), None, "torchao")
    yield Family("torchao, int8 weights", lambda: _torchao("Int8WeightOnlyConfig"), batch, "torchao")
    yield Family(
        "torchao, int8 weights and activations", lambda: _torchao("Int8DynamicActivationInt8WeightConfig"), batch, "torchao"
    )  # fmt: skip
    yield Family(
        "torchao, int4 weights",
        lambda: _torchao("IntxWeightOnlyConfig", weight_dtype=torch.int4),
        batch, "torchao",
    )  # fmt: skip
    for name in ("mobilenet_v2", "resnet18", "googlenet", "shufflenet_v2_x0_5"):
        yield Family(f"{name}, quantized", lambda n=name: _eager(n), None, "torchvision")
