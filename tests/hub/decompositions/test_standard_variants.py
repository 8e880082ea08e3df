"""Decompositions compared with the operator in ONNX Runtime, or in the executor where ONNX Runtime lacks it.

The cases vary attributes and dtypes, with static and with dynamic sizes.
"""

from __future__ import annotations

import pytest

from onnxbridge.errors import ConversionError
from tests.hub.decompositions import cases as all_cases
from tests.hub.decompositions.compare import assert_agrees, decomposed_model

CASES = [pytest.param(c, id=f"{c.op}-{i}") for i, c in enumerate(all_cases.CASES)]


@pytest.mark.parametrize("case", CASES)
def test_static_sizes(case):
    assert_agrees(case, dynamic=False)


@pytest.mark.parametrize("case", CASES)
def test_dynamic_sizes(case):
    if not case.unsupported:
        assert_agrees(case, dynamic=True)
        return
    with pytest.raises(ConversionError, match=case.unsupported):
        decomposed_model(case, dynamic=True)
