"""Archives that PyTorch saves are accepted: many kinds of code and packed weights."""

import enum
from typing import Final, NamedTuple, Optional

import pytest
import torch
from torch import nn

from onnxbridge.errors import UsageError
from onnxbridge.frontends.pytorch.torchscript import interpreter

pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning"), pytest.mark.filterwarnings("ignore::UserWarning")]


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Limits(NamedTuple):
    least: int
    most: float


class Differentiates(nn.Module):
    """Default values of many types, and gradients."""

    def forward(
        self, x: torch.Tensor, limits: Limits = Limits(1, 2.5), device: torch.device = torch.device("cpu"),  # noqa: B008
        z: complex = 1 - 2j, sizes: tuple[float, float] = (1.5, -2.0),
    ):  # fmt: skip
        y = x.detach().requires_grad_()
        found = torch.autograd.grad([(y * y).sum()], [y])[0]
        assert found is not None
        return found + limits.least + limits.most + sizes[1]


class Pair(NamedTuple):
    x: torch.Tensor
    count: int


@torch.jit.script
class Box:
    def __init__(self, value: int):
        self.value = value

    def __add__(self, other: int) -> int:
        return self.value + other

    def get(self) -> int:
        return self.value


@torch.jit.interface
class Layer(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pass


class Adds(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


def clamped(x: torch.Tensor, most: float = float("inf")) -> torch.Tensor:
    return x.clamp(max=most)


class Everything(nn.Module):
    """Constants, defaults, classes, tuples, enumerations, interfaces, loops and strings."""

    sizes: Final[list[int]]
    text: Final[str]
    least: Final[float]
    both: Final[tuple[int, str]]
    none: Final[Optional[int]]  # noqa: UP045
    layer: Layer

    def __init__(self):
        super().__init__()
        self.sizes, self.text, self.least, self.both, self.none = [1, -2], "é\n'\"", float("-inf"), (1, "a"), None
        self.table = {"a": 1, "b": 2}
        self.layer = Adds()
        self.net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())

    def forward(self, x, k: int = -3, e: float = 1e-8, name: str = "a\tb", pair: tuple[int, float] = (1, 2.0)):
        box = Box(3)
        found = Pair(x, box + 3)
        color = Color.RED
        if color == Color.BLUE:
            x = x * 2
        with torch.no_grad():
            x = x + box.get()
        doubled = [n * 2 for n in self.sizes]
        assert k < 3, f"not {k}"
        for i in range(2):
            if "save" in name or name == "torch.from_file":
                x = x - i
        while bool(x.sum() > 100.0):
            x = x / 2
        return self.layer.forward(self.net(clamped(x))), found.count + doubled[0] + self.table["b"], len(self.text + self.both[1])


class Restores(nn.Module):
    """Custom serialization code."""

    def __init__(self):
        super().__init__()
        self.table = {"a": 1}
        self.weight = torch.ones(3)

    def forward(self, x):
        return x * self.weight * self.table["a"]

    @torch.jit.export
    def __getstate__(self):
        return self.table, self.weight, self.training

    @torch.jit.export
    def restore(self, table: dict[str, int]):
        self.table = table

    @torch.jit.export
    def __setstate__(self, state: tuple[dict[str, int], torch.Tensor, bool]):
        self.restore(state[0])
        self.weight = state[1]
        self.training = state[2]


def static():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 1)).eval()
    from torch.ao.quantization import get_default_qconfig_mapping
    from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

    image = (torch.randn(1, 3, 8, 8),)
    prepared = prepare_fx(net, get_default_qconfig_mapping("fbgemm"), image)
    prepared(*image)
    return convert_fx(prepared)


def dynamic():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.linear = nn.LSTM(3, 4), nn.Linear(4, 2)

        def forward(self, x):
            return self.linear(self.lstm(x)[0])

    return torch.ao.quantization.quantize_dynamic(Net().eval(), {nn.LSTM, nn.Linear})


