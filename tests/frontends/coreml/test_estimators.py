"""Classical machine learning models, alone and in pipelines: models written by Apple's converter match scikit-learn."""

from __future__ import annotations

import importlib
import sys

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn import ensemble, linear_model, neighbors, pipeline, preprocessing, svm, tree
from sklearn.impute import SimpleImputer

import onnxbridge
from onnxbridge.cli import group
from onnxbridge.errors import ConversionError, OnnxbridgeError, UnsafeFileError, UsageError
from onnxbridge.formats.coreml.estimators import UNSUPPORTED
from onnxbridge.formats.coreml.estimators.ops import rule
from onnxbridge.formats.coreml.reader import NETWORKS, PIPELINES
from onnxbridge.frameworks import coremltools
from onnxbridge.frontends.coreml import frontend
from onnxbridge.hub import passes
from onnxbridge.runtime import devices
from onnxbridge.runtime.mil import Interpreter

ct = coremltools()
rng = np.random.default_rng(0)
X = rng.normal(size=(80, 4))
Y = X @ [1, 2, -1, 0.5] + 0.1 * rng.normal(size=80)
C = (Y > 0).astype(int) + (Y > 1)
MISSING = np.where(rng.random(X.shape) < 0.2, np.nan, X)
CATEGORIES = rng.integers(0, 3, (40, 3)).astype(float)


@pytest.fixture(scope="module")
def convert():
    """Apple's converter, which declares support for scikit-learn up to 1.5, but works with these models of later versions."""
    held, ct._deps._HAS_SKLEARN = ct._deps._HAS_SKLEARN, True
    for name in sorted(n for n in sys.modules if n.startswith("coremltools.converters.sklearn.")):
        importlib.reload(sys.modules[name])
    yield lambda model: importlib.import_module("coremltools.converters.sklearn._converter").convert(model, "x", None).get_spec()
    ct._deps._HAS_SKLEARN = held


def run_both(spec, row):
    """Run the interpreter, and check that ONNX Runtime gives the same."""
    found = Interpreter(spec).run({"x": row})
    model = passes.clean(frontend.to_hub(spec))
    (feed,) = model.graph.inputs
    again = devices.run(devices.session(model, "cpu"), {feed.name: row.astype(feed.dtype.numpy())})
    for want, got in zip(found.values(), again.values(), strict=True):
        want = np.asarray(list(want.values()) if isinstance(want, dict) else want)
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
    return found


REGRESSORS = {
    "linear": linear_model.LinearRegression(), "ridge": linear_model.Ridge(), "linear_svr": svm.LinearSVR(),
    "svr_rbf": svm.SVR(C=0.1), "svr_linear": svm.SVR(kernel="linear"), "svr_poly": svm.SVR(kernel="poly", coef0=1.0),
    "nu_svr": svm.NuSVR(kernel="sigmoid"), "tree": tree.DecisionTreeRegressor(max_depth=4, random_state=0),
    "forest": ensemble.RandomForestRegressor(5, max_depth=4, random_state=0),
    "pipeline": pipeline.Pipeline([("s", preprocessing.StandardScaler()), ("l", linear_model.LinearRegression())]),
}  # fmt: skip


@pytest.mark.parametrize("case", REGRESSORS)
def test_regressors_match_scikit_learn(convert, case):
    model = REGRESSORS[case].fit(X, Y)
    spec = convert(model)
    for row in X[:5]:
        assert run_both(spec, row)["prediction"] == pytest.approx(model.predict(row[None])[0], rel=1e-9)


def test_deep_tree_is_traversed_in_a_loop(convert):
    x = np.arange(60.0)[:, None].repeat(2, 1)
    model = tree.DecisionTreeRegressor(random_state=0).fit(x, 2.0 ** np.arange(60))
    assert model.get_depth() > 30
    spec = convert(model)
    for row in x[::13]:
        assert run_both(spec, row)["prediction"] == model.predict(row[None])[0]


