"""Generalized linear models."""

import numpy as np

from onnxbridge.errors import UnsafeFileError, Unsupported
from onnxbridge.formats.coreml.estimators.ops import rule
from onnxbridge.formats.coreml.estimators.ops.scores import apply_transform, class_probabilities, vector


def _linear(mil, features, weights, offset):
    """One score per row of weights, (rows,), and the number of rows."""
    table = np.array([list(row.value) for row in weights]) if len({len(row.value) for row in weights}) == 1 else np.zeros(0)
    if table.ndim != 2 or len(offset) != len(table):
        raise UnsafeFileError(f"the linear model has {len(weights)} rows of weights, of unequal length or not one per offset")
    x = mil.reshape(x=vector(mil, features), shape=np.array([-1, 1]))
    product = mil.reshape(x=mil.matmul(x=mil.weight(table, "weights"), y=x), shape=np.array([-1]))
    return mil.add(x=product, y=mil.weight(np.array(offset), "offset")), len(table)


@rule("glmRegressor")
def glm_regressor(mil, *features, weights, offset, postEvaluationTransform="NoTransform"):
    return apply_transform(mil, _linear(mil, features, weights, offset)[0], postEvaluationTransform)


@rule("glmClassifier")
def glm_classifier(mil, *features, weights, offset, postEvaluationTransform="Logit", classEncoding="ReferenceClass", classes):
    """With ReferenceClass the first class has score 0; with one-versus-rest the probabilities are normalized to sum to 1."""
    scores, count = _linear(mil, features, weights, offset)
    if count == 1:
        return class_probabilities(mil, apply_transform(mil, scores, postEvaluationTransform), 1, len(classes))
    if classEncoding == "ReferenceClass":
        if postEvaluationTransform != "Logit":
            raise Unsupported(f"{postEvaluationTransform} of several classes with ReferenceClass")
        return class_probabilities(
            mil, apply_transform(mil, scores, "Classification_SoftMaxWithZeroClassReference"), count + 1, len(classes)
        )
    probabilities = apply_transform(mil, scores, postEvaluationTransform)
    total = mil.reduce_sum(x=probabilities, axes=np.array([0]), keep_dims=True)
    return class_probabilities(mil, mil.real_div(x=probabilities, y=total), count, len(classes))
