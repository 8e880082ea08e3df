"""The rules compared with coremltools' registry of MIL operators."""

import pytest

from onnxbridge.formats.coreml.mil_program import TUPLES
from onnxbridge.rules import REQUIRED
from onnxbridge.runtime.mil.ops import rule
from tests.runtime.mil.build import ct

registry = ct.converters.mil.mil.ops.registry.SSAOpRegistry.core_ops
Tuple = ct.converters.mil.mil.input_type.TupleInputType

# The reader handles const; the other is for coremltools' tests only.
CONST_OPS = {"const", "_const_symbolic"}
# coremltools' coreml_update_state, and the operator that replaces it in a saved program.
STATE_OPS = {"write_state", "coreml_update_state"}
# Operators that are not MIL's, for neural network layers and classical machine learning models.
INTERNAL_OPS = {"as_described", "at_least_rank", "category", "name_of"}


def inputs(op):
    """Each parameter of an operator, with its declarations in all versions of the operator."""
    found = {}
    for version in registry[op].values():
        for name, kind in version.input_spec.input_types.items():
            found.setdefault(name, []).append(kind)
    found.pop("_existing_blocks", None)
    return found


def test_every_operator_has_a_rule():
    assert set(registry) - set(rule) == CONST_OPS
    assert set(rule) - set(registry) == STATE_OPS | INTERNAL_OPS


@pytest.mark.parametrize("op", sorted(set(registry) - CONST_OPS))
def test_parameters_match_mil(op):
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