CLASSIFIERS = {
    "linear_svc": (svm.LinearSVC(), C > 0), "nu_svc": (svm.NuSVC(nu=0.2), C), "svc_votes": (svm.SVC(), C),
    "tree": (tree.DecisionTreeClassifier(max_depth=4, random_state=0), C),
    "forest": (ensemble.RandomForestClassifier(5, max_depth=4, random_state=0), C),
    "boosted": (ensemble.GradientBoostingClassifier(n_estimators=5, random_state=0), C > 0),
    "neighbours": (neighbors.KNeighborsClassifier(), C),
    "pipeline": (pipeline.Pipeline([("s", preprocessing.StandardScaler()), ("l", svm.LinearSVC())]), C > 0),
}  # fmt: skip
# Apple's converter writes a multiclass forest as the sum over its trees, not the mean.
SUM_OF_TREES = {"forest": 5}


@pytest.mark.parametrize("case", CLASSIFIERS)
def test_classifiers_match_scikit_learn(convert, case):
    model, classes = CLASSIFIERS[case]
    model.fit(X, classes.astype(int))
    spec = convert(model)
    for row in X[:6]:
        found = run_both(spec, row)
        assert found["classLabel"] == model.predict(row[None])[0]
        table = next((v for v in found.values() if isinstance(v, dict)), None)
        if hasattr(model, "predict_proba") and table is not None:
            want = model.predict_proba(row[None])[0] * SUM_OF_TREES.get(case, 1)
            np.testing.assert_allclose(list(table.values()), want, atol=1e-6)


def test_probabilities_of_support_vector_machines(convert):
    """For two classes, the sigmoid of the score; for more, libsvm's iteration, which stops early, step by step."""
    for classes in (C, C > 0):
        model = svm.SVC(probability=True, random_state=0).fit(X, classes.astype(int))
        spec = convert(model)
        for row in X[:4]:
            table = next(v for v in run_both(spec, row).values() if isinstance(v, dict))
            want = model.predict_proba(row[None])[0]
            if classes.dtype == bool:
                raw = -model.decision_function(row[None])[0]
                second = 1 / (1 + np.exp(-(raw * model.probA_[0] + model.probB_[0])))
                want = [1 - second, second]
            np.testing.assert_allclose(list(table.values()), want, atol=1e-9)


def test_one_versus_rest_logistic_regression(convert):
    model = linear_model.LogisticRegression().fit(X, C > 0)
    model.multi_class = "ovr"  # removed from scikit-learn, but required by Apple's converter
    spec = convert(model)
    for row in X[:4]:
        table = next(v for v in run_both(spec, row).values() if isinstance(v, dict))
        np.testing.assert_allclose(list(table.values()), model.predict_proba(row[None])[0], rtol=1e-9)


def test_nearest_neighbors_weighted_by_distance(convert):
    labels = CATEGORIES[:, 0].astype(int)
    model = neighbors.KNeighborsClassifier(5, weights=lambda far: 1 / far**2).fit(X[:40], labels)
    spec = convert(neighbors.KNeighborsClassifier(5).fit(X[:40], labels))
    spec.kNearestNeighborsClassifier.inverseDistanceWeighting.SetInParent()
    spec.description.predictedProbabilitiesName = "shares"
    spec.description.output.add(name="shares").type.dictionaryType.int64KeyType.SetInParent()
    for row in X[40:46]:
        found = run_both(spec, row)
        assert found["classLabel"] == model.predict(row[None])[0]
        table = next(v for v in found.values() if isinstance(v, dict))
        want = dict(zip(model.classes_.tolist(), model.predict_proba(row[None])[0], strict=True))
        assert table == pytest.approx(want, rel=1e-4)
    sample = np.array(spec.kNearestNeighborsClassifier.nearestNeighborsIndex.floatSamples[3].vector)
    assert run_both(spec, sample)["classLabel"] == labels[3]


PREPROCESSORS = {
    "scaler": (preprocessing.StandardScaler(), X), "imputer": (SimpleImputer(), MISSING),
    "one_hot": (preprocessing.OneHotEncoder(), CATEGORIES),
    "all": (pipeline.Pipeline([("i", SimpleImputer()), ("s", preprocessing.StandardScaler())]), MISSING),
}  # fmt: skip


