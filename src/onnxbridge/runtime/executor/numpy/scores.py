"""Transforms of the scores of ai.onnx.ml classifiers."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.runtime.executor.numpy.dtypes import Array


def transformed(scores: Array, how: str) -> Array:
    """The scores (rows, classes) after a post_transform."""
    if how == "NONE":
        return scores
    if how == "LOGISTIC":
        return np.asarray(1 / (1 + np.exp(-scores)))
    if how in ("SOFTMAX", "SOFTMAX_ZERO"):
        top = scores.max(1, keepdims=True)
        e = np.exp(scores - top)
        if how == "SOFTMAX_ZERO":  # a score of 0 stays 0; as in onnx and ONNX Runtime, a score below 1e-7 is 0
            e = np.where(np.abs(scores) > 1e-7, e, scores * np.exp(-top))
        total = e.sum(1, keepdims=True)
        return np.asarray(np.where(total == 0, 0.5, e / total))
    if how == "PROBIT":
        return np.array([_probit(v) for v in scores.reshape(-1).tolist()], scores.dtype).reshape(scores.shape)
    raise Unsupported(f"post_transform {how!r}")


def _probit(p: float) -> float:
    """The inverse of the normal distribution's cumulative probability."""
    if 0 < p < 1:
        return NormalDist().inv_cdf(p)
    return {0.0: -np.inf, 1.0: np.inf}.get(p, np.nan)


def labels_of(ints: Any, strings: Any) -> Array:
    """The class labels of the attributes."""
    return np.array(strings, object) if strings else np.array(ints, np.int64)


def pair_of(score: Array, how: str) -> Array:
    """The scores of two classes, of which only the second has one (rows, 1), after a post_transform.

    Raises:
        Unsupported: for transforms on whose meaning runtimes disagree.
    """
    if how == "NONE":
        return np.concatenate((1 - score, score), 1)
    if how == "LOGISTIC":
        return transformed(np.concatenate((-score, score), 1), how)
    raise Unsupported(f"post_transform {how!r} of two classes of which one has a score")
