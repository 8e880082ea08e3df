"""Support vector machines: kernels as matrix products, one-vs-one votes and coupled probabilities."""

from __future__ import annotations

import itertools

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.standard import decompose
from onnxbridge.hub.decompositions.standard.classifier_scores import best, binary_scores, labels, to_float, transformed


def _kernel(op, x, vectors, kind, parameters):
    """The kernel between each row and each support vector."""
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
    # squared differences directly: |x|^2 + |v|^2 - 2 x.v would cancel for a row close to a vector
    difference = op.Sub(op.Unsqueeze(x, [1]), op.constant(vectors[None], dtype=x.dtype))
    return op.Exp(op.Mul(op.ReduceSum(op.Mul(difference, difference), [2], keepdims=0), -gamma))


@decompose("ai.onnx.ml::SVMRegressor")
def svm_regressor(
    op, X, *, coefficients=None, kernel_params=None, kernel_type="LINEAR", n_supports=0, one_class=0, post_transform="NONE",
    rho=None, support_vectors=None,
):  # fmt: skip
    x, weights = to_float(op, X), np.asarray(coefficients).reshape(-1, 1)
    if n_supports:
        x = _kernel(op, x, np.asarray(support_vectors).reshape(n_supports, -1), kernel_type, kernel_params)
    total = op.Add(op.MatMul(x, op.constant(weights, dtype=x.dtype)), rho[0])
    if one_class:
        return op.Where(op.Greater(total, 0.0), np.float32(1), np.float32(-1))
    return transformed(op, total, post_transform)


@decompose("ai.onnx.ml::SVMClassifier")
def svm_classifier(
    op, X, *, classlabels_ints=None, classlabels_strings=None, coefficients=None, kernel_params=None, kernel_type="LINEAR",
    post_transform="NONE", prob_a=None, prob_b=None, rho=None, support_vectors=None, vectors_per_class=None,
):  # fmt: skip
    """One-vs-one voting. Without support vectors it is a linear model with one score for each class."""
    names, count = labels(op, classlabels_ints, classlabels_strings), len(classlabels_strings or classlabels_ints)
    x = to_float(op, X)
    if not vectors_per_class:
        weights = op.constant(np.asarray(coefficients).reshape(count, -1).T, dtype=x.dtype)
        scores = op.Add(op.MatMul(x, weights), rho[0])
        return best(op, names, scores), transformed(op, scores, post_transform)
    total = sum(vectors_per_class)
    kernel = _kernel(op, x, np.asarray(support_vectors).reshape(total, -1), kernel_type, kernel_params)
    pairs = list(itertools.combinations(range(count), 2))
    weights = _weights(np.asarray(coefficients).reshape(count - 1, total), vectors_per_class, pairs)
    scores = op.Add(op.MatMul(kernel, op.constant(weights, dtype=x.dtype)), op.constant(np.asarray(rho), dtype=x.dtype))
    first, second = (np.eye(count, dtype=np.float32)[[p[side] for p in pairs]] for side in (0, 1))
    won = op.Cast(op.Greater(scores, 0.0), to=1)
    label = best(op, names, op.Add(op.MatMul(won, first), op.MatMul(op.Sub(1.0, won), second)))
    if prob_a:
        slope, offset = (op.constant(np.asarray(v), dtype=x.dtype) for v in (prob_a, prob_b))
        pair_probabilities = op.Clip(op.Sigmoid(op.Neg(op.Add(op.Mul(scores, slope), offset))), 1e-7, 1 - 1e-7)
        return label, transformed(op, _couple_probabilities(op, pair_probabilities, pairs, count), post_transform)
    if count == 2:
        return label, binary_scores(op, op.Neg(scores), scores, post_transform)
    return label, transformed(op, scores, post_transform)


def _weights(coefficients, counts, pairs):
    """Rearranges libsvm's coefficients (classes - 1, vectors) to (vectors, pairs of classes)."""
    ends = np.cumsum(counts)
    found = np.zeros((sum(counts), len(pairs)))
    for p, (i, j) in enumerate(pairs):
        own, other = (slice(ends[k] - counts[k], ends[k]) for k in (i, j))
        found[own, p], found[other, p] = coefficients[j - 1, own], coefficients[i, other]
    return found


def _couple_probabilities(op, pair_probabilities, pairs, count):
    """Class probabilities (rows, classes) from the pairwise probabilities of the first class of each pair.

    The second method of Wu, Lin and Weng (2004) with libsvm's update order and stopping criterion. All rows iterate in one Loop;
    rows that have converged no longer change.
    """
    first, second = np.zeros((2, len(pairs), count, count))
    for p, (i, j) in enumerate(pairs):
        first[p, i, j] = second[p, j, i] = 1
    scatter_pairs = [op.constant(v.reshape(len(pairs), -1), dtype=pair_probabilities.dtype) for v in (first, second)]
    r = op.Add(op.MatMul(pair_probabilities, scatter_pairs[0]), op.MatMul(op.Sub(1.0, pair_probabilities), scatter_pairs[1]))
    r = op.Reshape(r, [-1, count, count])
    same = np.eye(count, dtype=bool)
    off_diagonal = op.Neg(op.Mul(r, op.Transpose(r, perm=[0, 2, 1])))
    q = op.Where(same, op.ReduceSum(op.Mul(r, r), [1]), off_diagonal)
    start = op.Expand(op.constant(1 / count, dtype=pair_probabilities.dtype), op.dims([op.size(pair_probabilities, 0), count]))

    def step(iteration, condition, p):
        qp = op.Squeeze(op.MatMul(q, op.Unsqueeze(p, [2])), [2])
        pqp = op.ReduceSum(op.Mul(p, qp), [1])
        not_converged = op.GreaterOrEqual(op.ReduceMax(op.Abs(op.Sub(qp, pqp)), [1]), 0.005 / count)
        previous = p
        for t in range(count):
            row = op.Gather(q, np.int64(t), axis=1)
            own, here = (op.Slice(v, [t], [t + 1], [1]) for v in (row, qp))
            delta = op.Div(op.Sub(pqp, here), own)
            denominator = op.Add(delta, 1.0)
            p = op.Div(op.Add(p, op.Mul(delta, same[t].astype(pair_probabilities.dtype.numpy()))), denominator)
            numerator = op.Mul(delta, op.Add(op.Mul(delta, own), op.Mul(here, 2.0)))
            pqp = op.Div(op.Add(pqp, numerator), op.Mul(denominator, denominator))
            qp = op.Div(op.Add(qp, op.Mul(delta, row)), denominator)
        any_active = op.Greater(op.ReduceMax(op.Cast(not_converged, to=1), keepdims=0), 0.5)
        return [any_active, op.Where(not_converged, p, previous)]

    return op.Loop(np.int64(max(100, count)), True, start, body=step)
