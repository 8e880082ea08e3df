"""How inputs find the parameters of forward: by name, in dictionaries, as *args and **kwargs, the same tensor twice."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from onnxbridge.errors import UsageError
from onnxbridge.frontends.pytorch import frontend
from tests.frontends.pytorch.compare import agrees


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
    ("module", "inputs", "dynamic", "said"),
    [
        (nn.Sequential(nn.Linear(3, 3)), ["image"], None, "not dict .*no parameter 'image'.* call the input 'input'"),
        (nn.Sequential(nn.Linear(3, 3)), ["image"], {"image": {0: "n"}}, "there is no input image; .* call the input 'input'"),
        (Annotated(), ["image"], None, "forward has no parameter image; it takes x$"),
        (Several(), ["a", "b"], None, r"it takes \*xs: give a tuple"),
        (Pair(), ["a", "c"], None, "no parameter 'a', 'c', so its only one, 'pair', was given a dictionary"),
        (Keywords(), ["a", "b"], {"a": {0: "n"}}, r"come as \*\*options: name a, b in forward's signature"),
    ],
)
def test_names_that_forward_does_not_have(module, inputs, dynamic, said):
    given = {name: torch.randn(2, 3) for name in inputs}
    with pytest.raises(UsageError, match=said):
        frontend.to_hub(module, given, dynamic)


def test_names_in_a_dictionary_for_the_only_parameter():
    model = agrees(Pair(), {"a": torch.randn(2, 3), "b": torch.randn(2, 3)})
    assert [v.name for v in model.graph.inputs] == ["pair_a", "pair_b"]


def test_sizes_that_vary_among_any_number_of_arguments():
    dynamic = {"xs_0": {0: "n"}, "xs_1": {0: "n"}}
    agrees(Several(), (torch.randn(2, 3), torch.randn(2, 3)), dynamic, [(torch.randn(5, 3), torch.randn(5, 3))])


def test_one_tensor_given_twice_is_two_inputs():
    x, other = torch.randn(2, 3), (torch.randn(2, 3), torch.randn(2, 3))
    agrees(Several(), (x, x), None, [other])


def test_a_tensor_of_the_module_is_an_input_of_its_own():
    layer = nn.Linear(3, 3)
    with torch.no_grad():
        agrees(layer, (layer.weight.requires_grad_(False),), None, [(torch.randn(3, 3),)])
