"""TfIdfVectorizer by comparing n-grams with the pool."""

from __future__ import annotations

import functools

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.standard import decompose
from onnxbridge.hub.ir.values import rank


def _count_ngrams(op, X, grams, step):
    """Counts the occurrences of each n-gram in each row, with a distance of `step` between its elements."""
    n = grams.shape[1]
    matches = []
    for i in range(n):
        # rows that are too short contain no n-gram
        end = np.iinfo(np.int64).max if i == n - 1 else (i - n + 1) * step
        part = op.Slice(X, [i * step], [end], [-1])
        matches.append(op.Equal(op.Unsqueeze(part, [-1]), op.constant(np.ascontiguousarray(grams[:, i]))))
    matched = op.Cast(functools.reduce(op.And, matches), to=1)
    if not isinstance(matched.shape[-2], int):  # ONNX Runtime's ReduceSum over an empty axis has a wrong shape
        matched = op.Pad(matched, [0] * (rank(matched) - 2) + [1] + [0] * (rank(matched) + 1))
    return op.ReduceSum(matched, [-2], keepdims=0)


@decompose("TfIdfVectorizer")
def tf_idf_vectorizer(
    op, X, *, max_gram_length, max_skip_count, min_gram_length, mode, ngram_counts, ngram_indexes, pool_int64s=None,
    pool_strings=None, weights=None,
):  # fmt: skip
    pool = np.array(pool_strings, object) if pool_int64s is None else np.array(pool_int64s, X.dtype.numpy())
    ends = (*ngram_counts[1:], len(pool))
    length = X.shape[-1] if rank(X) else 1
    counts, columns, at = [], [], 0
    for n, (start, end) in enumerate(zip(ngram_counts, ends, strict=True), 1):
        grams = pool[start:end].reshape(-1, n)
        if min_gram_length <= n <= max_gram_length and len(grams):
            steps = [1] if n == 1 else range(1, max_skip_count + 2)
            fitting_steps = [step for step in steps if not isinstance(length, int) or (n - 1) * step < length]
            counts.append(functools.reduce(op.Add, [_count_ngrams(op, X, grams, step) for step in fitting_steps or [1]]))
            columns += ngram_indexes[at : at + len(grams)]
        at += len(grams)
    if not counts or not rank(X):
        raise Unsupported("TfIdfVectorizer without n-grams in range, or of a scalar input")
    total = counts[0] if len(counts) == 1 else op.Concat(*counts, axis=-1)
    if mode == "IDF":
        total = op.Cast(op.Greater(total, 0.0), to=1)
    # each n-gram's count goes to its column, with its weight
    width = max(ngram_indexes) + 1
    factor = np.ones(width, np.float32)
    if weights is not None and mode != "TF":
        factor[list(ngram_indexes)] = weights
    if sorted(columns) == list(range(width)):
        total = op.Gather(total, np.argsort(columns), axis=-1)
    else:
        table = np.zeros((len(columns), width), np.float32)
        table[np.arange(len(columns)), columns] = 1
        total = op.MatMul(total, op.constant(table))
    return total if (factor == 1).all() else op.Mul(total, factor)
