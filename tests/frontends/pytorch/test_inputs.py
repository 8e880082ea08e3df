"""Binding of inputs to the parameters of forward: by name, as dictionaries, *args and **kwargs, and aliased tensors."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from onnxbridge.errors import UsageError
from onnxbridge.frontends.pytorch import frontend
from tests.frontends.pytorch.compare import check_against_pytorch


class Annotated(nn.Module):
    def forward(self, x: torch.Tensor):
        return x.relu()


class Several(nn.Module):
    def forward(self, *xs):
        return xs[0] - xs[1]


class Keywords(nn.Module):
    def forward(self, **options):
        return options["a"] - options["b"]


class Pair(nn.Module):
    def forward(self, pair):
        return pair["a"] - pair["b"]


@pytest.mark.parametrize(
    ("module", "inputs", "dynamic", "message"),
    [
        (nn.Sequential(nn.Linear(3, 3)), ["image"], None, "not dict .*no parameter 'image'.* name the input 'input'"),
        (nn.Sequential(nn.Linear(3, 3)), ["image"], {"image": {0: "n"}}, "no input is named image; .* name the input 'input'"),
        (Annotated(), ["image"], None, "forward has no parameter image; it takes x$"),
        (Several(), ["a", "b"], None, r"it takes \*xs: pass a tuple"),
        (Pair(), ["a", "c"], None, "no parameter 'a', 'c', so they were passed as one dictionary to 'pair'"),
        (Keywords(), ["a", "b"], {"a": {0: "n"}}, r"passed as \*\*options: declare a, b as parameters of forward"),
    ],
)
def test_unknown_names(module, inputs, dynamic, message):
    given = {name: torch.randn(2, 3) for name in inputs}
    with pytest.raises(UsageError, match=message):
        frontend.to_hub(module, given, dynamic)


def test_dictionary_for_the_only_parameter():
    model = check_against_pytorch(Pair(), {"a": torch.randn(2, 3), "b": torch.randn(2, 3)})
    assert [v.name for v in model.graph.inputs] == ["pair_a", "pair_b"]


def test_dynamic_sizes_of_var_positional_inputs():
    dynamic = {"xs_0": {0: "n"}, "xs_1": {0: "n"}}
    check_against_pytorch(Several(), (torch.randn(2, 3), torch.randn(2, 3)), dynamic, [(torch.randn(5, 3), torch.randn(5, 3))])


def test_the_same_tensor_twice_is_two_inputs():
    x, other = torch.randn(2, 3), (torch.randn(2, 3), torch.randn(2, 3))
    check_against_pytorch(Several(), (x, x), None, [other])


def test_parameter_passed_as_input():
    layer = nn.Linear(3, 3)
    with torch.no_grad():
        check_against_pytorch(layer, (layer.weight.requires_grad_(False),), None, [(torch.randn(3, 3),)])