MODULES = {
    "everything": (lambda: torch.jit.script(Everything()), torch.randn(1, 2)),
    "differentiates": (lambda: torch.jit.script(Differentiates()), torch.randn(3)),
    "restores": (lambda: torch.jit.script(Restores()), torch.randn(3)),
    "static": (lambda: torch.jit.script(static()), torch.randn(1, 3, 8, 8)),
    "static traced": (lambda: torch.jit.trace(static(), torch.randn(1, 3, 8, 8)), torch.randn(1, 3, 8, 8)),
    "dynamic": (lambda: torch.jit.script(dynamic()), torch.randn(2, 1, 3)),
    "embedding": (lambda: torch.jit.script(torch.ao.nn.quantized.Embedding(10, 12)), torch.tensor([1, 2])),
    "transformer": (lambda: torch.jit.script(nn.TransformerEncoderLayer(8, 2).eval()), torch.randn(2, 1, 8)),
    "attention": (lambda: torch.jit.trace(nn.TransformerEncoderLayer(8, 2).eval(), torch.randn(2, 1, 8)), torch.randn(2, 1, 8)),
    "recurrent": (lambda: torch.jit.trace(nn.LSTM(3, 4, 2, bidirectional=True), torch.randn(2, 1, 3)), torch.randn(2, 1, 3)),
    "frozen": (lambda: torch.jit.freeze(torch.jit.script(nn.Sequential(nn.Conv1d(2, 3, 1), nn.BatchNorm1d(3)).eval())),
               torch.randn(1, 2, 4)),
    "optimized": (lambda: torch.jit.optimize_for_inference(torch.jit.script(nn.Linear(2, 3).eval())), torch.randn(1, 2)),
    "half": (lambda: torch.jit.script(nn.Linear(2, 3).half()), torch.randn(1, 2).half()),
    "gelu": (lambda: torch.jit.script(nn.GELU("tanh")), torch.randn(3)),  # its archive has the version elsewhere
    "bfloat16": (lambda: torch.jit.script(nn.Linear(2, 3).bfloat16()), torch.randn(1, 2).bfloat16()),
    "empty": (lambda: torch.jit.script(nn.Identity()), torch.randn(1, 2)),
}  # fmt: skip


@pytest.mark.parametrize("which", MODULES)
def test_archives_saved_by_pytorch(tmp_path, which):
    torch.manual_seed(0)
    make, x = MODULES[which]
    saved = make()
    torch.jit.save(saved, tmp_path / "net.pt")
    before = (tmp_path / "net.pt").read_bytes()
    torch.testing.assert_close(interpreter.load(tmp_path / "net.pt").script(x), saved.eval()(x))
    assert (tmp_path / "net.pt").read_bytes() == before


def test_module_without_forward(tmp_path):
    torch.jit.save(torch.jit.script(nn.LSTM(3, 4)), tmp_path / "net.pt")
    with pytest.raises(UsageError, match="has no method 'forward'"):
        interpreter.load(tmp_path / "net.pt")


def test_attribute_types(tmp_path):
    class Holds(nn.Module):
        def __init__(self):
            super().__init__()
            self.device, self.number, self.none = torch.device("cpu"), 1 + 2j, None
            self.lists = ([1, 2], [1.5], [True], ["a"], [torch.ones(2)])
            self.deep = {"a": [(1, {"b": torch.ones(1)})]}
            self.large, self.long = 2**40, "x" * 300
            self.scale = torch.quantize_per_channel(torch.ones(2, 2), torch.ones(2), torch.zeros(2), 0, torch.qint8)
            self.register_buffer("view", torch.arange(12.0).view(3, 4).t())

        def forward(self, x):
            return x + self.lists[0][1] + self.deep["a"][0][1]["b"] + self.large + self.view.sum() + self.scale.dequantize().sum()

    torch.jit.save(torch.jit.script(Holds()), tmp_path / "net.pt")
    x = torch.ones(1)
    torch.testing.assert_close(torch.jit.load(tmp_path / "net.pt")(x), interpreter.load(tmp_path / "net.pt").script(x))


def test_large_archives_use_a_temporary_file(tmp_path, monkeypatch):
    from onnxbridge.frontends.pytorch.torchscript.validation import archive_checks

    monkeypatch.setattr(archive_checks, "MAX_IN_MEMORY", 0)
    torch.jit.save(torch.jit.script(nn.Linear(2, 3)), tmp_path / "net.pt")
    with archive_checks.validated_copy(tmp_path / "net.pt") as path:
        assert path.endswith("checked.pt")
        assert torch.jit.load(path).weight.shape == (3, 2)
    assert interpreter.load(tmp_path / "net.pt").script.weight.shape == (3, 2)
