"""Tree ensembles whose nodes are constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.fusion.plan_rewriter import PlanRewriter
from onnxbridge.runtime.executor.kernels.trees import TRANSFORMS, Scores, ensemble, fits
from onnxbridge.runtime.executor.numpy.ops.trees import Classifier, Regressor, classifier, regressor, trees

_MADE: dict[str, Callable[..., Any]] = {
    "ai.onnx.ml::TreeEnsembleClassifier": classifier,
    "ai.onnx.ml::TreeEnsembleRegressor": regressor,
    "ai.onnx.ml::TreeEnsemble": trees,
}


def rewrite(rewriter: PlanRewriter, pool: Pool) -> None:
    """Replace ensembles on float32 whose leaves are summed by kernels."""
    for i, step in rewriter.steps(*_MADE):
        try:
            made = _MADE[step.op](**step.attrs)
            scores = _scores(made)
            if scores is None or not fits(made.trees):
                continue
            run = ensemble(made.trees, scores, pool)
        except (Unsupported, KeyError, ValueError, TypeError):
            continue  # the rule reports the error when it runs
        rewriter.swap(i, _of_float32(run), run.how)  # type: ignore[attr-defined]


def _scores(made: Classifier | Regressor) -> Scores | None:
    if made.transform not in TRANSFORMS:
        return None
    if isinstance(made, Regressor):
        if made.how not in ("SUM", "AVERAGE"):
            return None
        return Scores(made.count, made.base, made.transform, made.how == "AVERAGE")
    if made.labels.dtype != np.int64:
        return None
    width = len(made.labels)
    return Scores(width, made.base, made.transform, False, made.labels, made.threshold, made.other)


def _of_float32(run: Callable[..., Any]) -> Callable[..., Any]:
    """Other types are compared in float64 by the rule."""
    return lambda x, **attrs: run(x) if x.dtype == np.float32 and x.ndim == 2 else None
