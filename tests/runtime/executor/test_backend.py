"""The executor as an ONNX backend: the backend test suite of onnx, and the interface."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.backend.test
import pytest
from onnx import helper

import onnxbridge.runtime.backend as backend
from onnxbridge.errors import ConversionError, UsageError
from onnxbridge.hub.io.resource_limits import Limits

suite = onnx.backend.test.BackendTest(backend.ExecutorBackend, __name__)
# Bernoulli cases contain the numbers of another generator: test_random tests shape, type and distribution. The suite cannot
# compare scalars in a sequence: test_numpy_rules tests that case.
suite.exclude("test_bernoulli|test_loop16_seq_none")
for kind, cases in suite.test_cases.items():
    if "RealModel" not in kind:  # those are downloads
        for name in [n for n in vars(cases) if n.endswith("_cuda") or getattr(vars(cases)[n], "__unittest_skip__", False)]:
            delattr(cases, name)
        globals()[kind] = cases
del kind, cases  # otherwise the last class would be collected twice


X = np.array([[1, -2], [3, -4]], np.float32)


def model(op: str, domain: str = "") -> onnx.ModelProto:
    value = helper.make_tensor_value_info
    node = helper.make_node(op, ["x"], ["y"], domain=domain)
    graph = helper.make_graph([node], "g", [value("x", 1, [2, 2])], [value("y", 1, [2, 2])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("theirs", 1)], ir_version=9)


@pytest.mark.parametrize("inputs", [[X], (X,), X, {"x": X}])
def test_inputs_are_passed_in_order_or_by_name(inputs):
    prepared = backend.prepare(model("Neg"))
    outputs = prepared.run(inputs)
    np.testing.assert_array_equal(outputs.y, -X)
    np.testing.assert_array_equal(outputs[0], -X)
    np.testing.assert_array_equal(backend.run_model(model("Neg"), inputs)[0], -X)


def test_runs_one_node_of_any_opset():
    (y,) = backend.run_node(helper.make_node("ReduceSum", ["x"], ["y"], axes=[1], keepdims=0), [X], opset_version=11)
    np.testing.assert_array_equal(y, X.sum(1))
    low = np.float32(0)
    (y,) = backend.run_node(helper.make_node("Clip", ["x", "", "high"], ["y"]), {"x": X, "high": low})
    np.testing.assert_array_equal(y, np.minimum(X, 0))
    (n,) = backend.run_node(helper.make_node("SequenceLength", ["s"], ["n"]), [[X, X]])
    assert n == 2
    (y,) = backend.run_node(helper.make_node("Binarizer", ["x"], ["y"], domain="ai.onnx.ml", threshold=0.0), [X])
    np.testing.assert_array_equal(y, (X > 0).astype(np.float32))


def test_unsupported_models_and_devices_are_reported():
    assert backend.is_compatible(model("Neg"))
    assert not backend.is_compatible(model("Neg", "theirs"))
    assert not backend.is_compatible(model("Neg"), "CUDA")
    assert backend.supports_device("CPU")
    assert not backend.supports_device("CUDA:1")
    assert not backend.supports_device("abacus")
    with pytest.raises(UsageError, match="'CUDA'"):
        backend.prepare(model("Neg"), "CUDA")
    with pytest.raises(ConversionError, match="theirs::Neg"):
        backend.prepare(model("Neg", "theirs"))


def test_options_are_passed_to_the_executor():
    assert backend.prepare(model("Neg"), precision="float64").run([X])[0].dtype == np.float64
    assert backend.prepare(model("Neg"), limits=Limits(seconds=60)).run([X])[0].dtype == np.float32
