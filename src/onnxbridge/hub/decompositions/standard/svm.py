"""Support vector machines: kernels as products with the vectors, votes and probabilities of pairs of classes."""

from __future__ import annotations

import itertools

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.standard import expand
from onnxbridge.hub.decompositions.standard.classifier_scores import best, floating, labels, pair, transformed


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
    """Each pair of classes has a vote; without support vectors each class has weights of the features, the best score wins."""
    names, count = labels(op, classlabels_ints, classlabels_strings), len(classlabels_strings or classlabels_ints)
    x = floating(op, X)
    if not vectors_per_class:
        weights = op.constant(np.asarray(coefficients).reshape(count, -1).T, dtype=x.dtype)
        scores = op.Add(op.MatMul(x, weights), rho[0])
        return best(op, names, scores), transformed(op, scores, post_transform)
    total = sum(vectors_per_class)
    near = _kernel(op, x, np.asarray(support_vectors).reshape(total, -1), kernel_type, kernel_params)
    pairs = list(itertools.combinations(range(count), 2))
    weights = _weights(np.asarray(coefficients).reshape(count - 1, total), vectors_per_class, pairs)
    scores = op.Add(op.MatMul(near, op.constant(weights, dtype=x.dtype)), op.constant(np.asarray(rho), dtype=x.dtype))
    first, second = (np.eye(count, dtype=np.float32)[[p[side] for p in pairs]] for side in (0, 1))
    won = op.Cast(op.Greater(scores, 0.0), to=1)
    label = best(op, names, op.Add(op.MatMul(won, first), op.MatMul(op.Sub(1.0, won), second)))
    if prob_a:
        slope, offset = (op.constant(np.asarray(v), dtype=x.dtype) for v in (prob_a, prob_b))
        likely = op.Clip(op.Sigmoid(op.Neg(op.Add(op.Mul(scores, slope), offset))), 1e-7, 1 - 1e-7)
        return label, transformed(op, _coupled(op, likely, pairs, count), post_transform)
    if count == 2:
        return label, pair(op, op.Neg(scores), scores, post_transform)
    return label, transformed(op, scores, post_transform)


def _weights(coefficients, counts, pairs):
    """The coefficients (classes - 1, vectors), as libsvm stores them, by vector and pair of classes."""
    ends = np.cumsum(counts)
    found = np.zeros((sum(counts), len(pairs)))
    for p, (i, j) in enumerate(pairs):
        own, other = (slice(ends[k] - counts[k], ends[k]) for k in (i, j))
        found[own, p], found[other, p] = coefficients[j - 1, own], coefficients[i, other]
    return found


def _coupled(op, likely, pairs, count):
    """Probabilities of the classes (rows, classes) from those of the first of each pair.

    The second method of Wu, Lin and Weng (2004), with libsvm's order of updates and its end, in a loop that every row takes part
    in until it has ended.
    """
    first, second = np.zeros((2, len(pairs), count, count))
    for p, (i, j) in enumerate(pairs):
        first[p, i, j] = second[p, j, i] = 1
    spread = [op.constant(v.reshape(len(pairs), -1), dtype=likely.dtype) for v in (first, second)]
    r = op.Add(op.MatMul(likely, spread[0]), op.MatMul(op.Sub(1.0, likely), spread[1]))
    r = op.Reshape(r, [-1, count, count])
    same = np.eye(count, dtype=bool)
    apart = op.Neg(op.Mul(r, op.Transpose(r, perm=[0, 2, 1])))
    q = op.Where(same, op.ReduceSum(op.Mul(r, r), [1]), apart)
    start = op.Expand(op.constant(1 / count, dtype=likely.dtype), op.dims([op.size(likely, 0), count]))

    def step(trip, going, p):
        qp = op.Squeeze(op.MatMul(q, op.Unsqueeze(p, [2])), [2])
        pqp = op.ReduceSum(op.Mul(p, qp), [1])
        moving = op.GreaterOrEqual(op.ReduceMax(op.Abs(op.Sub(qp, pqp)), [1]), 0.005 / count)
        before = p
        for t in range(count):
            row = op.Gather(q, np.int64(t), axis=1)
            own, here = (op.Slice(v, [t], [t + 1], [1]) for v in (row, qp))
            moved = op.Div(op.Sub(pqp, here), own)
            shrunk = op.Add(moved, 1.0)
            p = op.Div(op.Add(p, op.Mul(moved, same[t].astype(likely.dtype.numpy()))), shrunk)
            grown = op.Mul(moved, op.Add(op.Mul(moved, own), op.Mul(here, 2.0)))
            pqp = op.Div(op.Add(pqp, grown), op.Mul(shrunk, shrunk))
            qp = op.Div(op.Add(qp, op.Mul(moved, row)), shrunk)
        some = op.Greater(op.ReduceMax(op.Cast(moving, to=1), keepdims=0), 0.5)
        return [some, op.Where(moving, p, before)]

    return op.Loop(np.int64(max(100, count)), True, start, body=step)
