"""Matrix products and other linear algebra."""

from __future__ import annotations

import math

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.io.resource_limits import MIN_TRACKED_BYTES, claim
from onnxbridge.runtime.executor.numpy.dtypes import widened
from onnxbridge.runtime.executor.numpy.ops import rule
from onnxbridge.runtime.executor.numpy.scores import labels_of, pair_of, transformed

_ROWS = 64  # of a matrix that is not worth batching


def matmul_claimed(a, b):
    """The matrix product, checked against the budget."""
    if a.size * b.size > MIN_TRACKED_BYTES and a.ndim > 1 and b.ndim > 1:
        claim((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]), a.dtype)
    if a.ndim > 2 and b.ndim == 2 and a.shape[-2] < _ROWS:  # NumPy multiplies one matrix of a batch after the other
        return np.matmul(a.reshape(math.prod(a.shape[:-1]), a.shape[-1]), b).reshape(*a.shape[:-1], b.shape[1])
    return np.matmul(a, b)


@rule("MatMul")
@widened
def matmul(A, B):
    return matmul_claimed(A, B)


@rule("Gemm")
@widened
def gemm(A, B, C=None, *, alpha=1.0, beta=1.0, transA=0, transB=0):
    y = _scaled(matmul_claimed(A.T if transA else A, B.T if transB else B), alpha)
    return y if C is None or beta == 0 else y + _scaled(C, beta)


def _scaled(x, factor):
    """Integers times an integer factor wrap around; other factors are multiplied in floating point."""
    if factor == 1:
        return x
    if x.dtype.kind in "iu" and float(factor).is_integer():
        return x * np.asarray(int(factor)).astype(x.dtype)
    return (x * factor).astype(x.dtype, copy=False)


@rule("Einsum")
@widened
def einsum(*Inputs, equation):
    _claim_einsum(equation, Inputs)
    y = np.einsum(equation.replace(" ", ""), *Inputs, optimize=len(Inputs) > 1)
    return np.asarray(y, Inputs[0].dtype)


def _claim_einsum(equation, arrays):
    terms, _, result = equation.replace(" ", "").partition("->")
    sizes = {}
    rest = ()
    for term, array in zip(terms.split(","), arrays, strict=True):
        front, dots, back = term.partition("...")
        named = len(front) + len(back)
        if dots:
            rest = np.broadcast_shapes(rest, array.shape[len(front) : len(front) + array.ndim - named])
        dims = array.shape[: len(front)] + (array.shape[array.ndim - len(back) :] if back else ())
        sizes.update(zip(front + back, dims, strict=True))
    if "->" not in equation:
        result = "..." + "".join(c for c in sizes if terms.count(c) == 1)
    out = [sizes[c] for c in result.replace("...", "")]
    claim([*(rest if "..." in result else ()), *out], arrays[0].dtype)


@rule("Det")
@widened
def det(X):
    return np.linalg.det(X)


def _coefficients(coefficients, intercepts, rows, dtype):
    weights = np.asarray(coefficients, dtype).reshape(rows, -1)
    return weights.T, np.zeros(rows, dtype) if not intercepts else np.asarray(intercepts, dtype)


@rule("ai.onnx.ml::LinearRegressor")
def linear_regressor(X, *, coefficients=None, intercepts=None, post_transform="NONE", targets=1):
    weights, offset = _coefficients(coefficients, intercepts, targets, _floating(X))
    return transformed(X.astype(weights.dtype) @ weights + offset, post_transform).astype(np.float32)


@rule("ai.onnx.ml::LinearClassifier")
def linear_classifier(
    X,
    *,
    coefficients,
    classlabels_ints=None,
    classlabels_strings=None,
    intercepts=None,
    multi_class=0,
    post_transform="NONE",
):
    labels = labels_of(classlabels_ints, classlabels_strings)
    rows = len(intercepts) if intercepts else len(labels)
    weights, offset = _coefficients(coefficients, intercepts, rows, _floating(X))
    scores = X.astype(weights.dtype) @ weights + offset
    if rows == 1 and len(labels) == 2:
        return labels[(scores[:, 0] > 0).astype(int)], pair_of(scores, post_transform).astype(np.float32)
    if rows != len(labels):
        raise Unsupported(f"{rows} rows of coefficients for {len(labels)} classes")
    return labels[np.argmax(scores, 1)], transformed(scores, post_transform).astype(np.float32)


def _floating(x):
    return np.float64 if x.dtype == np.float64 else np.float32