@pytest.mark.parametrize("case", PREPROCESSORS)
def test_preprocessors_match_scikit_learn(convert, case):
    model, data = PREPROCESSORS[case]
    spec = convert(model.fit(data))
    for row in data[:5]:
        want = model.transform(row[None])
        (found,) = run_both(spec, row).values()
        np.testing.assert_allclose(found, (want.toarray() if hasattr(want, "toarray") else want)[0], rtol=1e-9)


def described(kind, size=4, output="doubleType", **fields):
    """A handwritten specification of one model from x (size,) to y."""
    spec = ct.proto.Model_pb2.Model(specificationVersion=1)
    taken = spec.description.input.add(name="x").type.multiArrayType
    taken.shape.append(size)
    taken.dataType = ct.proto.FeatureTypes_pb2.ArrayFeatureType.DOUBLE
    given = spec.description.output.add(name="y").type
    getattr(given, output).SetInParent()
    if output == "multiArrayType":
        given.multiArrayType.dataType = ct.proto.FeatureTypes_pb2.ArrayFeatureType.DOUBLE
    model = getattr(spec, kind)
    model.SetInParent()
    for name, value in fields.items():
        setattr(model, name, value) if not isinstance(value, list) else getattr(model, name).extend(value)
    return spec


def test_unknown_category_raises_or_is_ignored():
    spec = described("oneHotEncoder", 1, "multiArrayType")
    spec.oneHotEncoder.int64Categories.vector.extend([5, 3, 8])
    assert run_both(spec, np.array([3.0]))["y"].tolist() == [0, 1, 0]
    with pytest.raises(OnnxbridgeError, match="gather"):
        Interpreter(spec).run({"x": np.array([7.0])})
    model = passes.clean(frontend.to_hub(spec))
    with pytest.raises(Exception, match="out of data bounds|out of bounds|outside"):
        devices.run(devices.session(model, "cpu"), {"x": np.array([7.0])})
    spec.oneHotEncoder.handleUnknown = 1
    assert run_both(spec, np.array([7.0]))["y"].tolist() == [0, 0, 0]


def string_model(kind, output="multiArrayType", **given):
    """A specification of one model from a string, or from the type `x`, to y."""
    spec = described(kind, 1, output, **{k: v for k, v in given.items() if k != "x"})
    getattr(spec.description.input[0].type, given.get("x", "stringType")).SetInParent()
    return spec


def test_string_categories():
    spec = string_model("oneHotEncoder")
    spec.oneHotEncoder.stringCategories.vector.extend(["red", "green", "blue"])
    assert run_both(spec, np.array("green", object))["y"].tolist() == [0, 1, 0]
    with pytest.raises(OnnxbridgeError, match="gather"):
        Interpreter(spec).run({"x": "pink"})
    spec.oneHotEncoder.handleUnknown = 1
    assert run_both(spec, np.array("pink", object))["y"].tolist() == [0, 0, 0]


@pytest.mark.parametrize("default", [None, 7])
def test_strings_are_mapped_to_integers(default):
    spec = string_model("categoricalMapping", "int64Type")
    spec.categoricalMapping.stringToInt64Map.map.update({"a": 4, "b": -9})
    if default is not None:
        spec.categoricalMapping.int64Value = default
    assert [run_both(spec, np.array(x, object))["y"] for x in "ab"] == [4, -9]
    if default is None:
        with pytest.raises(OnnxbridgeError, match="gather"):
            Interpreter(spec).run({"x": "c"})
    else:
        assert run_both(spec, np.array("c", object))["y"] == 7


def test_integers_are_mapped_to_strings():
    spec = string_model("categoricalMapping", "stringType", x="int64Type", strValue="none")
    spec.categoricalMapping.int64ToStringMap.map.update({4: "a", -9: "b"})
    run = Interpreter(spec)
    session = devices.session(passes.clean(frontend.to_hub(spec)), "cpu")
    for x, want in ((4, "a"), (-9, "b"), (0, "none")):
        assert run.run({"x": x}) == {"y": want}
        (found,) = devices.run(session, {"x": np.array(x)}).values()
        assert found.item() == want
    assert onnxbridge.convert(spec, "onnx").report.passed


