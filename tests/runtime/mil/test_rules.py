"""The rules against coremltools' own registry of MIL operators."""

import pytest

from onnxbridge.formats.coreml.mil_program import TUPLES
from onnxbridge.rules import REQUIRED
from onnxbridge.runtime.mil.ops import rule
from tests.runtime.mil.build import ct

registry = ct.converters.mil.mil.ops.registry.SSAOpRegistry.core_ops
Tuple = ct.converters.mil.mil.input_type.TupleInputType

# const is read by the reader; the other exists for coremltools' own tests
CONSTANTS = {"const", "_const_symbolic"}
# what a saved program has for coremltools' coreml_update_state, and that itself
STATES = {"write_state", "coreml_update_state"}
# what the layers of networks, and categories of classical models, need beside MIL's operators
OURS = {"as_described", "at_least_rank", "category", "name_of"}


def inputs(op):
    """Each parameter of an operator, with what every version of the operator says about it."""
    found = {}
    for version in registry[op].values():
        for name, kind in version.input_spec.input_types.items():
            found.setdefault(name, []).append(kind)
    found.pop("_existing_blocks", None)
    return found


def test_every_operator_has_a_rule():
    assert set(registry) - set(rule) == CONSTANTS
    assert set(rule) - set(registry) == STATES | OURS


@pytest.mark.parametrize("op", sorted(set(registry) - CONSTANTS))
def test_parameters_are_those_of_mil(op):
    want = inputs(op)
    if rule[op].plain:
        assert list(want) in (["x"], ["x", "y"])
        return
    have = {p.name: p for p in rule[op].params}
    assert set(have) == set(want)
    for name, kinds in want.items():
        required = all(not kind.optional for kind in kinds) and len(kinds) == len(registry[op])
        assert (have[name].default is REQUIRED) == required, name
        assert (name in TUPLES) == any(isinstance(kind, Tuple) for kind in kinds), name
