"""Linear models and feature preprocessing operators of ai.onnx.ml."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.standard import decompose
from onnxbridge.hub.decompositions.standard.classifier_scores import best, binary_scores, labels, to_float, transformed
from onnxbridge.hub.ir.values import cast, is_integer


@decompose("ai.onnx.ml::LinearRegressor")
def linear_regressor(op, X, *, coefficients=None, intercepts=None, post_transform="NONE", targets=1):
    return transformed(op, _linear(op, to_float(op, X), coefficients, intercepts, targets), post_transform)


def _linear(op, x, coefficients, intercepts, rows):
    weights = op.constant(np.asarray(coefficients).reshape(rows, -1).T, dtype=x.dtype)
    y = op.MatMul(x, weights)
    return op.Add(y, op.constant(np.asarray(intercepts), dtype=x.dtype)) if intercepts else y


@decompose("ai.onnx.ml::LinearClassifier")
def linear_classifier(
    op, X, *, classlabels_ints=None, classlabels_strings=None, coefficients=None, intercepts=None, multi_class=0,
    post_transform="NONE",
):  # fmt: skip
    names = labels(op, classlabels_ints, classlabels_strings)
    count = len(classlabels_strings or classlabels_ints)
    rows = len(intercepts) if intercepts else count
    scores = _linear(op, to_float(op, X), coefficients, intercepts, rows)
    if rows == 1 and count == 2:
        second = op.Cast(op.Greater(op.Squeeze(scores, [1]), 0.0), to=7)
        return op.Gather(names, second, axis=0), binary_scores(op, op.Sub(1.0, scores), scores, post_transform)
    if rows != count:
        raise Unsupported(f"{rows} rows of coefficients for {count} classes")
    return best(op, names, scores), transformed(op, scores, post_transform)


@decompose("ai.onnx.ml::Normalizer")
def normalizer(op, X, *, norm="MAX"):
    """Divides rows by their norm; zero rows stay zero."""
    x = to_float(op, X)
    if norm == "MAX":
        size = op.ReduceMax(x, [-1])
    elif norm in ("L1", "L2"):
        size = (op.ReduceL1 if norm == "L1" else op.ReduceL2)(x, [-1])
    else:
        raise Unsupported(f"norm {norm!r}")
    return cast(op, op.Where(op.Equal(size, 0.0), x, op.Div(x, size)), 1)


@decompose("ai.onnx.ml::Scaler")
def scaler(op, X, *, offset=None, scale=None):
    x = to_float(op, X)
    x = x if offset is None else op.Sub(x, op.constant(np.asarray(offset), dtype=x.dtype))
    x = x if scale is None else op.Mul(x, op.constant(np.asarray(scale), dtype=x.dtype))
    return cast(op, x, 1)


@decompose("ai.onnx.ml::Imputer")
def imputer(
    op, X, *, imputed_value_floats=None, imputed_value_int64s=None, replaced_value_float=0.0, replaced_value_int64=0,
):  # fmt: skip
    integer = is_integer(X)
    old = replaced_value_int64 if integer else replaced_value_float
    new = op.constant(np.asarray(imputed_value_int64s if integer else imputed_value_floats), dtype=X.dtype)
    is_missing = op.IsNaN(X) if old != old else op.Equal(X, op.constant(np.asarray(old), dtype=X.dtype))
    return op.Where(is_missing, new, X)


@decompose("ai.onnx.ml::Binarizer")
def binarizer(op, X, *, threshold=0.0):
    x = to_float(op, X)
    return op.Cast(op.Greater(x, threshold), to=X.dtype)


@decompose("ai.onnx.ml::ArrayFeatureExtractor")
def array_feature_extractor(op, X, Y):
    picked = op.Gather(X, op.Reshape(Y, [-1]), axis=-1)
    return op.Unsqueeze(picked, [0]) if len(X.shape) == 1 else picked


@decompose("ai.onnx.ml::FeatureVectorizer")
def feature_vectorizer(op, *X, inputdimensions=None):
    """Concatenates the features; an input with more columns than inputdimensions is truncated."""
    parts = []
    for i, x in enumerate(X):
        x = cast(op, x if len(x.shape) > 1 else op.Unsqueeze(x, [0]), 1)
        parts.append(op.Slice(x, [0], [inputdimensions[i]], [1]) if inputdimensions else x)
    return op.Concat(*parts, axis=1)
