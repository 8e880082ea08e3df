"""Runners of a verification: pairing of names, dtypes of inputs, models that cannot be loaded."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from onnxbridge import api, plugins
from onnxbridge.errors import VerificationError
from onnxbridge.runtime.verify.pairing import Runnable, paired, started_runner
from onnxbridge.runtime.verify.runner import Runner

NAMES = {"int32": "int32", "int64": "int64", "float16": "float16", "float32": "float"}


def test_names_that_differ_in_disallowed_characters_are_paired():
    given = {"out_0": np.zeros(1), "out_1": np.ones(1)}
    candidate = Runnable(Runner("b", lambda feeds: given), ("x_0",), ("out_0", "out_1"), None)
    reference = Runnable(Runner("a", lambda feeds: {}), ("x:0",), ("out:1", "out:0"), None)
    found = paired(reference, candidate).run({"x:0": np.zeros(1)})
    assert found["out:1"] == 1 and found["out:0"] == 0


def test_numbered_names_are_paired_by_their_numbers():
    given = {"call:2": np.full(1, 2), "call:1": np.ones(1), "call:0": np.zeros(1)}
    candidate = Runnable(Runner("b", lambda feeds: given), ("x",), tuple(given), None)
    reference = Runnable(Runner("a", lambda feeds: {}), ("input",), ("Identity", "Identity_1", "Identity_2"), None)
    found = paired(reference, candidate).run({"input": np.zeros(1)})
    assert [int(found[n][0]) for n in reference.outputs] == [0, 1, 2]


def test_outputs_of_a_tensorflow_call_are_paired_in_the_order_of_their_numbers():
    given = {f"StatefulPartitionedCall:{i}": np.full(1, i) for i in (1, 2, 0)}
    candidate = Runnable(Runner("b", lambda feeds: given), ("x",), tuple(given), None)
    reference = Runnable(Runner("a", lambda feeds: {}), ("x",), ("contour", "note", "onset"), None)
    found = paired(reference, candidate).run({"x": np.zeros(1)})
    assert [int(found[n][0]) for n in reference.outputs] == [0, 1, 2]


@pytest.mark.parametrize(("given", "taken", "numbers"), [
    ("int64", "int32", [1, -7]), ("int32", "int64", [3]), ("float32", "float16", [0.1, 2.5]), ("float16", "float32", [0.1]),
])  # fmt: skip
def test_inputs_are_cast_to_the_candidates_dtypes(given, taken, numbers):
    def model(dtype):
        return onnx.parser.parse_model(
            f'<ir_version: 10, opset_import: ["" : 18]> g ({dtype}[n] x) => (float16[n] y) {{ y = Cast<to = 10>(x) }}'
        )

    report = api.verify(model(NAMES[given]), model(NAMES[taken]), inputs={"x": np.array(numbers, given)})
    assert report.passed, report


def test_integers_outside_the_candidates_dtype_are_not_wrapped():
    def model(dtype):
        return onnx.parser.parse_model(
            f'<ir_version: 10, opset_import: ["" : 18]> g ({dtype}[n] x) => (float[n] y) {{ y = Cast<to = 1>(x) }}'
        )

    with pytest.raises(VerificationError, match=r"tensor\(int64\)"):
        api.verify(model("int64"), model("int32"), inputs={"x": np.array([2**40])})


def test_a_model_that_the_framework_cannot_load_fails_the_verification():
    with pytest.raises(VerificationError, match="ONNX failed to load the model: ZeroDivisionError"):
        started_runner(plugins.backend("onnx"), lambda: 1 / 0)


def test_a_symbol_without_sizes_uses_those_of_the_reference(network_file, tmp_path):
    converted = api.convert(network_file, to="mxnet", verify=False)
    symbol, weights = converted.save(tmp_path / "net")
    assert api.verify(network_file, (symbol, weights)).passed
