"""Third-party operators without a rule become ONNX functions if their code can be traced, else they are reported."""

from __future__ import annotations

import onnx
import pytest
import torch
from torch import nn

import onnxbridge
from onnxbridge.errors import ConversionError
from onnxbridge.frontends.pytorch import frontend
from tests.frontends.pytorch.compare import check_against_pytorch, convert_to_onnx, onnxruntime_session, run_session


@torch.library.custom_op("onnxbridge_functions::gate", mutates_args=())
def gate(x: torch.Tensor, w: torch.Tensor, k: float = 1.0) -> torch.Tensor:
    return torch.sigmoid(x @ w) * k


@gate.register_fake
def _(x, w, k=1.0):
    return x.new_empty(x.shape[0], w.shape[1])


@torch.library.custom_op("onnxbridge_functions::halves", mutates_args=())
def halves(x: torch.Tensor, sizes: list[int], w: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    y = x.reshape(sizes) if w is None else x.reshape(sizes) + w
    return y.sum(0) + torch.arange(3.0), gate(y, y.T, 1.5)  # calls another custom operator


@halves.register_fake
def _(x, sizes, w=None):
    return x.new_empty(sizes[1:]), x.new_empty(sizes[0], sizes[0])


@torch.library.custom_op("onnxbridge_functions::add_into", mutates_args=("y",))
def add_into(x: torch.Tensor, y: torch.Tensor) -> None:
    y.add_(x * 2)


@torch.library.custom_op("onnxbridge_functions::in_numpy", mutates_args=())
def in_numpy(x: torch.Tensor, k: int = 3) -> torch.Tensor:
    return torch.from_numpy(x.numpy() * k)


@torch.library.custom_op("onnxbridge_functions::by_value", mutates_args=())
def data_dependent(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.sum() > 0 else x.clone()


for _operator in (in_numpy, data_dependent):
    _operator.register_fake(lambda x, k=3: torch.empty_like(x))

_library = torch.library.Library("onnxbridge_functions", "FRAGMENT")
_library.define("bent(Tensor x, float slope) -> Tensor")
_library.impl("bent", lambda x, slope: torch.where(x > 0, x, x * slope), "CPU")
torch.library.register_fake("onnxbridge_functions::bent", lambda x, slope: torch.empty_like(x))
_library.define("rises(Tensor x) -> Tensor")
_library.impl("rises", lambda x: torch.relu(x) + 1, "CompositeImplicitAutograd")


def function_calls(model):
    return [f"{n.domain}::{n.op_type}" for n in model.graph if n.domain]


def test_ways_of_registration():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(4, 5))

        def forward(self, x):
            ops = torch.ops.onnxbridge_functions
            return ops.rises(ops.bent(gate(x, self.w), 0.25))

    model = check_against_pytorch(Net(), (torch.randn(3, 4),), {"x": {0: "n"}}, [(torch.randn(7, 4),)])
    domain = "onnxbridge_functions"
    assert function_calls(model) == [f"{domain}::gate", f"{domain}::bent", f"{domain}::rises"]
    bodies = {f.name: [n.op_type for n in f if n.op_type != "Constant"] for f in model.functions.values()}
    assert bodies == {"gate": ["MatMul", "Sigmoid", "Mul"], "bent": ["Greater", "Mul", "Where"], "rises": ["Relu", "Add"]}


def test_identical_calls_share_a_function():
    class Net(nn.Module):
        def forward(self, x):
            bent = torch.ops.onnxbridge_functions.bent
            return bent(x, 0.5) + bent(x * 2, 0.5) + bent(x, 3.0) + bent(x.double(), 0.5)

    model = check_against_pytorch(Net(), (torch.randn(3, 4),))
    names = [name.rpartition("::")[2] for name in function_calls(model)]
    assert names == ["bent", "bent", "bent_1", "bent_2"]
    assert len(model.functions) == 3


def test_sizes_sequences_and_nested_operators():
    class Net(nn.Module):
        def forward(self, x, w):
            a, b = halves(x, [x.shape[0], 3], None)
            c, d = halves(a.repeat(2, 1), [2, 3], w)
            return a, b, c, d

    model = check_against_pytorch(
        Net(), (torch.randn(4, 3), torch.randn(3)), {"x": {0: "n"}}, [(torch.randn(6, 3), torch.randn(3))]
    )
    assert len([f for f in model.functions.values() if f.name.startswith("gate")]) == 2


def test_operator_that_mutates_its_argument():
    class Net(nn.Module):
        def forward(self, x):
            y = torch.ones_like(x)
            add_into(x, y)
            return y

    assert function_calls(check_against_pytorch(Net(), (torch.randn(5),)))[-1] == "onnxbridge_functions::add_into"


@pytest.mark.parametrize("op", [in_numpy, data_dependent])
def test_untraceable_operators_are_reported(op):
    class Net(nn.Module):
        def forward(self, x):
            return op(x)

    with pytest.raises(ConversionError, match=r"no Python implementation that can be traced") as raised:
        frontend.to_hub(Net(), (torch.randn(3),))
    [problem] = raised.value.problems
    assert "onnxbridge.frontends.pytorch.ops import rule" in problem.hint and "def " in problem.hint


class Bends(nn.Module):
    def forward(self, x):
        return torch.ops.onnxbridge_functions.bent(x, 0.25) * 2


def test_other_opsets_and_round_trip():
    x = torch.randn(3, 4)
    for opset in (13, 18, 26):
        result = onnxbridge.convert(Bends(), inputs=(x,), opset=opset)
        onnx.checker.check_model(result.model, full_check=True)
        assert result.report.passed
        assert [f.name for f in result.model.functions] == ["bent"]
        [found] = run_session(onnxruntime_session(result.model), {"x": x.numpy()}).values()
        torch.testing.assert_close(torch.from_numpy(found), Bends()(x))
    assert onnxbridge.convert(result.model, "pytorch").report.passed


def test_other_targets_inline_the_function():
    result = onnxbridge.convert(Bends(), "pytorch", inputs=(torch.randn(3, 4),))
    assert result.report.passed
    assert result.hub.functions
    assert onnxbridge.check(Bends(), "pytorch", inputs=(torch.randn(3, 4),)) == []


def test_deterministic_output():
    x = torch.randn(3, 4)
    assert convert_to_onnx(Bends(), (x,))[1].SerializeToString() == convert_to_onnx(Bends(), (x,))[1].SerializeToString()
