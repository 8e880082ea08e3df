"""Tree ensembles whose nodes are constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.fusion.plan_rewriter import Draft
from onnxbridge.runtime.executor.kernels.run.call_recorder import unrecorded
from onnxbridge.runtime.executor.kernels.trees import TRANSFORMS, Scores, ensemble, fits
from onnxbridge.runtime.executor.numpy.ops.trees import Classifier, Regressor, classifier, regressor, trees
from onnxbridge.runtime.executor.plan import Step

_MADE: dict[str, Callable[..., Any]] = {
    "ai.onnx.ml::TreeEnsembleClassifier": classifier,
    "ai.onnx.ml::TreeEnsembleRegressor": regressor,
    "ai.onnx.ml::TreeEnsemble": trees,
}


def join(draft: Draft, pool: Pool) -> None:
    """Put native ensembles in the place of those on float32 whose leaves are added up."""
    for i, step in draft.steps(*_MADE):
        try:
            made = _MADE[step.op](**step.attrs)
            scores = _scores(made)
            if scores is None or not fits(made.trees):
                continue
            run = ensemble(made.trees, scores, pool)
        except (Unsupported, KeyError, ValueError, TypeError):
            continue  # the rule says what is wrong when it runs
        draft.join([i], step.op, _of_float32(run, step), step.sources, step.targets, how=run.how)  # type: ignore[attr-defined]


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


def _of_float32(run: Callable[..., Any], step: Step) -> Callable[..., Any]:
    """Other types are compared in float64 by the rule."""
    rule = unrecorded(step.run)
    return lambda x: run(x) if x.dtype == np.float32 and x.ndim == 2 else rule(x, **step.attrs)
