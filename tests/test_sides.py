"""Two models as the sides of a verification: names paired, models that nothing takes."""

from __future__ import annotations

import numpy as np
import pytest

from onnxbridge import api
from onnxbridge.errors import VerificationError
from onnxbridge.runtime.verify import Side
from onnxbridge.sides import Runnable, paired, started


def test_names_that_differ_in_forbidden_characters_are_paired():
    given = {"out_0": np.zeros(1), "out_1": np.ones(1)}
    candidate = Runnable(Side("b", lambda feeds: given), ("x_0",), ("out_0", "out_1"), None)
    reference = Runnable(Side("a", lambda feeds: {}), ("x:0",), ("out:1", "out:0"), None)
    found = paired(reference, candidate).run({"x:0": np.zeros(1)})
    assert found["out:1"] == 1 and found["out:0"] == 0


def test_names_that_count_are_paired_by_their_numbers():
    given = {"call:2": np.full(1, 2), "call:1": np.ones(1), "call:0": np.zeros(1)}
    candidate = Runnable(Side("b", lambda feeds: given), ("x",), tuple(given), None)
    reference = Runnable(Side("a", lambda feeds: {}), ("input",), ("Identity", "Identity_1", "Identity_2"), None)
    found = paired(reference, candidate).run({"input": np.zeros(1)})
    assert [int(found[n][0]) for n in reference.outputs] == [0, 1, 2]


def test_a_model_that_the_framework_does_not_take_fails_the_verification():
    with pytest.raises(VerificationError, match="ONNX does not take the model: ZeroDivisionError"):
        started("ONNX", lambda: 1 / 0)


def test_a_symbol_takes_its_sizes_from_the_reference(network_file, tmp_path):
    converted = api.convert(network_file, to="mxnet", verify=False)
    symbol, weights = converted.save(tmp_path / "net")
    assert api.verify(network_file, (symbol, weights)).passed
