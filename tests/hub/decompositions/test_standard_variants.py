"""Every expansion of ours against the operator itself in ONNX Runtime (our executor where that has none): attributes, dtypes, and
sizes that are only known when the model runs."""

from __future__ import annotations

import pytest

from onnxbridge.errors import ConversionError
from tests.hub.decompositions import cases as expand_table
from tests.hub.decompositions.compare import assert_agrees, written_out

CASES = [pytest.param(c, id=f"{c.op}-{i}") for i, c in enumerate(expand_table.CASES)]


@pytest.mark.parametrize("case", CASES)
def test_with_known_sizes(case):
    assert_agrees(case, dynamic=False)


@pytest.mark.parametrize("case", CASES)
def test_with_sizes_of_the_run(case):
    if not case.refuses:
        assert_agrees(case, dynamic=True)
        return
    with pytest.raises(ConversionError, match=case.refuses):
        written_out(case, dynamic=True)