def test_dictionary_is_a_vector_in_the_order_of_its_keys(tmp_path):
    """A scikit-learn pipeline of a vectorizer and a linear model."""
    spec = ct.proto.Model_pb2.Model(specificationVersion=1)
    first, second = spec.pipelineRegressor.pipeline.models.add(), spec.pipelineRegressor.pipeline.models.add()
    first.CopyFrom(string_model("dictVectorizer", x="dictionaryType"))
    first.dictVectorizer.stringToIndex.vector.extend(["a", "c", "b"])
    first.description.output[0].name = "v"
    second.CopyFrom(described("glmRegressor", 3, offset=[0.5]))
    second.description.input[0].name = "v"
    second.glmRegressor.weights.add(value=[1.0, 10.0, 100.0])
    spec.description.input.add().CopyFrom(first.description.input[0])
    spec.description.output.add().CopyFrom(second.description.output[0])
    run = Interpreter(spec)
    assert run.run({"x": {"a": 4, "c": 8}})["y"] == 84.5 and run.run({"x": {"b": 1}})["y"] == 100.5
    with pytest.raises(UsageError, match="no key 'z'; its keys are a, c, b"):
        run.run({"x": {"z": 1}})
    (value,) = frontend.to_hub(spec).graph.inputs
    assert list(value.shape) == [3] and value.metadata_props["onnxbridge.keys"] == '["a", "c", "b"]'
    path = tmp_path / "net.mlmodel"
    ct.models.utils.save_spec(spec, str(path))
    assert "input   x: float64[3]  keys a, c, b" in CliRunner().invoke(group, ["inspect", str(path)]).output
    assert run_both(spec, np.array([4.0, 8.0, 0.0]))["y"] == 84.5
    assert onnxbridge.convert(spec, "onnx").report.passed


@pytest.mark.parametrize("norm", ["LMax", "L1", "L2"])
def test_normalizers(norm):
    spec = described("normalizer", output="multiArrayType")
    spec.normalizer.normType = ct.proto.Normalizer_pb2.Normalizer.NormType.Value(norm)
    judge = preprocessing.Normalizer(norm={"LMax": "max", "L1": "l1", "L2": "l2"}[norm])
    for row in [*X[:3], np.zeros(4)]:
        want = judge.transform(np.abs(row)[None])[0] * np.sign(row)  # since 0.24 scikit-learn uses the maximum of absolute values
        np.testing.assert_allclose(run_both(spec, row)["y"], want, rtol=1e-12)


@pytest.mark.parametrize("transform", ["NoTransform", "Logit", "Probit"])
def test_transforms_of_linear_models(transform):
    from scipy import stats

    spec = described("glmRegressor", offset=[0.25])
    spec.glmRegressor.weights.add(value=[1.0, -0.5, 0.25, 0.0])
    spec.glmRegressor.postEvaluationTransform = ct.proto.GLMRegressor_pb2.GLMRegressor.PostEvaluationTransform.Value(transform)
    judge = {"NoTransform": lambda v: v, "Logit": lambda v: 1 / (1 + np.exp(-v)), "Probit": stats.norm.cdf}[transform]
    for row in X[:3]:
        assert run_both(spec, row)["y"] == pytest.approx(judge(row @ [1, -0.5, 0.25, 0] + 0.25), rel=1e-6)


def tree_of(behavior, missing=False):
    """One node with two leaves: 1 if the comparison of feature 1 with 0.5 is true, else 2."""
    spec = described("treeEnsembleRegressor")
    ensemble_ = spec.treeEnsembleRegressor.treeEnsemble
    ensemble_.numPredictionDimensions = 1
    node = ensemble_.nodes.add(nodeId=0, branchFeatureIndex=1, branchFeatureValue=0.5, trueChildNodeId=1, falseChildNodeId=2)
    node.nodeBehavior, node.missingValueTracksTrueChild = behavior, missing
    for number in (1, 2):
        ensemble_.nodes.add(nodeId=number, nodeBehavior=6).evaluationInfo.add(evaluationValue=number)
    return spec


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("behavior", range(6))
def test_tree_comparisons_and_missing_values(behavior, missing):
    compare = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)[behavior]
    for value in (0.4, 0.5, 0.6, np.nan):
        holds = missing if np.isnan(value) else compare(value, 0.5)
        assert run_both(tree_of(behavior, missing), np.array([0, value, 0, 0]))["y"] == (1 if holds else 2)


