"""SVMs, linear models, maps and optimizers agree with ONNX Runtime, scikit-learn and the standard's formulas."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper
from scipy.stats import norm
from sklearn.svm import SVC

from onnxbridge.errors import ConversionError
from onnxbridge.hub.io import onnx_files
from onnxbridge.runtime import Executor
from tests.runtime.executor.test_numpy_trees import compare

X = np.random.default_rng(1).standard_normal((25, 3)).astype(np.float32)
KERNELS = {"LINEAR": [0.0, 0.0, 0.0], "RBF": [0.4, 0.0, 0.0], "POLY": [0.3, 0.5, 3.0], "SIGMOID": [0.2, 0.1, 0.0]}


def svm_attributes(classes: int, probabilities: bool, strings: bool = False, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    each = [2, 3, 1, 2][:classes]
    pairs = classes * (classes - 1) // 2
    found: dict[str, Any] = {
        "support_vectors": rng.standard_normal(sum(each) * 3).tolist(),
        "coefficients": rng.standard_normal((classes - 1) * sum(each)).tolist(),
        "rho": rng.standard_normal(pairs).tolist(),
        "vectors_per_class": each,
    }
    if probabilities:
        found |= {"prob_a": (-1 - rng.random(pairs)).tolist(), "prob_b": rng.standard_normal(pairs).tolist()}
    return found | ({"classlabels_strings": list("abcd")[:classes]} if strings else {"classlabels_ints": [7, 3, 9, 1][:classes]})


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("classes", "probabilities"), list(itertools.product((2, 3, 4), (False, True))))
def test_svm_classifier(kernel, classes, probabilities):
    attributes = svm_attributes(classes, probabilities, strings=classes == 3)
    transforms = ("NONE", "LOGISTIC") if classes == 2 and not probabilities else ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")
    for how in transforms:
        compare("SVMClassifier", [X], 2, kernel_type=kernel, kernel_params=KERNELS[kernel], post_transform=how, **attributes)


def test_svm_classifier_agrees_with_scikit_learn():
    y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5)
    svc = SVC(probability=True, random_state=0).fit(X, y)
    node = helper.make_node(
        "SVMClassifier", ["x"], ["label", "p"], domain="ai.onnx.ml", kernel_type="RBF", kernel_params=[svc._gamma, 0.0, 0.0],
        support_vectors=svc.support_vectors_.reshape(-1).tolist(), vectors_per_class=svc.n_support_.tolist(),
        coefficients=svc.dual_coef_.reshape(-1).tolist(), rho=svc.intercept_.tolist(), prob_a=svc.probA_.tolist(),
        prob_b=svc.probB_.tolist(), classlabels_ints=[0, 1, 2],
    )  # fmt: skip
    label, p = Executor(model([node], ["label", "p"])).run(None, {"x": X})
    np.testing.assert_array_equal(label, svc.predict(X))
    np.testing.assert_allclose(p, svc.predict_proba(X), atol=1e-5)


def model(nodes: list[onnx.NodeProto], outputs: list[str], kind: onnx.TypeProto | None = None) -> onnx.ModelProto:
    x = helper.make_value_info("x", kind) if kind else helper.make_tensor_value_info("x", 1, [None, 3])
    graph = helper.make_graph(nodes, "g", [x], [helper.make_value_info(n, onnx.TypeProto()) for n in outputs])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def test_two_classes_of_one_score_are_refused_where_runtimes_differ():
    for how in ("SOFTMAX", "PROBIT"):
        node = helper.make_node(
            "SVMClassifier", ["x"], ["l", "z"], domain="ai.onnx.ml", post_transform=how, **svm_attributes(2, False)
        )
        with pytest.raises(ConversionError, match="two classes without probabilities"):
            Executor(model([node], ["l", "z"])).run(None, {"x": X})


@pytest.mark.parametrize("kernel", KERNELS)
def test_svm_regressor(kernel):
    vectors = np.random.default_rng(5).standard_normal(9).tolist()
    attributes = {"coefficients": [0.5, -0.3, 0.7], "rho": [0.1], "n_supports": 3, "support_vectors": vectors}
    for one_class in (0, 1):
        compare("SVMRegressor", [X], kernel_type=kernel, kernel_params=KERNELS[kernel], one_class=one_class, **attributes)
    compare("SVMRegressor", [X], coefficients=[0.5, -0.3, 0.7], rho=[0.1], kernel_params=[0.0, 0.0, 0.0])


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64, np.int32])
@pytest.mark.parametrize("classes", [1, 2, 3])
@pytest.mark.parametrize("how", ["NONE", "LOGISTIC"])
def test_linear_classifier(kind, classes, how):
    rng = np.random.default_rng(2)
    attributes = {"coefficients": rng.standard_normal(3 * classes).tolist(), "intercepts": rng.standard_normal(classes).tolist()}
    labels = [4, 2, 8][: max(classes, 2)]
    compare("LinearClassifier", [(3 * X).astype(kind)], 2, classlabels_ints=labels, post_transform=how, **attributes)


def test_probit_is_the_inverse_normal_cdf():
    """Compared with SciPy, since ONNX Runtime approximates it to three digits only."""
    attrs = {"coefficients": [1.0, 0, 0], "post_transform": "PROBIT"}
    node = helper.make_node("LinearRegressor", ["x"], ["y"], domain="ai.onnx.ml", **attrs)
    x = np.zeros((7, 3), np.float32)
    x[:, 0] = [0, 1e-6, 0.1, 0.5, 0.975, 1, 2]
    np.testing.assert_allclose(Executor(model([node], ["y"])).run(None, {"x": x})[0][:, 0], norm.ppf(x[:, 0]), rtol=1e-6)


def run_onnxruntime(m: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    return ort.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)


def test_zip_map_returns_dictionaries(tmp_path):
    for labels in ({"classlabels_int64s": [5, 6, 7]}, {"classlabels_strings": ["a", "b", "c"]}):
        m = model([helper.make_node("ZipMap", ["x"], ["z"], domain="ai.onnx.ml", **labels)], ["z"])
        keys = onnx.TensorProto.INT64 if "classlabels_int64s" in labels else onnx.TensorProto.STRING
        value = helper.make_tensor_type_proto(1, [])
        m.graph.output[0].type.CopyFrom(helper.make_sequence_type_proto(helper.make_map_type_proto(keys, value)))
        onnx.save(m, tmp_path / "m.onnx")
        for source in (m, tmp_path / "m.onnx"):
            assert Executor(source).run(None, {"x": X}) == run_onnxruntime(m, {"x": X})
        with pytest.raises(ConversionError, match="a value is a map"):
            onnx_files.from_proto(m)


@pytest.mark.parametrize(
    ("keys", "values", "mapping", "attrs"),
    [
        (7, 1, {3: 1.5, 1: 2.0}, {"cast_to": to, "map_form": form, "max_map": 5})
        for to, form in itertools.product(("TO_FLOAT", "TO_INT64", "TO_STRING"), ("DENSE", "SPARSE"))
    ],
)
def test_maps_are_cast(keys, values, mapping, attrs):
    kind = helper.make_map_type_proto(keys, helper.make_tensor_type_proto(values, []))
    m = model([helper.make_node("CastMap", ["x"], ["y"], domain="ai.onnx.ml", **attrs)], ["y"], kind)
    (got,) = Executor(m).run(None, {"x": mapping})
    (expected,) = run_onnxruntime(m, {"x": mapping})
    assert got.shape == expected.shape
    if got.dtype.kind != "O":
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)
    else:  # ONNX Runtime writes 1.500000 where Cast writes 1.5, and "0.f" for missing keys
        assert [float(v or 0) for v in got[0]] == [float(v.rstrip("f") or 0) for v in expected[0]]


def test_maps_of_strings_are_cast():
    """Compared with constants, since ONNX Runtime accepts no such map from Python."""
    kind = helper.make_map_type_proto(onnx.TensorProto.INT64, helper.make_tensor_type_proto(onnx.TensorProto.STRING, []))
    for to, expected in (("TO_FLOAT", [0, 2, 0, 1.5]), ("TO_STRING", ["", "2", "", "1.5"])):
        node = helper.make_node("CastMap", ["x"], ["y"], domain="ai.onnx.ml", cast_to=to, map_form="SPARSE", max_map=4)
        assert Executor(model([node], ["y"], kind)).run(None, {"x": {3: "1.5", 1: "2"}})[0].tolist() == [expected]


@pytest.mark.parametrize(
    ("keys", "values", "mapping", "attrs", "expected"),
    [
        (8, 1, {"b": 4.5, "a": 8.0}, {"string_vocabulary": ["a", "c", "b"]}, [8, 0, 4.5]),
        (8, 7, {"b": 4}, {"string_vocabulary": ["a", "c", "b"]}, [0, 0, 4]),
        (7, 8, {2: "x"}, {"int64_vocabulary": [1, 2]}, ["", "x"]),
        (7, 1, {}, {"int64_vocabulary": [1, 2]}, [0, 0]),
        (7, 11, {1: np.float64(0.1)}, {"int64_vocabulary": [1, 2]}, [0.1, 0]),
    ],
)
def test_maps_become_vectors(keys, values, mapping, attrs, expected):
    kind = helper.make_map_type_proto(keys, helper.make_tensor_type_proto(values, []))
    executor = Executor(model([helper.make_node("DictVectorizer", ["x"], ["y"], domain="ai.onnx.ml", **attrs)], ["y"], kind))
    (got,) = executor.run(None, {"x": mapping})
    assert (got.dtype, got.tolist()) == (object if values == 8 else helper.tensor_dtype_to_np_dtype(values), [expected])
    with pytest.raises(ValueError, match="the vocabulary has no"):
        executor.run(None, {"x": {"z" if keys == 8 else 9: 1.0}})


def test_features_are_concatenated():
    compare("FeatureVectorizer", [X.astype(np.float64), X[:, :2].astype(np.float64)], inputdimensions=[3, 2], version=1)
    compare("FeatureVectorizer", [X.astype(np.int64)], inputdimensions=[3], version=1)


def training(op: str, inputs: list[np.ndarray], results: int, **attrs: Any) -> list[np.ndarray]:
    feeds = {f"x{i}": x for i, x in enumerate(inputs)}
    node = helper.make_node(op, list(feeds), [f"y{i}" for i in range(results)], domain="ai.onnx.preview.training", **attrs)
    declared = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in feeds.items()]
    graph = helper.make_graph([node], "g", declared, [helper.make_value_info(n, onnx.TypeProto()) for n in node.output])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.preview.training", 1)]
    return Executor(helper.make_model(graph, opset_imports=imports, ir_version=10)).run(None, feeds)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_optimizers_update_several_tensors_at_once(kind):
    """Updating two tensors in one node equals updating each in its own."""
    rng = np.random.default_rng(0)
    rate, step = np.array(0.1, kind), np.array(3, np.int64)
    for op, roles, results, attrs in (
        ("Adam", 4, 3, {"norm_coefficient": 0.01, "norm_coefficient_post": 0.02}),
        ("Adagrad", 3, 2, {"decay_factor": 0.1}),
        ("Momentum", 3, 2, {"alpha": 0.9, "beta": 0.5, "mode": "nesterov", "norm_coefficient": 0.1}),
    ):
        groups = [[abs(rng.standard_normal(s)).astype(kind) for s in ((2, 3), (4,))] for _ in range(roles)]
        together = training(op, [rate, step, *itertools.chain(*groups)], 2 * results, **attrs)
        separate = [training(op, [rate, step, *(g[i] for g in groups)], results, **attrs) for i in range(2)]
        assert all(v.dtype == kind for v in together)
        for got, expected in zip(together, itertools.chain(*zip(*separate, strict=True)), strict=True):
            np.testing.assert_array_equal(got, expected)
