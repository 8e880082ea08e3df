"""Checks the parameters of every rule against PyTorch's schema of the operator."""

from __future__ import annotations

import pytest
import torch

from onnxbridge.frontends.pytorch.fx.graph_reader import schema_of
from onnxbridge.frontends.pytorch.ops import rule

NAMESPACES = ("aten", "prims", "torchvision")
ATEN = sorted(name for name in rule if name.partition("::")[0] in NAMESPACES)


def overload(name):
    namespace, _, rest = name.partition("::")
    packet, _, kind = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), kind or "default")


@pytest.mark.parametrize("name", [n for n in ATEN if not n.startswith("torchvision")])
def test_parameters_are_those_of_the_schema(name):
    schema = schema_of(overload(name))
    for p in rule[name].params:
        if p.form == "outputs" or p.variadic:
            continue
        assert p.name in schema.params or p.name.rstrip("_") in schema.params, f"{name} has no parameter {p.name}"


@pytest.mark.parametrize("name", [n for n in ATEN if not n.startswith("torchvision")])
def test_rules_have_all_required_parameters(name):
    """An argument without a default is always passed: a rule without this parameter could never be used."""
    found = rule[name]
    named = {p.name for p in found.params} | {p.name.rstrip("_") for p in found.params}
    if any(p.variadic for p in found.params) or found.accepts_any_attribute:
        return
    schema = schema_of(overload(name))
    memory = {"device", "layout", "pin_memory", "memory_format", "non_blocking"}
    assert {n for n in schema.params if n not in schema.defaults} - named - memory == set()