def test_broken_trees_raise():
    spec = tree_of(0)
    spec.treeEnsembleRegressor.treeEnsemble.nodes[0].trueChildNodeId = 9
    with pytest.raises(UnsafeFileError, match="a child that does not exist"):
        Interpreter(spec)
    spec = tree_of(0)
    spec.treeEnsembleRegressor.treeEnsemble.nodes[1].nodeBehavior = 0
    with pytest.raises(UnsafeFileError, match="cycle"):
        Interpreter(spec)
    spec = tree_of(0)
    spec.treeEnsembleRegressor.treeEnsemble.nodes[0].branchFeatureIndex = 4
    with pytest.raises(UnsafeFileError, match="read feature 4, but there are 4"):
        Interpreter(spec)


def test_non_maximum_suppression_model():
    spec = ct.proto.Model_pb2.Model(specificationVersion=3)
    for name, width in (("confidence", 2), ("coordinates", 4)):
        for side, prefix in ((spec.description.input, "raw_"), (spec.description.output, "")):
            array = side.add(name=prefix + name).type.multiArrayType
            array.dataType = ct.proto.FeatureTypes_pb2.ArrayFeatureType.DOUBLE
            if prefix:
                array.shape.extend([4, width])
    model = spec.nonMaximumSuppression
    model.pickTop.perClass, model.iouThreshold, model.confidenceThreshold = False, 0.5, 0.3
    model.confidenceInputFeatureName, model.coordinatesInputFeatureName = "raw_confidence", "raw_coordinates"
    model.confidenceOutputFeatureName, model.coordinatesOutputFeatureName = "confidence", "coordinates"
    boxes = np.array([[0.5, 0.5, 0.4, 0.4], [0.52, 0.5, 0.4, 0.4], [0.1, 0.1, 0.1, 0.1], [0.9, 0.9, 0.1, 0.1]])
    sure = np.array([[0.9, 0.1], [0.8, 0.2], [0.1, 0.6], [0.2, 0.1]])
    feeds = {"raw_confidence": sure, "raw_coordinates": boxes}
    found = Interpreter(spec).run(feeds)
    np.testing.assert_allclose(found["coordinates"], boxes[[0, 2]], rtol=1e-6)  # 1 overlaps 0, 3 is below the threshold
    np.testing.assert_allclose(found["confidence"], sure[[0, 2]], rtol=1e-6)
    made = passes.clean(frontend.to_hub(spec))
    again = devices.run(devices.session(made, "cpu"), feeds)
    for name, value in again.items():
        np.testing.assert_allclose(value, found[name], rtol=1e-6)


def test_every_model_type_is_read_or_unsupported_with_a_reason():
    kinds = {f.name for f in ct.proto.Model_pb2.Model.DESCRIPTOR.oneofs_by_name["Type"].fields}
    read = {*rule, *NETWORKS, *PIPELINES, "mlProgram"}
    assert kinds == read | set(UNSUPPORTED) and not read & set(UNSUPPORTED)
    for kind in UNSUPPORTED:
        spec = ct.proto.Model_pb2.Model()
        getattr(spec, kind).SetInParent()
        with pytest.raises(ConversionError) as caught:
            frontend.to_hub(spec)
        assert [(p.op, p.reason) for p in caught.value.problems] == [(kind, UNSUPPORTED[kind])]
    with pytest.raises(UnsafeFileError, match="the model is empty, or of a type"):
        frontend.to_hub(ct.proto.Model_pb2.Model())


def test_trees_convert_to_other_frameworks(convert, tmp_path):
    spec = convert(ensemble.RandomForestRegressor(3, max_depth=3, random_state=0).fit(X, Y))
    path = tmp_path / "forest.mlmodel"
    ct.models.utils.save_spec(spec, str(path))
    assert onnxbridge.convert(path, "pytorch").report.agrees


def test_string_output_alone_is_unsupported(convert):
    spec = convert(svm.SVC().fit(X, C))
    spec.supportVectorClassifier.stringClassLabels.vector.extend(["a", "b", "c"])
    assert Interpreter(spec).run({"x": X[0]})["classLabel"] == "abc"[C[0]]
    with pytest.raises(UsageError, match="is a class label"):
        frontend.to_hub(spec)
