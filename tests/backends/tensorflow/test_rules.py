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


def test_expected_failures_are_cases():
    assert set(FAILURES) <= set(standard_cases.node_cases.cases())


@pytest.mark.parametrize("op", [op for op in RULES if not RULES[op].plain])
def test_signature_is_the_schema(op):
    standard_cases.check_signature(RULES[op], op)
