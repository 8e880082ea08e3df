"""Generalised linear models."""

import numpy as np

from onnxbridge.errors import UnsafeFileError, Unsupported
from onnxbridge.formats.coreml.estimators.ops import rule
from onnxbridge.formats.coreml.estimators.ops.scores import shares, transformed, vector


def _linear(mil, features, weights, offset):
    """A score for each row of weights, (rows,)."""
    table = np.array([list(row.value) for row in weights]) if len({len(row.value) for row in weights}) == 1 else np.zeros(0)
    if table.ndim != 2 or len(offset) != len(table):
        raise UnsafeFileError(f"the linear model has {len(weights)} rows of weights, uneven or of other number than its offsets")
    x = mil.reshape(x=vector(mil, features), shape=np.array([-1, 1]))
    product = mil.reshape(x=mil.matmul(x=mil.weight(table, "weights"), y=x), shape=np.array([-1]))
    return mil.add(x=product, y=mil.weight(np.array(offset), "offset")), len(table)


@rule("glmRegressor")
def glm_regressor(mil, *features, weights, offset, postEvaluationTransform="NoTransform"):
    return transformed(mil, _linear(mil, features, weights, offset)[0], postEvaluationTransform)


@rule("glmClassifier")
def glm_classifier(mil, *features, weights, offset, postEvaluationTransform="Logit", classEncoding="ReferenceClass", classes):
    """With a reference the first class has the score 0; one class against the rest each, their shares add up to 1."""
    scores, count = _linear(mil, features, weights, offset)
    if count == 1:
        return shares(mil, transformed(mil, scores, postEvaluationTransform), 1, len(classes))
    if classEncoding == "ReferenceClass":
        if postEvaluationTransform != "Logit":
            raise Unsupported(f"{postEvaluationTransform} of several classes with a reference")
        return shares(mil, transformed(mil, scores, "Classification_SoftMaxWithZeroClassReference"), count + 1, len(classes))
    each = transformed(mil, scores, postEvaluationTransform)
    total = mil.reduce_sum(x=each, axes=np.array([0]), keep_dims=True)
    return shares(mil, mil.real_div(x=each, y=total), count, len(classes))
