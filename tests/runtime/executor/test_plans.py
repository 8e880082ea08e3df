"""Compiled plans: constant folding, reuse of buffers, and NaN."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, parser

from onnxbridge.runtime import Executor
from onnxbridge.runtime.executor.buffer_pool import Pool
from tests.runtime.executor.fused import EPS, HEAD, model, normal_arrays, step_names

draw = normal_arrays(5)


def test_nan_propagates_through_relu():
    text = """agraph (float[1,20,4,4] x) => (float[1,20,4,4] y) { a = Conv<pads = [1,1,1,1]>(x, w) y = Relu(a) }"""
    x = draw(1, 20, 4, 4)
    x[0, 3, 0, 0] = np.nan
    (y,) = Executor(model(text, w=draw(20, 20, 3, 3))).run(None, {"x": x})
    assert np.isnan(y[:, :, :2, :2]).all()
    assert not np.isnan(y[:, :, 3, 3]).any()


@pytest.mark.parametrize("native", ["0", "1"])
def test_max_pool_of_a_window_with_nan_is_nan(native, monkeypatch):
    """As in PyTorch, to which the standard's description of MaxPool refers."""
    monkeypatch.setenv("ONNXBRIDGE_NATIVE", native)
    text = """agraph (float[1,3,9,8] x) => (float[1,3,7,7] y, float[1,3,1,1] z) {
        y = MaxPool<kernel_shape = [3,2]>(x) z = GlobalMaxPool(x) }"""
    x = draw(1, 3, 9, 8)
    x[0, 0, 4, 4] = x[0, 1, :, :5] = np.nan
    executor = Executor(model(text))
    for _ in range(2):
        y, z = executor.run(None, {"x": x})
        np.testing.assert_array_equal(y, torch.nn.functional.max_pool2d(torch.tensor(x), (3, 2), 1).numpy())
        np.testing.assert_array_equal(z, np.max(x, (2, 3), keepdims=True))


def test_an_input_with_a_default_is_not_a_constant():
    text = """<ir_version: 10, opset_import: ["" : 26]>
        agraph (float[2,2] x, float[2,2] w = {1, 0, 0, 1}) => (float[2,2] y) { y = MatMul(x, w) }"""
    executor, x, w = Executor(parser.parse_model(text)), draw(2, 2), draw(2, 2)
    for _ in range(2):
        np.testing.assert_allclose(executor.run(None, {"x": x})[0], x, rtol=EPS)
        np.testing.assert_allclose(executor.run(None, {"x": x, "w": w})[0], x @ w, rtol=1e-5)


def test_constants_are_folded():
    text = """agraph (float[2,2] x) => (float[2,2] y) <float[2,2] k = {1, 2, 3, 4}, bool no = {0}>
        { a = Exp(k) b = Transpose(a) c = Identity(x) d = Dropout(c, , no) y = Add(d, b) }"""
    x = draw(2, 2)
    executor = Executor(parser.parse_model(HEAD + text))
    (y,) = executor.run(None, {"x": x})
    np.testing.assert_allclose(y, x + np.exp([[1, 3], [2, 4]]).astype(np.float32), rtol=4 * EPS)
    assert step_names(executor, {"x": x}) == ["Add"]


def test_random_operators_are_not_folded():
    text = "agraph () => (float[64] y) { y = RandomUniformLike(k) }"
    executor = Executor(model(text, k=draw(64)))
    first, second = (executor.run(None, {})[0] for _ in range(2))
    assert (first != second).any()


def test_results_without_kernels_are_equal(monkeypatch):
    text = "agraph (float[1,20,9,9] x) => (float[1,18,9,9] y) { a = Conv<pads = [1,1,1,1]>(x, w) y = Gelu(a) }"
    proto, x = model(text, w=draw(18, 20, 3, 3)), draw(1, 20, 9, 9)
    native = Executor(proto).run(None, {"x": x})[0]
    monkeypatch.setenv("ONNXBRIDGE_NATIVE", "0")
    executor = Executor(proto)
    allowed = 8 * np.sqrt(180) * EPS * np.abs(native).max()
    np.testing.assert_allclose(executor.run(None, {"x": x})[0], native, rtol=0, atol=allowed)
    assert step_names(executor, {"x": x}) == ["Conv", "Gelu"]


def test_buffers_are_reused_after_their_arrays_are_gone():
    pool = Pool()
    a = pool.empty((100, 100))
    address, view = a.ctypes.data, a[3:]
    assert address % 64 == 0
    del a
    b = pool.empty((100, 100))
    assert b.ctypes.data != address  # a view of the first buffer still exists
    del view
    assert pool.empty((99, 101)).ctypes.data == address


def test_the_smallest_sufficient_free_buffer_is_reused():
    pool = Pool()
    large, medium = pool.empty((300, 300)), pool.empty((200, 200))
    at_large, at_medium = large.ctypes.data, medium.ctypes.data
    del large, medium
    small = pool.empty((100, 100))
    assert small.ctypes.data == at_medium  # the smallest that is large enough
    assert pool.empty((150, 150)).ctypes.data == at_large
    del small
    assert pool.empty((200, 200)).ctypes.data == at_medium  # returned to its own size


def test_results_are_not_overwritten_by_the_next_run():
    proto = model("agraph (float[64,64] x) => (float[64,64] y) { y = MatMul(x, w) }", w=np.eye(64, dtype=np.float32))
    executor, x = Executor(proto), draw(64, 64)
    (first,) = executor.run(None, {"x": x})
    executor.run(None, {"x": -x})
    np.testing.assert_array_equal(first, x)


def test_compiled_trees_equal_the_rule(monkeypatch):
    features = np.random.default_rng(3).integers(0, 6, 31).tolist()
    modes = (["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT"] * 4)[:15] + ["LEAF"] * 16
    node = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1,
        nodes_treeids=[0] * 31, nodes_nodeids=list(range(31)), nodes_featureids=features, nodes_modes=modes,
        nodes_values=draw(31).tolist(), nodes_missing_value_tracks_true=[i % 2 for i in range(31)],
        nodes_truenodeids=[2 * i + 1 if i < 15 else 0 for i in range(31)],
        nodes_falsenodeids=[2 * i + 2 if i < 15 else 0 for i in range(31)],
        target_treeids=[0] * 16, target_nodeids=list(range(15, 31)), target_ids=[0] * 16, target_weights=draw(16).tolist(),
    )  # fmt: skip
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1000, 6])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1000, 1])],
    )  # fmt: skip
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 26), helper.make_opsetid("ai.onnx.ml", 3)])
    x = draw(1000, 6)
    x[::7, 2] = np.nan
    (compiled,) = Executor(proto).run(None, {"x": x})
    monkeypatch.setenv("ONNXBRIDGE_NATIVE", "0")
    np.testing.assert_array_equal(compiled, Executor(proto).run(None, {"x": x})[0])
