"""Cases of ai.onnx.ml."""

from __future__ import annotations

import numpy as np

from tests.hub.decompositions.compare import case

R = np.random.default_rng(0)


def f(*shape):
    return R.standard_normal(shape).astype(np.float32)


def numbers(*shape):
    return R.standard_normal(shape).astype(np.float32).reshape(-1).tolist()


def string_array(*items):
    return np.array(items, object)


def _trees(modes=("BRANCH_LEQ",), trees=3, depth=3, features=4, missing=False):
    """Complete binary trees as attributes nodes_*, and the (tree, node) of each leaf."""
    inner = 2**depth - 1
    count = 2 * inner + 1
    kinds = [[modes[(t + n) % len(modes)] if n < inner else "LEAF" for n in range(count)] for t in range(trees)]
    nodes = {
        "nodes_treeids": [t for t in range(trees) for _ in range(count)],
        "nodes_nodeids": list(range(count)) * trees,
        "nodes_modes": [k for tree in kinds for k in tree],
        "nodes_featureids": [int(v) for v in R.integers(0, features, count * trees)],
        "nodes_values": [float(v) for v in R.integers(-2, 3, count * trees) / 2],
        "nodes_truenodeids": [2 * n + 1 if n < inner else 0 for n in range(count)] * trees,
        "nodes_falsenodeids": [2 * n + 2 if n < inner else 0 for n in range(count)] * trees,
    }
    if missing:
        nodes["nodes_missing_value_tracks_true"] = [int(v) for v in R.integers(0, 2, count * trees)]
    leaves = [(t, n) for t in range(trees) for n in range(inner, count)]
    return nodes, leaves


def _regressor(X, targets=1, modes=("BRANCH_LEQ",), missing=False, **attrs):
    nodes, leaves = _trees(modes, missing=missing)
    return case(
        "ai.onnx.ml::TreeEnsembleRegressor",
        X,
        **nodes,
        **attrs,
        n_targets=targets,
        target_treeids=[t for t, _ in leaves],
        target_nodeids=[n for _, n in leaves],
        target_ids=[i % targets for i in range(len(leaves))],
        target_weights=numbers(len(leaves)),
    )


def _classifier(X, classes, weighed, signed=True, strings=False, **attrs):
    """Each leaf has a weight for each class in `weighed`."""
    nodes, leaves = _trees()
    each = [(t, n, c) for t, n in leaves for c in weighed]
    weights = numbers(len(each))
    names = (
        {"classlabels_strings": [f"c{i}" for i in range(classes)]}
        if strings
        else {"classlabels_int64s": list(range(5, 5 + classes))}
    )
    return case(
        "ai.onnx.ml::TreeEnsembleClassifier",
        X,
        **nodes,
        **names,
        **attrs,
        outputs=2,
        class_treeids=[t for t, _, _ in each],
        class_nodeids=[n for _, n, _ in each],
        class_ids=[c for _, _, c in each],
        class_weights=weights if signed else [abs(w) / 4 for w in weights],
    )


def _ensemble(X, dtype=np.float32, **attrs):
    inner = 3
    return case(
        "ai.onnx.ml::TreeEnsemble",
        X,
        **attrs,
        n_targets=2,
        tree_roots=[0, 3],
        nodes_featureids=[0, 1, 2, 3, 0, 1],
        nodes_modes=np.zeros(2 * inner, np.uint8),
        nodes_splits=R.standard_normal(6).astype(dtype),
        nodes_truenodeids=[1, 0, 2, 4, 4, 6],
        nodes_trueleafs=[0, 1, 1, 0, 1, 1],
        nodes_falsenodeids=[2, 1, 3, 5, 5, 7],
        nodes_falseleafs=[0, 1, 1, 0, 1, 1],
        leaf_targetids=[0, 1, 0, 1, 1, 0, 1, 0],
        leaf_weights=R.standard_normal(8).astype(dtype),
    )


