"""What the classifiers of ai.onnx.ml do to their scores at the end."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.runtime.numpy.dtypes import Array


def transformed(scores: Array, how: str) -> Array:
    """The scores (rows, classes) after a post_transform."""
    if how == "NONE":
        return scores
    if how == "LOGISTIC":
        return np.asarray(1 / (1 + np.exp(-scores)))
    if how in ("SOFTMAX", "SOFTMAX_ZERO"):
        e = np.exp(scores - scores.max(1, keepdims=True))
        if how == "SOFTMAX_ZERO":
            e = np.where(scores == 0, 0, e)  # a score of exactly 0 stays 0
        return np.asarray(e / np.maximum(e.sum(1, keepdims=True), np.finfo(e.dtype).tiny))
    raise Unsupported(f"post_transform {how!r}")
