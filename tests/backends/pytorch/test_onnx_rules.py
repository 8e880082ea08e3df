"""Every rule of the PyTorch backend against the ONNX specification: its signature, and the ONNX node test cases."""

from __future__ import annotations

import pytest

from onnxbridge.backends.pytorch import backend
from tests.backends import standard_cases
from tests.sampling import at_most

FAILURES = standard_cases.node_cases.expected_failures("pytorch_backend")
RULES = backend.rules
CASES = list(standard_cases.chosen(RULES, at_most(5), FAILURES))


@pytest.mark.parametrize("case", CASES)
def test_case(case):
    standard_cases.check(case, backend)


# operators that need fixed sizes of weights, groups or indices
FIXED_SIZES = frozenset({"GRU", "GatherND", "GroupNormalization", "InstanceNormalization", "LSTM", "RNN", "ScatterND"})


@pytest.mark.parametrize("case", list(standard_cases.chosen(RULES, 1, FAILURES)))
def test_case_with_dynamic_sizes(case):
    refused = standard_cases.node_cases.model_of(case).graph.node[0].op_type in FIXED_SIZES
    assert standard_cases.check_dynamic(case, backend) != refused


PREVIEW = sorted(n for n in standard_cases.node_cases.cases(lowest=1) if n.startswith(("test_flexattention", "test_gradient_of")))


@pytest.mark.parametrize("name", [n for n in PREVIEW if not n.endswith("_expanded")])
def test_case_of_an_experimental_domain(name):
    standard_cases.check(standard_cases.node_cases.cases(lowest=1)[name], backend)


NARROW = sorted(n for n in standard_cases.node_cases.cases(lowest=1) if "4e2m1" in n.lower() or "e8m0" in n.lower())


@pytest.mark.parametrize("name", NARROW)
def test_case_of_a_type_with_a_wider_carrier(name):
    standard_cases.check(standard_cases.node_cases.cases(lowest=1)[name], backend)


@pytest.mark.parametrize("name", ["test_top_k_uint64", "test_pow_types_float32_uint64"])
def test_uint64_beyond_int64(name):
    standard_cases.check(standard_cases.node_cases.cases()[name], backend)


def test_expected_failures_are_cases():
    assert set(FAILURES) <= set(standard_cases.node_cases.cases())


@pytest.mark.parametrize("op", [op for op in RULES if not RULES[op].plain])
def test_signature_is_the_schema(op):
    standard_cases.check_signature(RULES[op], op)
