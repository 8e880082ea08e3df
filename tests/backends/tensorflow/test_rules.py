"""Every rule of the TensorFlow backend against the ONNX specification: its signature, and the ONNX node test cases."""

from __future__ import annotations

import pytest

from onnxbridge.backends.tensorflow import backend
from tests.backends import standard_cases
from tests.sampling import at_most

FAILURES = standard_cases.node_cases.expected_failures("tensorflow_backend")
RULES = backend.rules
CASES = list(standard_cases.chosen(RULES, at_most(2), FAILURES))


@pytest.mark.parametrize("case", CASES)
def test_case(case):
    standard_cases.check(case, backend)


# operators that need fixed sizes of weights, groups or indices
FIXED_SIZES = frozenset({"Col2Im", "Unsqueeze"})


@pytest.mark.parametrize("case", list(standard_cases.chosen(RULES, 1, FAILURES)))
def test_case_with_dynamic_sizes(case):
    refused = standard_cases.node_cases.model_of(case).graph.node[0].op_type in FIXED_SIZES
    assert standard_cases.check_dynamic(case, backend) != refused


def test_expected_failures_are_cases():
    assert set(FAILURES) <= set(standard_cases.node_cases.cases())


@pytest.mark.parametrize("op", [op for op in RULES if not RULES[op].plain])
def test_signature_is_the_schema(op):
    standard_cases.check_signature(RULES[op], op)