SPREAD = np.linspace(-3, 3, 40).astype(np.float32).reshape(10, 4)[:, [2, 0, 3, 1]]
HOLES = np.where(R.random((10, 4)) < 0.3, np.float32(np.nan), SPREAD)
SVM = {"kernel_params": [0.4, 0.2, 3.0], "rho": [0.3]}
VOTES = {
    "classlabels_ints": [3, 4, 5],
    "vectors_per_class": [2, 3, 2],
    "support_vectors": numbers(7, 4),
    "coefficients": numbers(2, 7),
    "rho": numbers(3),
    "kernel_params": [0.4, 0.2, 3.0],
}

TWO = {
    "classlabels_ints": [3, 8],
    "vectors_per_class": [2, 3],
    "support_vectors": numbers(5, 4),
    "coefficients": numbers(5),
    "rho": [0.2],
    "kernel_type": "RBF",
    "kernel_params": [0.3, 0.0, 3.0],
}

CASES = [
    _regressor(SPREAD),
    # ONNX Runtime omits the base value if no leaf of a target is reached
    _regressor(SPREAD, targets=3, base_values=[1.0, 2.0, 3.0], reference="executor"),
    _regressor(SPREAD, modes=("BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_LEQ")),
    _regressor(HOLES, missing=True),
    _regressor(SPREAD, aggregate_function="AVERAGE"),
    _regressor(SPREAD, targets=2, aggregate_function="MAX"),
    _regressor(SPREAD, targets=2, aggregate_function="MIN"),
    _regressor(SPREAD.astype(np.float64)),
    _regressor((SPREAD * 2).astype(np.int64), reference="executor"),
    _regressor(SPREAD, targets=3, post_transform="SOFTMAX"),
    _classifier(SPREAD, 3, (0, 1, 2)),
    _classifier(SPREAD, 3, (0, 1, 2), strings=True, post_transform="SOFTMAX"),
    _classifier(SPREAD, 3, (0, 1, 2), post_transform="LOGISTIC", base_values=[0.5, 0.25, 0.0]),
    _classifier(SPREAD, 2, (0,)),
    _classifier(SPREAD, 2, (0,), signed=False),
    _classifier(SPREAD, 2, (0,), post_transform="LOGISTIC"),
    *(_classifier(SPREAD, 2, (1,), signed, post_transform=how) for signed in (True, False) for how in ("NONE", "SOFTMAX")),
    _ensemble(SPREAD),
    _ensemble(SPREAD, aggregate_function=2),
    _ensemble(SPREAD.astype(np.float64), np.float64, aggregate_function=0),
    case("ai.onnx.ml::LinearRegressor", f(3, 4), coefficients=numbers(2, 4), intercepts=[1.0, -1.0], targets=2),
    case("ai.onnx.ml::LinearRegressor", f(3, 4), coefficients=numbers(4)),
    case(
        "ai.onnx.ml::LinearClassifier",
        f(5, 4),
        coefficients=numbers(3, 4),
        intercepts=numbers(3),
        classlabels_ints=[7, 8, 9],
        post_transform="SOFTMAX",
        outputs=2,
    ),
    case(
        "ai.onnx.ml::LinearClassifier",
        f(5, 4),
        coefficients=numbers(3, 4),
        intercepts=numbers(3),
        classlabels_strings=["a", "b", "c"],
        post_transform="LOGISTIC",
        outputs=2,
    ),
    *(
        case(
            "ai.onnx.ml::SVMRegressor",
            f(5, 4),
            coefficients=numbers(6),
            support_vectors=numbers(6, 4),
            n_supports=6,
            kernel_type=k,
            **SVM,
        )
        for k in ("LINEAR", "POLY", "RBF", "SIGMOID")
    ),
    case("ai.onnx.ml::SVMRegressor", f(5, 4), coefficients=numbers(4), kernel_type="LINEAR", **SVM),
    case(
        "ai.onnx.ml::SVMRegressor",
        f(5, 4),
        coefficients=numbers(6),
        support_vectors=numbers(6, 4),
        n_supports=6,
        kernel_type="RBF",
        one_class=1,
        **SVM,
    ),
    case("ai.onnx.ml::SVMClassifier", f(9, 4), kernel_type="RBF", outputs=2, **VOTES),
    *(case("ai.onnx.ml::SVMClassifier", f(9, 4), post_transform=p, outputs=2, **TWO) for p in ("NONE", "LOGISTIC")),
    # one iteration more or less changes a probability by less than the convergence limit, 0.005 / classes
    case("ai.onnx.ml::SVMClassifier", f(9, 4), prob_a=[-1.3], prob_b=[0.1], outputs=2, atol=0.0025, **TWO),
    case(
        "ai.onnx.ml::SVMClassifier",
        f(9, 4),
        kernel_type="RBF",
        prob_a=[-1.3, -0.7, -2.0],
        prob_b=[0.1, 0.0, -0.2],
        outputs=2,
        atol=0.0017,
        **VOTES,
    ),
    case(
        "ai.onnx.ml::SVMClassifier",
        f(9, 4),
        classlabels_ints=[3, 4, 5],
        coefficients=numbers(3, 4),
        rho=[0.2],
        kernel_type="LINEAR",
        kernel_params=[0.0, 0.0, 0.0],
        outputs=2,
    ),
    *(
        case(
            "ai.onnx.ml::LinearClassifier",
            f(5, 4),
            coefficients=numbers(4),
            intercepts=[0.3],
            classlabels_ints=[7, 8],
            post_transform=p,
            outputs=2,
        )
        for p in ("NONE", "LOGISTIC")
    ),
    case("ai.onnx.ml::SVMClassifier", f(9, 4), kernel_type="LINEAR", outputs=2, **VOTES),
    case("ai.onnx.ml::SVMClassifier", f(9, 4), kernel_type="POLY", outputs=2, **VOTES),
    *(
        case("ai.onnx.ml::Normalizer", np.concatenate((f(3, 4), np.zeros((1, 4), np.float32))), norm=n)
        for n in ("MAX", "L1", "L2")
    ),
    case("ai.onnx.ml::Scaler", f(3, 4), offset=numbers(4), scale=numbers(4)),
    case("ai.onnx.ml::Scaler", np.arange(6).reshape(2, 3), offset=[1.0], scale=[0.5]),
    case("ai.onnx.ml::Imputer", HOLES, imputed_value_floats=[1.0, 2.0, 3.0, 4.0], replaced_value_float=float("nan")),
    case("ai.onnx.ml::Imputer", np.arange(6).reshape(2, 3), imputed_value_int64s=[9], replaced_value_int64=4),
    case("ai.onnx.ml::Binarizer", f(3, 4), threshold=0.25),
    case("ai.onnx.ml::ArrayFeatureExtractor", f(3, 5), np.array([[0, 4, 2]])),
    case("ai.onnx.ml::ArrayFeatureExtractor", f(5), np.array([3, 1])),
    case("ai.onnx.ml::FeatureVectorizer", f(3, 2), f(3, 4), inputdimensions=[2, 4]),
    case("ai.onnx.ml::LabelEncoder", np.array([3, 1, 7]), keys_int64s=[1, 3], values_floats=[0.5, 1.5], default_float=-2.0),
    case(
        "ai.onnx.ml::LabelEncoder", string_array("b", "x", "a"), keys_strings=["a", "b"], values_int64s=[5, 6], default_int64=-3
    ),
    case("ai.onnx.ml::LabelEncoder", np.array([[1, 2], [3, 9]]), keys_int64s=[1, 2, 3], values_strings=["x", "y", "z"]),
    case("ai.onnx.ml::LabelEncoder", np.float32([1.5, np.nan, 2.5]), keys_floats=[1.5, float("nan")], values_int64s=[10, 20]),
    case(
        "ai.onnx.ml::LabelEncoder",
        np.array([2, 8]),
        keys_tensor=np.array([2, 3]),
        values_tensor=np.array([4, 5], np.int16),
        default_tensor=np.array([7], np.int16),
        reference="executor",
    ),
    case("ai.onnx.ml::CategoryMapper", string_array("b", "x"), cats_strings=["a", "b"], cats_int64s=[4, 5], default_int64=-7),
    case("ai.onnx.ml::CategoryMapper", np.array([5, 6]), cats_strings=["a", "b"], cats_int64s=[4, 5], default_string="?"),
    case("ai.onnx.ml::OneHotEncoder", np.array([[1, 5], [3, 4]]), cats_int64s=[1, 3, 5]),
    case("ai.onnx.ml::OneHotEncoder", string_array("b", "x"), cats_strings=["a", "b"]),
]
