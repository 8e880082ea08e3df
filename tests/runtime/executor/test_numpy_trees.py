"""The executor's rules for ai.onnx.ml agree with ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

from onnxbridge.runtime import Executor

X = np.random.default_rng(0).standard_normal((40, 5)).astype(np.float32)


def compare(op: str, inputs: list[np.ndarray], outputs: int = 1, version: int = 3, **attrs: Any) -> None:
    names, results = [f"x{i}" for i in range(len(inputs))], [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, results, domain="ai.onnx.ml", **attrs)
    kinds = [onnx.TensorProto.STRING if x.dtype == object else helper.np_dtype_to_tensor_dtype(x.dtype) for x in inputs]
    declared = [helper.make_tensor_value_info(n, k, x.shape) for n, k, x in zip(names, kinds, inputs, strict=True)]
    graph = helper.make_graph([node], "g", declared, [helper.make_value_info(n, onnx.TypeProto()) for n in results])
    imports = [helper.make_opsetid("", 26), helper.make_opsetid("ai.onnx.ml", version)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    feeds = dict(zip(names, inputs, strict=True))
    reference = onnx.ModelProto()
    reference.CopyFrom(model)
    reference.opset_import[0].version = 21
    session = ort.InferenceSession(reference.SerializeToString(), providers=["CPUExecutionProvider"])
    for got, expected in zip(Executor(model).run(None, feeds), session.run(None, feeds), strict=True):
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        if got.dtype == object:
            assert got.tolist() == expected.tolist()
        else:
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def forest(trees: int, depth: int, prefix: str, targets: int, seed: int = 0, positive: bool = False) -> dict[str, Any]:
    """Attributes of complete binary trees with every comparison mode; leaves have a weight for each target."""
    rng = np.random.default_rng(seed)
    inner, every = 2**depth - 1, 2 ** (depth + 1) - 1
    modes = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
    leaves = [(t, n, k) for t in range(trees) for n in range(inner, every) for k in range(targets)]
    weights = rng.standard_normal(len(leaves))
    return {
        "nodes_treeids": [t for t in range(trees) for _ in range(every)],
        "nodes_nodeids": list(range(every)) * trees,
        "nodes_featureids": rng.integers(0, 5, trees * every).tolist(),
        "nodes_values": rng.standard_normal(trees * every).tolist(),
        "nodes_modes": [modes[(t + n) % 6] if n < inner else "LEAF" for t in range(trees) for n in range(every)],
        "nodes_truenodeids": [2 * n + 1 if n < inner else 0 for n in range(every)] * trees,
        "nodes_falsenodeids": [2 * n + 2 if n < inner else 0 for n in range(every)] * trees,
        "nodes_missing_value_tracks_true": rng.integers(0, 2, trees * every).tolist(),
        f"{prefix}_treeids": [t for t, _, _ in leaves],
        f"{prefix}_nodeids": [n for _, n, _ in leaves],
        f"{prefix}_ids": [k for _, _, k in leaves],
        f"{prefix}_weights": (np.abs(weights) / trees if positive else weights).tolist(),
    }


@pytest.mark.parametrize("how", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_regressor(how):
    x = X.copy()
    x[3, 2] = np.nan
    compare("TreeEnsembleRegressor", [x], aggregate_function=how, n_targets=2, **forest(7, 3, "target", 2))
    compare("TreeEnsembleRegressor", [x], aggregate_function=how, n_targets=1, base_values=[0.5], **forest(4, 2, "target", 1))


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
def test_classifier(transform):
    attrs = forest(6, 3, "class", 3)
    compare("TreeEnsembleClassifier", [X], 2, classlabels_int64s=[4, 7, 9], post_transform=transform, **attrs)
    compare("TreeEnsembleClassifier", [X], 2, classlabels_strings=["a", "b", "c"], post_transform=transform, **attrs)


@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
def test_classifier_of_two_classes(positive, transform):
    attrs = forest(6, 3, "class", 1, positive=positive)
    compare("TreeEnsembleClassifier", [X], 2, classlabels_int64s=[0, 1], post_transform=transform, **attrs)
    attrs["class_ids"] = [1] * len(attrs["class_ids"])
    compare("TreeEnsembleClassifier", [X], 2, classlabels_int64s=[0, 1], post_transform=transform, **attrs)


def test_tree_thresholds_and_features_at_float32_limits():
    """Integer weights have exact sums, so the compiled trees equal the rule bitwise."""
    rng = np.random.default_rng(5)
    limits = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 1.0, 1 + 2**-23], np.float32)
    attrs = forest(40, 4, "target", 2)
    attrs["nodes_values"] = rng.choice(limits, len(attrs["nodes_values"])).tolist()
    attrs["target_weights"] = np.round(np.array(attrs["target_weights"]) * 8).tolist()
    names = ["x"], ["y"]
    node = helper.make_node("TreeEnsembleRegressor", *names, domain="ai.onnx.ml", n_targets=2, **attrs)
    declared = [helper.make_tensor_value_info(n, 1, ["rows", k]) for n, k in (("x", 5), ("y", 2))]
    graph = helper.make_graph([node], "g", declared[:1], declared[1:])
    executor = Executor(helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx.ml", 3)], ir_version=10))
    for rows in (1, 9, 300):
        x = rng.choice(limits, (rows, 5))
        for features in (x, np.nan_to_num(x, nan=0.5, posinf=np.inf, neginf=-np.inf)):
            np.testing.assert_array_equal(executor.run(None, {"x": features})[0], executor.run(["y"], {"x": features})[0])
    assert executor.explain({"x": x})[0].runs == "compiled kernel"


def test_linear_models_and_scaling():
    weights = np.random.default_rng(1).standard_normal(15).tolist()
    compare("LinearRegressor", [X], coefficients=weights, intercepts=[1.0, 2.0, 3.0], targets=3)
    for transform in ("NONE", "SOFTMAX", "LOGISTIC"):
        attrs = {"classlabels_ints": [3, 5, 8], "post_transform": transform}
        compare("LinearClassifier", [X], 2, coefficients=weights, intercepts=[0.1, 0.2, 0.3], **attrs)
    for norm in ("MAX", "L1", "L2"):
        compare("Normalizer", [np.abs(X)], norm=norm)
    compare("Scaler", [X], offset=[1.0, 2.0, 3.0, 4.0, 5.0], scale=[0.5] * 5)
    compare("Binarizer", [X], threshold=0.3)


def test_encoders_and_mappers():
    words = np.array([["a", "b"], ["c", "z"]], object)
    compare("LabelEncoder", [words], keys_strings=["a", "b", "c"], values_int64s=[4, 5, 6], default_int64=9)
    compare("LabelEncoder", [words], keys_strings=["a", "b"], values_strings=["x", "y"])
    numbers = np.array([1.5, np.nan, 3.0], np.float32)
    twice = {"keys_floats": [3.0, float("nan"), 1.0, -0.0, 3.0, float("inf")], "values_int64s": [1, 2, 3, 4, 5, 6]}
    many = np.array([[3, 1], [np.nan, 0], [7, np.inf], [-np.inf, -3], [-0.0, 2.5]], np.float32)
    compare("LabelEncoder", [many], version=4, default_int64=-7, **twice)
    compare("LabelEncoder", [numbers], version=4, keys_floats=[1.5, float("nan")], values_floats=[7.0, 8.0], default_float=0.25)
    compare("CategoryMapper", [words], cats_strings=["a", "b"], cats_int64s=[3, 4])
    compare("OneHotEncoder", [np.array([2, 7, 3], np.int64)], cats_int64s=[1, 2, 3])
    compare("ArrayFeatureExtractor", [X, np.array([3, 0], np.int64)])
    x = X[:3].copy()
    x[1, 1] = np.nan
    compare("Imputer", [x], imputed_value_floats=[1.0, 2.0, 3.0, 4.0, 5.0], replaced_value_float=float("nan"))
