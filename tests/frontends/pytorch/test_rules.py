"""Every rule's parameters against PyTorch's own schema of the operator."""

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
def test_what_the_schema_leaves_open_the_rule_names(name):
    """An argument without a default always comes: a rule that does not name it could never be used."""
    found = rule[name]
    named = {p.name for p in found.params} | {p.name.rstrip("_") for p in found.params}
    if any(p.variadic for p in found.params) or found.takes_any:
        return
    schema = schema_of(overload(name))
    memory = {"device", "layout", "pin_memory", "memory_format", "non_blocking"}
    assert {n for n in schema.params if n not in schema.defaults} - named - memory == set()
