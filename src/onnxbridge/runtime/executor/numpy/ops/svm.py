"""Support vector machines of ai.onnx.ml, as libsvm defines them; computed in float64."""

from __future__ import annotations

import itertools

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.io.resource_limits import claim
from onnxbridge.runtime.executor.numpy.ops import rule
from onnxbridge.runtime.executor.numpy.scores import labels_of, transformed


def _kernel(x, vectors, kind, params):
    """The kernel of each row of x (rows, features) with each vector (vectors, features)."""
    gamma, coef0, degree = params or (0.0, 0.0, 0.0)
    claim((len(x), len(vectors)), np.float64)
    products = x @ vectors.T
    if kind == "LINEAR":
        return products
    if kind == "POLY":
        return (gamma * products + coef0) ** degree
    if kind == "SIGMOID":
        return np.tanh(gamma * products + coef0)
    if kind == "RBF":
        distance = np.sum(x * x, 1)[:, None] + np.sum(vectors * vectors, 1) - 2 * products
        return np.exp(-gamma * np.maximum(distance, 0))
    raise Unsupported(f"kernel_type {kind!r}")


def _vectors(numbers, count, x):
    return np.asarray(numbers, np.float64).reshape(count, x.shape[1])


@rule("ai.onnx.ml::SVMRegressor")
def svm_regressor(
    X,
    *,
    coefficients=None,
    kernel_params=None,
    kernel_type="LINEAR",
    n_supports=0,
    one_class=0,
    post_transform="NONE",
    rho=None,
    support_vectors=None,
):
    """Without support vectors the coefficients are the weights of the features."""
    x, weights = X.astype(np.float64), np.asarray(coefficients, np.float64)
    features = _kernel(x, _vectors(support_vectors, n_supports, x), kernel_type, kernel_params) if n_supports else x
    y = (features @ weights + rho[0])[:, None]
    if one_class:
        return np.where(y > 0, 1, -1).astype(np.float32)
    return transformed(y, post_transform).astype(np.float32)


@rule("ai.onnx.ml::SVMClassifier")
def svm_classifier(
    X,
    *,
    classlabels_ints=None,
    classlabels_strings=None,
    coefficients=None,
    kernel_params=None,
    kernel_type="LINEAR",
    post_transform="NONE",
    prob_a=None,
    prob_b=None,
    rho=None,
    support_vectors=None,
    vectors_per_class=None,
):
    """Each pair of classes has a vote; without support vectors each class has weights of the features, the best score wins."""
    x, labels = X.astype(np.float64), labels_of(classlabels_ints, classlabels_strings)
    if not vectors_per_class:
        scores = x @ np.asarray(coefficients, np.float64).reshape(len(labels), -1).T + rho[0]
        return labels[np.argmax(scores, 1)], transformed(scores, post_transform).astype(np.float32)
    values = _kernel(x, _vectors(support_vectors, sum(vectors_per_class), x), kernel_type, kernel_params)
    weights = np.asarray(coefficients, np.float64).reshape(len(labels) - 1, -1)
    margins = _margins(values, weights, vectors_per_class) + np.asarray(rho)
    pairs = np.array(list(itertools.combinations(range(len(labels)), 2)))
    winners = np.where(margins > 0, pairs[:, 0], pairs[:, 1])
    votes = (winners[:, :, None] == np.arange(len(labels))).sum(1)
    label = labels[np.argmax(votes, 1)]
    if prob_a:
        probabilities = np.clip(1 / (1 + np.exp(margins * np.asarray(prob_a) + np.asarray(prob_b))), 1e-7, 1 - 1e-7)
        return label, transformed(_coupled(probabilities, pairs, len(labels)), post_transform).astype(np.float32)
    if len(labels) > 2:
        return label, transformed(margins, post_transform).astype(np.float32)
    if post_transform not in ("NONE", "LOGISTIC"):
        raise Unsupported(f"post_transform {post_transform!r} of two classes without probabilities")
    return label, transformed(np.concatenate((-margins, margins), 1), post_transform).astype(np.float32)


def _margins(values, coefficients, counts):
    """The decision values of each pair of classes: coefficients (classes - 1, vectors) as libsvm stores them."""
    ends = np.cumsum(counts)
    ranges = [slice(end - n, end) for end, n in zip(ends, counts, strict=True)]
    return np.stack([
        values[:, ranges[i]] @ coefficients[j - 1, ranges[i]] + values[:, ranges[j]] @ coefficients[i, ranges[j]]
        for i, j in itertools.combinations(range(len(counts)), 2)
    ], 1)  # fmt: skip


def _coupled(probabilities, pairs, classes):
    """Probabilities of the classes (rows, classes) from those of the first of each pair.

    The second method of Wu, Lin and Weng (2004), with libsvm's order of updates and stopping criterion.
    """
    r = np.zeros((len(probabilities), classes, classes))
    r[:, pairs[:, 0], pairs[:, 1]], r[:, pairs[:, 1], pairs[:, 0]] = probabilities, 1 - probabilities
    q = -r * r.swapaxes(1, 2)
    every = np.arange(classes)
    q[:, every, every] = np.sum(r * r, 1)
    p = np.full((len(probabilities), classes), 1 / classes)
    for _ in range(max(100, classes)):
        qp = np.einsum("rij,rj->ri", q, p)
        pqp = np.sum(p * qp, 1, keepdims=True)
        active = np.max(np.abs(qp - pqp), 1, initial=0) >= 0.005 / classes
        if not active.any():
            break
        before = p.copy()
        for t in every:
            diff = (pqp - qp[:, t : t + 1]) / q[:, t, t, None]
            p[:, t : t + 1] += diff
            pqp = (pqp + diff * (diff * q[:, t, t, None] + 2 * qp[:, t : t + 1])) / (1 + diff) ** 2
            qp = (qp + diff * q[:, t]) / (1 + diff)
            p /= 1 + diff
        p = np.where(active[:, None], p, before)
    return p
