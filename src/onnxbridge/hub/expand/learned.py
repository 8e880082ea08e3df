"""Linear models, support vectors, and the preparation of features of ai.onnx.ml."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.expand import expand
from onnxbridge.hub.expand.scores import best, floating, labels, transformed
from onnxbridge.hub.values import cast, is_integer


@expand("ai.onnx.ml::LinearRegressor")
def linear_regressor(op, X, *, coefficients=None, intercepts=None, post_transform="NONE", targets=1):
    return transformed(op, _linear(op, floating(op, X), coefficients, intercepts, targets), post_transform)


def _linear(op, x, coefficients, intercepts, rows):
    weights = op.constant(np.asarray(coefficients).reshape(rows, -1).T, dtype=x.dtype)
    y = op.MatMul(x, weights)
    return op.Add(y, op.constant(np.asarray(intercepts), dtype=x.dtype)) if intercepts else y


@expand("ai.onnx.ml::LinearClassifier")
def linear_classifier(
    op, X, *, classlabels_ints=None, classlabels_strings=None, coefficients=None, intercepts=None, multi_class=0,
    post_transform="NONE",
):  # fmt: skip
    names = labels(op, classlabels_ints, classlabels_strings)
    count = len(classlabels_strings or classlabels_ints)
    if (len(intercepts) if intercepts else count) != count or count == 1:
        raise Unsupported("coefficients for one of two classes only")
    scores = _linear(op, floating(op, X), coefficients, intercepts, count)
    return best(op, names, scores), transformed(op, scores, post_transform)


def _kernel(op, x, vectors, kind, parameters):
    """How near each row is to each support vector."""
    gamma, offset, degree = (*(parameters or ()), 0.0, 0.0, 0.0)[:3]
    product = op.MatMul(x, op.constant(vectors.T, dtype=x.dtype))
    if kind == "LINEAR":
        return product
    if kind == "POLY":
        return op.Pow(op.Add(op.Mul(product, gamma), offset), float(degree))
    if kind == "SIGMOID":
        return op.Tanh(op.Add(op.Mul(product, gamma), offset))
    if kind != "RBF":
        raise Unsupported(f"kernel_type {kind!r}")
    # the squares of differences one by one: sizes less twice the product would cancel where a row is near a vector
    apart = op.Sub(op.Unsqueeze(x, [1]), op.constant(vectors[None], dtype=x.dtype))
    return op.Exp(op.Mul(op.ReduceSum(op.Mul(apart, apart), [2], keepdims=0), -gamma))


@expand("ai.onnx.ml::SVMRegressor")
def svm_regressor(
    op, X, *, coefficients=None, kernel_params=None, kernel_type="LINEAR", n_supports=0, one_class=0, post_transform="NONE",
    rho=None, support_vectors=None,
):  # fmt: skip
    x, weights = floating(op, X), np.asarray(coefficients).reshape(-1, 1)
    if n_supports:
        x = _kernel(op, x, np.asarray(support_vectors).reshape(n_supports, -1), kernel_type, kernel_params)
    total = op.Add(op.MatMul(x, op.constant(weights, dtype=x.dtype)), rho[0])
    if one_class:
        return op.Where(op.Greater(total, 0.0), np.float32(1), np.float32(-1))
    return transformed(op, total, post_transform)


@expand("ai.onnx.ml::SVMClassifier")
def svm_classifier(
    op, X, *, classlabels_ints=None, classlabels_strings=None, coefficients=None, kernel_params=None, kernel_type="LINEAR",
    post_transform="NONE", prob_a=None, prob_b=None, rho=None, support_vectors=None, vectors_per_class=None,
):  # fmt: skip
    """One score for each pair of classes, and the class that most of them vote for."""
    names, count = labels(op, classlabels_ints, classlabels_strings), len(classlabels_strings or classlabels_ints)
    if not vectors_per_class or prob_a or count < 3:
        raise Unsupported("probabilities, two classes, or coefficients without support vectors")
    x, total = floating(op, X), sum(vectors_per_class)
    near = _kernel(op, x, np.asarray(support_vectors).reshape(total, -1), kernel_type, kernel_params)
    coefficients = np.asarray(coefficients).reshape(count - 1, total)
    ends = np.cumsum(vectors_per_class)
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    weights = np.zeros((total, len(pairs)))
    for p, (i, j) in enumerate(pairs):
        own, other = (slice(ends[k] - vectors_per_class[k], ends[k]) for k in (i, j))
        weights[own, p], weights[other, p] = coefficients[j - 1, own], coefficients[i, other]
    scores = op.Add(op.MatMul(near, op.constant(weights, dtype=x.dtype)), op.constant(np.asarray(rho), dtype=x.dtype))
    first, second = (np.eye(count, dtype=np.float32)[[p[side] for p in pairs]] for side in (0, 1))
    won = op.Cast(op.Greater(scores, 0.0), to=1)
    votes = op.Add(op.MatMul(won, first), op.MatMul(op.Sub(1.0, won), second))
    return best(op, names, votes), transformed(op, scores, post_transform)


@expand("ai.onnx.ml::Normalizer")
def normalizer(op, X, *, norm="MAX"):
    """Rows divided by their size; a row of zeros stays."""
    x = floating(op, X)
    if norm == "MAX":
        size = op.ReduceMax(x, [-1])
    elif norm in ("L1", "L2"):
        size = (op.ReduceL1 if norm == "L1" else op.ReduceL2)(x, [-1])
    else:
        raise Unsupported(f"norm {norm!r}")
    return cast(op, op.Where(op.Equal(size, 0.0), x, op.Div(x, size)), 1)


@expand("ai.onnx.ml::Scaler")
def scaler(op, X, *, offset=None, scale=None):
    x = floating(op, X)
    x = x if offset is None else op.Sub(x, op.constant(np.asarray(offset), dtype=x.dtype))
    x = x if scale is None else op.Mul(x, op.constant(np.asarray(scale), dtype=x.dtype))
    return cast(op, x, 1)


@expand("ai.onnx.ml::Imputer")
def imputer(
    op, X, *, imputed_value_floats=None, imputed_value_int64s=None, replaced_value_float=0.0, replaced_value_int64=0,
):  # fmt: skip
    whole = is_integer(X)
    old = replaced_value_int64 if whole else replaced_value_float
    new = op.constant(np.asarray(imputed_value_int64s if whole else imputed_value_floats), dtype=X.dtype)
    gone = op.IsNaN(X) if old != old else op.Equal(X, op.constant(np.asarray(old), dtype=X.dtype))
    return op.Where(gone, new, X)


@expand("ai.onnx.ml::Binarizer")
def binarizer(op, X, *, threshold=0.0):
    x = floating(op, X)
    return op.Cast(op.Greater(x, threshold), to=X.dtype)


@expand("ai.onnx.ml::ArrayFeatureExtractor")
def array_feature_extractor(op, X, Y):
    picked = op.Gather(X, op.Reshape(Y, [-1]), axis=-1)
    return op.Unsqueeze(picked, [0]) if len(X.shape) == 1 else picked


@expand("ai.onnx.ml::FeatureVectorizer")
def feature_vectorizer(op, *X, inputdimensions=None):
    """The features side by side; what an input has beyond its dimensions is cut off."""
    parts = []
    for i, x in enumerate(X):
        x = cast(op, x if len(x.shape) > 1 else op.Unsqueeze(x, [0]), 1)
        parts.append(op.Slice(x, [0], [inputdimensions[i]], [1]) if inputdimensions else x)
    return op.Concat(*parts, axis=1)
