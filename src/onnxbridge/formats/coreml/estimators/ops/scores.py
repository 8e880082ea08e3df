"""Transforms of model scores to predictions and class probabilities."""

import numpy as np

from onnxbridge.errors import Unsupported


def apply_transform(mil, scores, transform):
    """Apply a transform of the specification to scores (n,)."""
    if transform == "NoTransform":
        return scores
    if transform in ("Logit", "Regression_Logistic"):
        return mil.sigmoid(x=scores)
    if transform == "Probit":  # erf is float32 in most runtimes
        erf = mil.erf(x=mil.cast(x=mil.mul(x=scores, y=np.float64(np.sqrt(0.5))), dtype="fp32"))
        return mil.mul(x=mil.add(x=mil.cast(x=erf, dtype="fp64"), y=np.float64(1)), y=np.float64(0.5))
    if transform == "Classification_SoftMaxWithZeroClassReference":
        scores = mil.concat(values=[np.zeros(1), scores], axis=0)
    elif transform != "Classification_SoftMax":
        raise Unsupported(f"postEvaluationTransform {transform}")
    return mil.softmax(x=scores, axis=-1)


def class_probabilities(mil, scores, count, classes):
    """Probabilities of all classes from `count` scores; for two classes, one score may be that of the second class."""
    if count == classes:
        return scores
    if (count, classes) != (1, 2):
        raise Unsupported(f"{count} scores for {classes} classes")
    return mil.concat(values=[mil.sub(x=np.float64(1), y=scores), scores], axis=0)


def vector(mil, values):
    """Concatenate the features of all inputs as float64."""
    parts = [mil.cast(x=mil.reshape(x=v, shape=np.array([-1])), dtype="fp64") for v in values]
    return parts[0] if len(parts) == 1 else mil.concat(values=parts, axis=0)
